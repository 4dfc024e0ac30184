"""What is known of objects by their names: of those in runs it is made when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

from hipplan.program.numbered import Stem, stem_of
from hipplan.program.runs import Run

Value = TypeVar("Value")


class OfMember(Protocol):
    """What ByName returns for the objects of a run."""

    def __call__(self, run: Any, number: int, /) -> Any: ...


class ByName(Mapping[str, Value], Generic[Value]):
    """Something about each object by its name. What is about the objects of runs is made when it is asked for."""

    def __init__(self, known: dict[str, Value], of_runs: Iterable[tuple[Run, OfMember]]) -> None:
        """known: about objects of no run. of_runs: (run, what is about each of its objects)."""
        self._known = known
        self._runs: dict[Stem, list[tuple[Run, OfMember]]] = {}
        self._count = len(known)
        for run, of_member in of_runs:
            self._runs.setdefault(run.stem, []).append((run, of_member))
            self._count += len(run.numbers)

    def __getitem__(self, name: str) -> Value:
        if name in self._known:
            return self._known[name]
        if (member := stem_of(name)) is not None:
            stem, number = member
            for run, of_member in self._runs.get(stem, ()):
                if number in run.numbers:
                    value: Value = of_member(run, number)
                    return value
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        yield from self._known
        for of_stem in self._runs.values():
            for run, _ in of_stem:
                yield from map(run.name_of, run.numbers)

    def __len__(self) -> int:
        return self._count
