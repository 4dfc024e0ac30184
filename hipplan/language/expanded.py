"""A document meant, and where each piece of it was written."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from hipplan.errors import Span
from hipplan.language.findings import Findings
from hipplan.language.source import Source

Path = tuple[Hashable, ...]


class Expanded:
    """A document with all its parameters filled in, and where each piece of it was written."""

    def __init__(self, root: Source, data: Any) -> None:
        self.name = root.name
        self.data = data
        self.written: tuple[Any, ...] = (data,)
        """What all of its files say before anything is filled in, and what its variables were set to."""
        self.found = Findings(root.found)
        """What is wrong with single things, which are left out of the data; the rest can still be checked."""
        self.broken: frozenset[str] = frozenset()
        """Their names, as noun:name."""
        self.left_out: dict[Path, Any] = {}
        """Their data, by (noun, name), as far as it could be filled in."""
        self.unfilled: set[Path] = set()
        """Where in it a value could not be filled in, and each path above."""
        self.files: frozenset[str] = frozenset()
        """Paths of the plan and of those that it includes, where something is to be filled in."""
        self.budget = root.budget
        """What is left for what becomes of it."""
        self._root = root
        self._spans: dict[tuple[Path, bool], Span | None] = {}
        """Where things were written: of a counted one it is asked thousands of times."""
        self._origins: dict[Path, tuple[Source, Path, str]] = {}

    def span(self, path: Sequence[Hashable], *, key: bool = False) -> Span | None:
        """The place the user wrote; for a repeated thing with the repetition it comes from."""
        path = tuple(path)
        if (path, key) not in self._spans:
            self._spans[path, key] = self._find(path, key)
        return self._spans[path, key]

    def _find(self, path: Path, key: bool) -> Span | None:
        for length in range(len(path) if self._origins else 0, 0, -1):
            if path[:length] in self._origins:
                source, origin, expansion = self._origins[path[:length]]
                span = source.span((*origin, *path[length:]), key=key)
                return span.repeated(expansion) if span and expansion else span
        return self._root.span(path, key=key)

    def came_from(self, path: Path, source: Source, origin: Path, expansion: str) -> None:
        if path != origin or source is not self._root or expansion:
            self._origins[path] = (source, origin, expansion)
