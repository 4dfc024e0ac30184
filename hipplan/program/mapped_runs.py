"""Runs of mappings: of the memory of a run, one behind the other."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, cycle
from typing import TypeVar, cast

from hipplan.errors import Span
from hipplan.kinds.mapping.live import Map, Rights, SetAccess
from hipplan.program.numbered import OF_MAPPING
from hipplan.program.on_demand import turned
from hipplan.program.regions import mapping_of
from hipplan.program.runs import Run
from hipplan.program.steps import Step

Mapped = TypeVar("Mapped", bound="MappedRun")


class MappedRun(Run):
    """A step that maps the memory of each object of a run, and one that gives rights on it unless nobody has any. They
    are in one reservation, whose name is that before the numbers."""

    __slots__ = ("asked", "memory", "offset", "origin", "rights", "size")
    makes = "mapping"
    sign = OF_MAPPING

    memory: Run
    """What is mapped, in its order."""
    offset: int
    """Of the first mapping in the range, in bytes."""
    size: int
    """Bytes of each mapping, padded."""
    asked: int
    """Bytes of each that the plan requests."""
    origin: Span | None
    rights: tuple[Rights, ...]
    """On the first mappings, which the others repeat; all of them are empty, or none is."""

    @abstractmethod
    def _of(self: Mapped, memory: Run, offset: int, origin: Span | None, rights: Sequence[Rights]) -> Mapped:
        """Other mappings of the same sizes in the same range. memory: part of its own, or what follows it."""

    @property
    def prefixes(self) -> tuple[str, ...]:
        return self.of, self.memory.of

    @property
    def each(self) -> int:
        """The number of steps for a mapping."""
        return 2 if self.rights[0] else 1

    def __len__(self) -> int:
        return self.each * len(self.numbers)

    def item(self, number: int) -> Step:
        place, is_access = divmod(number, self.each)
        mapping = self.numbers[place]
        return self.access(mapping) if is_access else self.made(mapping)

    def __iter__(self) -> Iterator[Step]:
        of, origin, size, asked = self.of, self.origin, self.size, self.asked
        memory = map(self.memory.name_of, self.memory.numbers)
        for number, allocation, at, rights in zip(self.numbers, memory, count(self.offset, size), cycle(self.rights)):
            name = mapping_of(of, number)
            yield Map(name, origin, of, allocation, at, size, asked)
            if rights:
                yield SetAccess(name, origin, rights)

    def name_of(self, number: int) -> str:
        return mapping_of(self.of, number)

    def memory_number(self, number: int) -> int:
        """The number of what a mapping maps, in the run of its memory."""
        return number - self.numbers.start + self.memory.numbers.start

    def number_mapping(self, number: int) -> int:
        """The number of the mapping of what has this number in the run of its memory."""
        return number - self.memory.numbers.start + self.numbers.start

    def memory_name(self, number: int) -> str:
        """The allocation that a mapping maps."""
        return self.memory.name_of(self.memory_number(number))

    @property
    def end(self) -> int:
        """Where its last mapping ends in the range, in bytes."""
        return self.offset + len(self.numbers) * self.size

    def offset_of(self, number: int) -> int:
        """Where in the range a mapping is, in bytes."""
        return self.offset + (number - self.numbers.start) * self.size

    def made(self, number: int) -> Map:
        name, memory, offset = self.name_of(number), self.memory_name(number), self.offset_of(number)
        return Map(name, self.origin, self.of, memory, offset, self.size, self.asked)

    def owner(self, number: int) -> int:
        owner = self.memory.owner(self.memory_number(number))
        assert owner is not None, "it maps allocations"
        return owner

    def access(self, number: int) -> SetAccess:
        """The step that gives the rights on a mapping."""
        rights = self.rights[(number - self.numbers.start) % len(self.rights)]
        return SetAccess(self.name_of(number), self.origin, rights)

    def number_of(self, number: int) -> int:
        return (number - self.numbers.start) * self.each

    def as_made(self: Mapped, made: Callable[[Step], Step]) -> Mapped:
        few = self.numbers[: len(self.rights)] if self.rights[0] else ()
        rights = [cast(SetAccess, made(self.access(number))).rights for number in few]
        origin = made(self.made(self.numbers.start)).origin
        return self._of(self.memory.as_made(made), self.offset, origin, rights or [()])

    def first(self, count: int) -> Sequence[Step]:
        whole, more = divmod(count, self.each)
        return self.between(0, whole) if whole and not more else super().first(count)

    def between(self: Mapped, first: int, end: int) -> Mapped:
        memory, offset = self.memory.between(first, end), self.offset + first * self.size
        return self._of(memory, offset, self.origin, turned(self.rights, first)[: end - first])

    def cut(self, first: int, end: int) -> Iterable[Sequence[Step]]:
        low, high = -(-first // self.each), end // self.each
        if low >= high:
            return super().cut(first, end)
        before, after = self[first : low * self.each], self[high * self.each : end]
        return [part for part in (before, self.between(low, high), after) if part]

    def continued_by(self: Mapped, other: Mapped) -> Mapped | None:
        if type(self.memory) is not type(other.memory):
            return None
        memory = cast("Run | None", self.memory.continued_by(other.memory))
        goes_on = self.numbers.stop, self.end, self._sizes, turned(self.rights, len(self.numbers))
        if memory is None or goes_on != (other.numbers.start, other.offset, other._sizes, other.rights):
            return None
        return self._of(memory, self.offset, self.origin, self.rights)

    @property
    def _sizes(self) -> tuple[object, ...]:
        return self.of, self.size, self.asked, self.origin

    def without_rights(self: Mapped) -> Mapped:
        """The steps that map, alone."""
        return self._of(self.memory, self.offset, self.origin, [()])

    def with_pattern(self: Mapped, rights: Sequence[Rights]) -> Mapped:
        """The same mappings with other rights."""
        return self._of(self.memory, self.offset, self.origin, rights)

    def same_as(self, other: MappedRun) -> bool:
        mine = self.numbers, self.offset, self._sizes, self.rights
        if mine != (other.numbers, other.offset, other._sizes, other.rights):
            return False
        return type(self.memory) is type(other.memory) and self.memory.same_as(other.memory)

    def alike(self) -> Iterator[tuple[Step, int]]:
        yield self.made(self.numbers[0]), len(self.numbers)
        for place, rights in enumerate(self.rights):
            if rights and (numbers := self.numbers[place :: len(self.rights)]):
                yield self.access(numbers[0]), len(numbers)
