"""Runs of the chunks of a region."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import chain, cycle
from typing import cast

from hipplan.errors import Span
from hipplan.kinds.allocation.live import CreateAllocation
from hipplan.kinds.mapping.live import Rights
from hipplan.program.mapped_runs import MappedRun
from hipplan.program.numbered import OF_MEMORY
from hipplan.program.on_demand import turned
from hipplan.program.regions import memory_of
from hipplan.program.runs import Run, runs, written_out
from hipplan.program.series import segments
from hipplan.program.steps import Step, named


class ChunkRun(Run):
    """The steps of consecutive chunks of a region: for its memory, or for its mappings and the rights on them."""

    __slots__ = ()

    chunks: range
    """Their numbers. It is an attribute, as the region is: a property would cost a call for each chunk."""
    region: str

    @abstractmethod
    def owner(self, chunk: int) -> int: ...

    @property
    @abstractmethod
    def memory_size(self) -> int:
        """Bytes of each chunk."""


class MemoryRun(ChunkRun):
    """A step that creates an allocation for each chunk."""

    __slots__ = ("_makers", "chunks", "kinds", "region")
    makes = "allocation"
    sign = OF_MEMORY

    def __init__(self, region: str, chunks: range, kinds: Sequence[CreateAllocation]) -> None:
        """kinds: the steps of the first chunks, which the others repeat."""
        super().__init__(region, chunks)
        self.region, self.chunks = region, chunks
        self.kinds = tuple(kinds)
        self._makers = tuple(named(kind) for kind in kinds)

    def __len__(self) -> int:
        return len(self.chunks)

    def item(self, number: int) -> Step:
        return self._makers[number % len(self.kinds)](memory_of(self.region, self.chunks[number]))

    def __iter__(self) -> Iterator[Step]:
        region = self.region
        return (make(memory_of(region, chunk)) for chunk, make in zip(self.chunks, cycle(self._makers)))

    def name_of(self, number: int) -> str:
        return memory_of(self.of, number)

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


class MappingRun(MappedRun, ChunkRun):
    """A step that maps each chunk, and one that gives rights on it unless nobody has any."""

    __slots__ = ("chunks", "region")
    memory: MemoryRun

    def __init__(self, memory: MemoryRun, offset: int, origin: Span | None, rights: Sequence[Rights]) -> None:
        """memory: of the chunks, which have one size. offset, rights: as of MappedRun."""
        super().__init__(memory.region, memory.chunks)
        self.region, self.chunks = memory.region, memory.chunks
        self.memory = memory
        self.size = self.asked = memory.memory_size
        self.offset = offset
        self.origin = origin
        self.rights = tuple(rights)

    def _of(self, memory: Run, offset: int, origin: Span | None, rights: Sequence[Rights]) -> MappingRun:
        return MappingRun(cast(MemoryRun, memory), offset, origin, rights)

    @property
    def memory_size(self) -> int:
        return self.size


def with_runs_of(regions: Container[str], some_steps: Sequence[Step]) -> list[Step]:
    """All steps but those in runs of other regions than these."""
    parts = (part for part in segments(some_steps) if not isinstance(part, ChunkRun) or part.region in regions)
    return [*chain.from_iterable(parts)]


def chunk_runs(some_steps: Sequence[Step]) -> Iterator[tuple[int, ChunkRun]]:
    """(number of its first step, run) for each run of chunks."""
    return ((number, run) for number, run in runs(some_steps) if isinstance(run, ChunkRun))


_FEW = 4


def loose_chunks(some_steps: Sequence[Step], regions: Container[str]) -> int:
    """How many chunks are in no run. A run counts as a few where it is not the only one of its region."""
    in_runs = [run.region for _, run in chunk_runs(some_steps) if isinstance(run, MemoryRun)]
    more = len(in_runs) - len({*in_runs})
    return sum(1 for _ in memory_in_no_run(some_steps, regions)) + _FEW * more


def memory_in_no_run(some_steps: Sequence[Step], regions: Container[str]) -> Iterator[tuple[str, str]]:
    """(region, name) of the memory of each chunk that is in no run."""
    for _, part in written_out(some_steps):
        for step in part:
            if type(step) is CreateAllocation and (region := step.name.partition(OF_MEMORY)[0]) in regions:
                yield region, step.name
