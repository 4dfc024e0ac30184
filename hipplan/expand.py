"""vars, $(...), each and include: from a document as written to the document meant."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from hipplan.errors import Span
from hipplan.source import Source, load_yaml


class Expanded:
    """A document with all its parameters filled in, and where each piece of it was written."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.name = source.name
        self.data = source.data

    def span(self, path: Sequence[Hashable], *, key: bool = False) -> Span | None:
        return self._source.span(path, key=key)


def expand(source: Any, given: Mapping[str, Any]) -> Expanded:
    if isinstance(source, Mapping):
        return Expanded(Source("<data>", "", dict(source), None))
    return Expanded(load_yaml(source))
