"""What the lines of a plan make, by name. What `count` makes of a line is made when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Generic, Protocol, TypeVar

from hipplan.language.counted import LineNames

Made = TypeVar("Made", covariant=True)


class PlanLine(Protocol[Made]):
    """A line of the plan: an object, or those that `count` makes, which differ in their names."""

    @property
    def names(self) -> LineNames: ...

    def member(self, name: str, /) -> Made:
        """The object with this name."""


SomeLine = TypeVar("SomeLine", bound=PlanLine[object])


class ByLine(Mapping[str, Made], Generic[SomeLine, Made]):
    """The objects of some lines."""

    def __init__(self, lines: Iterable[SomeLine] = ()) -> None:
        self.lines = tuple(lines)
        self._by_name: dict[str, SomeLine] = {}
        self._counted: dict[str, SomeLine] = {}
        for line in self.lines:
            if isinstance(line.names, list):
                self._by_name.update(dict.fromkeys(line.names, line))
            else:
                self._counted[line.names.of] = line

    def line_of(self, name: str) -> SomeLine:
        """The line of an object. Raises KeyError."""
        if (line := self._by_name.get(name)) is None:
            line = self._counted[name.rpartition(".")[0]]
            if name not in line.names:
                raise KeyError(name)
        return line

    def __getitem__(self, name: str) -> Made:
        made: Made = self.line_of(name).member(name)  # type: ignore[assignment]  # the lines are of this
        return made

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(line.names for line in self.lines)

    def __len__(self) -> int:
        return sum(len(line.names) for line in self.lines)
