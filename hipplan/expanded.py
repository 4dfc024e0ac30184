"""A document meant, and where each piece of it was written."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

from hipplan.errors import Span
from hipplan.findings import Findings
from hipplan.source import Source

Path = tuple[Hashable, ...]


class Expanded:
    """A document with all its parameters filled in, and where each piece of it was written."""

    def __init__(self, root: Source, data: Any) -> None:
        self.name = root.name
        self.data = data
        self.found = Findings(root.found)
        """What is wrong with single things, which are left out of the data; the rest can still be checked."""
        self.broken: frozenset[str] = frozenset()
        """Their names, as noun:name."""
        self.files: frozenset[str] = frozenset()
        """Paths of the plan and of those that it includes, where something is to be filled in."""
        self.budget = root.budget
        """What is left for what becomes of it."""
        self._root = root
        self._origins: dict[Path, tuple[Source, Path, str]] = {}

    def span(self, path: Sequence[Hashable], *, key: bool = False) -> Span | None:
        """The place the user wrote; for a repeated thing with the repetition it comes from."""
        path = tuple(path)
        for length in range(len(path), 0, -1):
            if path[:length] in self._origins:
                source, origin, expansion = self._origins[path[:length]]
                span = source.span((*origin, *path[length:]), key=key)
                return replace(span, expansion=expansion) if span and expansion else span
        return self._root.span(path, key=key)

    def came_from(self, path: Path, source: Source, origin: Path, expansion: str) -> None:
        if path != origin or source is not self._root or expansion:
            self._origins[path] = (source, origin, expansion)
