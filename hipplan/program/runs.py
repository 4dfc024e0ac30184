"""Runs: the steps of alike objects, made when they are asked for.

Thousands of chunks of a region differ in their number and their offset, and in their device by a pattern; what `count:`
makes differs in its number (count_runs.py). So a program keeps a run for them, and what it knows of all steps
(Program.makers, slots and others) is arithmetic for those of a run.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, count, cycle, repeat
from operator import eq
from typing import Any, TypeAlias, cast

from hipplan.errors import Span
from hipplan.kinds.allocation.live import CreateAllocation
from hipplan.kinds.mapping.live import Map, Rights, SetAccess
from hipplan.program.numbered import OF_MAPPING, OF_MEMORY, Stem
from hipplan.program.on_demand import OnDemand, turned
from hipplan.program.regions import mapping_of, memory_of
from hipplan.program.series import Parts, Series, segments
from hipplan.program.steps import Step, named


class AlikeSteps(OnDemand[Step]):
    """Steps of which there are a few kinds."""

    __slots__ = ()

    @abstractmethod
    def alike(self) -> Iterator[tuple[Step, int]]:
        """(step, how many) of steps that differ from it only in name, memory and offset."""


class Run(AlikeSteps):
    """The steps of alike objects with consecutive numbers in their names."""

    __slots__ = ("numbers", "of")

    sign: str
    """What stands between the name and the number, as in the stems of stem_of()."""

    def __init__(self, of: str, numbers: range) -> None:
        """of: the name before the numbers."""
        self.of = of
        self.numbers = numbers

    @property
    def stem(self) -> Stem:
        """What the names of its objects have in common."""
        return self.of, self.sign

    @abstractmethod
    def name_of(self, number: int) -> str:
        """The name of an object."""

    @abstractmethod
    def made(self, number: int) -> Step:
        """The step that makes an object."""

    @abstractmethod
    def number_of(self, number: int) -> int:
        """The number of that step in the run."""

    @abstractmethod
    def as_made(self, made: Callable[[Step], Step]) -> Sequence[Step]:
        """The steps as a function makes them, which is called for one of each kind."""


class ChunkRun(Run):
    """The steps of consecutive chunks of a region: for its memory, or for its mappings and the rights on them."""

    __slots__ = ("chunks", "region")

    of_memory: bool

    def __init__(self, region: str, chunks: range) -> None:
        """chunks: their numbers."""
        super().__init__(region, chunks)
        self.region, self.chunks = region, chunks  # properties would cost a call for each chunk

    @abstractmethod
    def owner(self, chunk: int) -> int:
        """The device whose memory the object of a chunk is, as of facts.Owners."""

    @property
    @abstractmethod
    def memory_size(self) -> int:
        """Bytes of each chunk."""

    def name_of(self, number: int) -> str:
        return memory_of(self.of, number) if self.of_memory else mapping_of(self.of, number)


class MemoryRun(ChunkRun):
    """A step that creates an allocation for each chunk."""

    __slots__ = ("_makers", "kinds")
    of_memory = True
    sign = OF_MEMORY

    def __init__(self, region: str, chunks: range, kinds: Sequence[CreateAllocation]) -> None:
        """kinds: the steps of the first chunks, which the others repeat."""
        super().__init__(region, chunks)
        self.kinds = tuple(kinds)
        self._makers = tuple(named(kind) for kind in kinds)

    def __len__(self) -> int:
        return len(self.chunks)

    def item(self, number: int) -> Step:
        return self._makers[number % len(self.kinds)](memory_of(self.region, self.chunks[number]))

    def __iter__(self) -> Iterator[Step]:
        region = self.region
        return (make(memory_of(region, chunk)) for chunk, make in zip(self.chunks, cycle(self._makers)))

    def made(self, number: int) -> Step:
        return self.item(number - self.chunks.start)

    def number_of(self, number: int) -> int:
        return number - self.chunks.start

    def as_made(self, made: Callable[[Step], Step]) -> MemoryRun:
        return MemoryRun(self.region, self.chunks, [cast(CreateAllocation, made(kind)) for kind in self.kinds])

    def owner(self, chunk: int) -> int:
        return self.kinds[(chunk - self.chunks.start) % len(self.kinds)].owner

    @property
    def memory_size(self) -> int:
        return self.kinds[0].size

    def first(self, count: int) -> Sequence[Step]:
        return self.between(0, count)

    def between(self, first: int, end: int) -> MemoryRun:
        """The memory of some of its chunks. first, end: counted from its first chunk."""
        few = range(first, min(end, first + len(self.kinds)))
        return MemoryRun(self.region, self.chunks[first:end], [cast(CreateAllocation, self.item(n)) for n in few])

    def cut(self, first: int, end: int) -> Iterable[Sequence[Step]]:
        return (self.between(first, end),)

    def continued_by(self, other: MemoryRun) -> MemoryRun | None:
        here = self.region, self.chunks.stop, len(self.kinds)
        if here != (other.region, other.chunks.start, len(other.kinds)):
            return None
        goes_on = [make(kind.name) for make, kind in zip(turned(self._makers, len(self)), other.kinds, strict=True)]
        whole = range(self.chunks.start, other.chunks.stop)
        return MemoryRun(self.region, whole, self.kinds) if tuple(goes_on) == other.kinds else None

    def same_as(self, other: MemoryRun) -> bool:
        return (self.region, self.chunks, self.kinds) == (other.region, other.chunks, other.kinds)

    def alike(self) -> Iterator[tuple[Step, int]]:
        for place, _ in enumerate(self.kinds):
            if chunks := self.chunks[place :: len(self.kinds)]:
                yield self.made(chunks[0]), len(chunks)


class MappingRun(ChunkRun):
    """A step that maps each chunk, and one that gives rights on it unless nobody has any."""

    __slots__ = ("memory", "offset", "origin", "rights", "size")
    of_memory = False
    sign = OF_MAPPING

    def __init__(self, memory: MemoryRun, offset: int, origin: Span | None, rights: Sequence[Rights]) -> None:
        """memory: of the chunks, which have one size. offset: of the first one in the range, in bytes. rights: on the
        first chunks, which the others repeat; all of them are empty, or none is."""
        super().__init__(memory.region, memory.chunks)
        self.memory = memory
        self.size = memory.memory_size
        self.offset = offset
        self.origin = origin
        self.rights = tuple(rights)

    @property
    def memory_size(self) -> int:
        return self.size

    @property
    def each(self) -> int:
        """The number of steps for a chunk."""
        return 2 if self.rights[0] else 1

    def __len__(self) -> int:
        return self.each * len(self.chunks)

    def item(self, number: int) -> Step:
        place, is_access = divmod(number, self.each)
        chunk = self.chunks[place]
        return self.access(chunk) if is_access else self.made(chunk)

    def __iter__(self) -> Iterator[Step]:
        region, origin, size = self.region, self.origin, self.size
        offsets = count(self.offset, size)
        for chunk, at, rights in zip(self.chunks, offsets, cycle(self.rights)):
            name = mapping_of(region, chunk)
            yield Map(name, origin, region, memory_of(region, chunk), at, size, size)
            if rights:
                yield SetAccess(name, origin, rights)

    def offset_of(self, chunk: int) -> int:
        """Where in the range a chunk is mapped, in bytes."""
        return self.offset + (chunk - self.chunks.start) * self.size

    def made(self, number: int) -> Map:
        offset = self.offset_of(number)
        memory, name = memory_of(self.region, number), mapping_of(self.region, number)
        return Map(name, self.origin, self.region, memory, offset, self.size, self.size)

    def owner(self, chunk: int) -> int:
        return self.memory.owner(chunk)

    def access(self, chunk: int) -> SetAccess:
        """The step that gives the rights on a chunk."""
        rights = self.rights[(chunk - self.chunks.start) % len(self.rights)]
        return SetAccess(mapping_of(self.region, chunk), self.origin, rights)

    def number_of(self, number: int) -> int:
        return (number - self.chunks.start) * self.each

    def as_made(self, made: Callable[[Step], Step]) -> MappingRun:
        few = self.chunks[: len(self.rights)] if self.rights[0] else ()
        rights = [cast(SetAccess, made(self.access(chunk))).rights for chunk in few]
        origin = made(self.made(self.chunks.start)).origin
        return MappingRun(self.memory.as_made(made), self.offset, origin, rights or [()])

    def first(self, count: int) -> Sequence[Step]:
        whole, more = divmod(count, self.each)
        return self.between(0, whole) if whole and not more else super().first(count)

    def between(self, first: int, end: int) -> MappingRun:
        """The mappings of some of its chunks. first, end: counted from its first chunk."""
        memory, offset = self.memory.between(first, end), self.offset + first * self.size
        return MappingRun(memory, offset, self.origin, turned(self.rights, first)[: end - first])

    def cut(self, first: int, end: int) -> Iterable[Sequence[Step]]:
        low, high = -(-first // self.each), end // self.each
        if low >= high:
            return super().cut(first, end)
        before, after = self[first : low * self.each], self[high * self.each : end]
        return [part for part in (before, self.between(low, high), after) if part]

    def continued_by(self, other: MappingRun) -> MappingRun | None:
        memory = self.memory.continued_by(other.memory)
        end = self.offset + len(self.chunks) * self.size, self.origin, turned(self.rights, len(self.chunks))
        if memory is None or end != (other.offset, other.origin, other.rights):
            return None
        return MappingRun(memory, self.offset, self.origin, self.rights)

    def without_rights(self) -> MappingRun:
        """The steps that map its chunks, alone."""
        return MappingRun(self.memory, self.offset, self.origin, [()])

    def same_as(self, other: MappingRun) -> bool:
        mine, others = (self.offset, self.origin, self.rights), (other.offset, other.origin, other.rights)
        return mine == others and self.memory.same_as(other.memory)

    def alike(self) -> Iterator[tuple[Step, int]]:
        yield self.made(self.chunks[0]), len(self.chunks)
        for place, rights in enumerate(self.rights):
            if rights and (chunks := self.chunks[place :: len(self.rights)]):
                yield self.access(chunks[0]), len(chunks)


def alike(some_steps: Sequence[Step]) -> Iterator[tuple[Step, int]]:
    """(step, how many) for all steps: those of a run that differ only in name, memory and offset count as one."""
    parts = [zip(part, repeat(1)) if isinstance(part, _SINGLE) else part.alike() for part in _parts(some_steps)]
    return chain.from_iterable(parts)


def plain(some_steps: Sequence[Step]) -> Iterable[Step]:
    """The steps that are in no run."""
    parts = [part for part in _parts(some_steps) if isinstance(part, _SINGLE)]
    return parts[0] if len(parts) == 1 else chain.from_iterable(parts)


def written_out(some_steps: Sequence[Step]) -> Iterator[tuple[int, Sequence[Step]]]:
    """(number of the first, steps) for those that are in no run."""
    number = 0
    for part in _parts(some_steps):
        if isinstance(part, _SINGLE):
            yield number, part
        number += len(part)


_Part: TypeAlias = tuple[Step, ...] | list[Step] | AlikeSteps
_SINGLE = (tuple, list)
"""What parts are that are written out. To ask whether a part is of an abstract class would take longer."""


_parts: Callable[[Sequence[Step]], Iterable[_Part]] = cast(Any, segments)


def without(some_steps: Sequence[Step], goes: Callable[[Step], bool], regions: Container[str]) -> Series[Step]:
    """The steps that stay. goes: whether a step does not. regions: those whose runs may have such steps; other runs are
    not written out."""
    stay: Parts[Step] = Parts()
    for segment in segments(some_steps):
        whole = isinstance(segment, Run) and segment.of not in regions
        stay.extend(segment if whole else [step for step in segment if not goes(step)])
    return stay.series()


def in_parts(
    some_steps: Sequence[Step],
    of_single: Callable[[Iterable[Step]], Iterable[Step]],
    of_run: Callable[[Any], Sequence[Step]],
) -> Sequence[Step]:
    """The steps that these make: of the steps that are in no run, and of each run."""
    made = [(*of_single(part),) if isinstance(part, _SINGLE) else of_run(part) for part in _parts(some_steps)]
    return made[0] if len(made) == 1 else Series.joined(made)


def each_as(made: Callable[[Step], Step], some_steps: Sequence[Step]) -> Series[Step]:
    """The steps as `made` makes them. What it changes may depend on a step's kind, device and rights, but not on its
    name or place: of a run it is called for one step of each kind."""
    parts = (
        segment.as_made(made) if isinstance(segment, Run) else [*map(made, segment)] for segment in segments(some_steps)
    )
    return Series.joined(parts)


def with_runs_of(regions: Container[str], some_steps: Sequence[Step]) -> list[Step]:
    """All steps but those in runs of other regions than these."""
    parts = (part for part in segments(some_steps) if not isinstance(part, ChunkRun) or part.region in regions)
    return [*chain.from_iterable(parts)]


def with_rights(some_steps: Sequence[Step], given: Mapping[int, SetAccess]) -> Series[Step]:
    """The steps with others that give rights. given: by number. A run stays one where all of its chunks get rights in
    the pattern that it has."""
    parts: list[Sequence[Step]] = []
    rest, number = dict(given), 0
    for segment in segments(some_steps):
        parts.append(segment)
        if isinstance(segment, MappingRun) and segment.rights[0]:
            numbers = range(number + 1, number + len(segment), segment.each)
            rights = [given[place].rights for place in numbers] if all(place in given for place in numbers) else []
            pattern = rights[: len(segment.rights)]
            if rights and all(pattern) and all(map(eq, rights, cycle(pattern))):
                parts[-1] = MappingRun(segment.memory, segment.offset, segment.origin, pattern)
                for place in numbers:
                    del rest[place]
        number += len(segment)
    made = Series(some_steps) if len(rest) == len(given) else Series.joined(parts)
    return made.with_changed(rest) if rest else made


def runs(some_steps: Sequence[Step]) -> Iterator[tuple[int, Run]]:
    """(number of its first step, run) for each run."""
    number = 0
    for segment in segments(some_steps):
        if isinstance(segment, Run):
            yield number, segment
        number += len(segment)


def chunk_runs(some_steps: Sequence[Step]) -> Iterator[tuple[int, ChunkRun]]:
    """(number of its first step, run) for each run of chunks."""
    return ((number, run) for number, run in runs(some_steps) if isinstance(run, ChunkRun))
