"""An expanded document, with the place where each piece of it was written."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from hipplan.errors import Span
from hipplan.language.doubled import Doubled
from hipplan.language.findings import Findings
from hipplan.language.source import Source

Path = tuple[Hashable, ...]


class Position:
    """A position of the walk: in the expanded document (`path`) and in the file (`source`, `origin`)."""

    __slots__ = ("expansion", "origin", "path", "source")

    def __init__(self, source: Source, path: Path, origin: Path, expansion: str = "") -> None:
        self.source = source
        self.path = path
        self.origin = origin
        self.expansion = expansion

    def child(self, step: Hashable, origin: Hashable) -> Position:
        return Position(self.source, (*self.path, step), (*self.origin, origin), self.expansion)


class Expanded:
    """A document with all its parameters filled in, and where each piece of it was written."""

    def __init__(self, root: Source, data: Any) -> None:
        self.name = root.name
        self.data = data
        self.written: tuple[Any, ...] = (data,)
        """The data of all files before expansion, and the values of the variables."""
        self.findings = Findings(root.findings)
        """Errors of single objects, which are left out of the data; the rest can still be checked."""
        self.broken: frozenset[str] = frozenset()
        """The names of those objects, as noun:name."""
        self.left_out: dict[Path, Any] = {}
        """The data of those objects by (noun, name), as far as it could be expanded."""
        self.unfilled: set[Path] = set()
        """Paths of values that could not be expanded, and all paths above them."""
        self.doubled = Doubled()
        """The keys that appear twice in the files, so that one of two values was chosen."""
        self.files: frozenset[str] = frozenset()
        """Paths of the plan and its includes. Empty if there was nothing to expand."""
        self.budget = root.budget
        """What is left of the limits after expansion."""
        self._root = root
        self._spans: dict[tuple[Path, bool], Span | None] = {}
        """A cache of places: those of an object with `count` are asked thousands of times."""
        self._origins: dict[Path, tuple[Source, Path, str]] = {}

    def span(self, path: Sequence[Hashable], *, key: bool = False) -> Span | None:
        """The place in the user's text; for a repeated object, with the repetition that it comes from."""
        path = tuple(path)
        if (path, key) not in self._spans:
            self._spans[path, key] = self._find(path, key)
        return self._spans[path, key]

    def is_unknown(self, path: Path) -> bool:
        """Whether the value at a path, or one below it, could not be expanded or is one of two."""
        source, origin, _ = self._origin(path)
        return path in self.unfilled or self.doubled.has(source, origin)

    def _find(self, path: Path, key: bool) -> Span | None:
        source, origin, expansion = self._origin(path)
        span = source.span(origin, key=key)
        return span.repeated(expansion) if span and expansion else span

    def _origin(self, path: Path) -> tuple[Source, Path, str]:
        """The file of a path, the path in that file, and the repetition."""
        for length in range(len(path) if self._origins else 0, 0, -1):
            if path[:length] in self._origins:
                source, origin, expansion = self._origins[path[:length]]
                return source, (*origin, *path[length:]), expansion
        return self._root, path, ""

    def came_from(self, path: Path, source: Source, origin: Path, expansion: str) -> None:
        if path != origin or source is not self._root or expansion:
            self._origins[path] = (source, origin, expansion)
