"""Runs of what `count:` makes of a line of the plan: name.0, name.1 and so on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import cast

from hipplan.errors import Span
from hipplan.kinds.mapping.live import Rights
from hipplan.program.mapped_runs import MappedRun
from hipplan.program.numbered import OF_COUNT
from hipplan.program.runs import Run, runs
from hipplan.program.steps import Step, named


class CountRun(Run):
    """A step that makes each object: an allocation or a buffer."""

    __slots__ = ("_make", "kind", "makes")
    sign = OF_COUNT

    def __init__(self, of: str, numbers: range, kind: Step) -> None:
        """kind: the step of the first."""
        super().__init__(of, numbers)
        self.kind = kind
        self.makes = kind.makes
        self._make = named(kind)

    def __len__(self) -> int:
        return len(self.numbers)

    def item(self, number: int) -> Step:
        return self.made(self.numbers[number])

    def __iter__(self) -> Iterator[Step]:
        return map(self.made, self.numbers)

    def name_of(self, number: int) -> str:
        return f"{self.of}.{number}"

    def made(self, number: int) -> Step:
        return self._make(self.name_of(number))

    def number_of(self, number: int) -> int:
        return number - self.numbers.start

    def owner(self, number: int) -> int | None:
        return self.kind.owner

    def as_made(self, made: Callable[[Step], Step]) -> CountRun:
        return CountRun(self.of, self.numbers, made(self.kind))

    def alike(self) -> Iterator[tuple[Step, int]]:
        yield self.kind, len(self.numbers)

    def same_as(self, other: CountRun) -> bool:
        return (self.of, self.numbers, self.kind) == (other.of, other.numbers, other.kind)

    def between(self, first: int, end: int) -> CountRun:
        return CountRun(self.of, self.numbers[first:end], self.item(first))

    def first(self, count: int) -> Sequence[Step]:
        return self.between(0, count)

    def cut(self, first: int, end: int) -> Iterable[Sequence[Step]]:
        return (self.between(first, end),)

    def continued_by(self, other: CountRun) -> CountRun | None:
        goes_on = (self.of, self.numbers.stop, self._make(other.kind.name))
        if goes_on != (other.of, other.numbers.start, other.kind):
            return None
        return CountRun(self.of, range(self.numbers.start, other.numbers.stop), self.kind)


class CountMappingRun(MappedRun):
    """The mappings of allocations that `count:` makes, of one line of the plan."""

    __slots__ = ()
    memory: CountRun

    def __init__(
        self,
        of: str,
        first: int,
        memory: CountRun,
        offset: int,
        sizes: tuple[int, int],
        origin: Span | None,
        rights: Rights,
    ) -> None:
        """of: the reservation. first: the number of the first mapping there. sizes: (size, asked). The others as of
        MappedRun; all mappings have the same rights."""
        super().__init__(of, range(first, first + len(memory)))
        self.memory = memory
        self.offset = offset
        self.size, self.asked = sizes
        self.origin = origin
        self.rights = (rights,)

    def _of(self, memory: Run, offset: int, origin: Span | None, rights: Sequence[Rights]) -> CountMappingRun:
        counted, sizes = cast(CountRun, memory), (self.size, self.asked)
        first = self.numbers.start + counted.numbers.start - self.memory.numbers.start
        return CountMappingRun(self.of, first, counted, offset, sizes, origin, rights[0])


def count_runs(some_steps: Sequence[Step]) -> dict[str, CountRun]:
    """The runs of what `count:` makes, by the name before the numbers."""
    return {run.of: run for _, run in runs(some_steps) if isinstance(run, CountRun)}


def count_mapping_runs(some_steps: Sequence[Step]) -> list[CountMappingRun]:
    """The runs of mappings of what `count:` makes."""
    return [run for _, run in runs(some_steps) if isinstance(run, CountMappingRun)]
