"""The steps of regions: an allocation for each chunk, a range, and each chunk's mapping with its rights.

Those of thousands of alike chunks are runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Literal

from hipplan.errors import Span
from hipplan.kinds.allocation.live import CreateAllocation
from hipplan.kinds.mapping.live import Map, SetAccess, rights_of
from hipplan.language.host import HOST, is_host, node_of
from hipplan.language.model import Allocation, Attached, Reservation
from hipplan.language.objects import (
    AllocationLine,
    AllocationsByName,
    MappingLine,
    Objects,
    ResolvedAllocation,
    ResolvedMapping,
    ResolvedReservation,
)
from hipplan.program.chunk_runs import MappingRun, MemoryRun
from hipplan.program.chunks import Chunks
from hipplan.program.on_demand import Repeated
from hipplan.program.ranges import PlacedLine
from hipplan.program.regions import PlacedRegion, mapping_of, memory_of
from hipplan.program.series import counted, segments
from hipplan.program.steps import Step

Kind = tuple[str, int]
"""(device, bytes) of a chunk."""


class RegionSteps:
    """The steps of a region."""

    def __init__(
        self,
        placed: PlacedRegion,
        kinds: Mapping[Kind, Callable[[str], Step]],
        ordinals: Mapping[str, int],
        origin: Span | None,
    ) -> None:
        """kinds: what makes the memory of a chunk, from its name. ordinals: of the devices. origin: of the region."""
        self._placed = placed
        self._name = placed.region.name
        self._kinds = kinds
        self._rights = {kind: rights_of(placed.region.access_to(kind[0]), ordinals) for kind in kinds}
        self._origin = origin

    def memory(self) -> Iterator[Sequence[Step]]:
        """A step for the memory of each chunk, in parts."""
        return (self._run(*part) or [*self._memory(*part)] for part in _parts(self._placed.chunks))

    def mappings(self) -> Iterator[Sequence[Step]]:
        """The steps that map each chunk and give rights on it, in parts."""
        at = 0
        for first, part in _parts(self._placed.chunks):
            memory = self._run(first, part)
            rights = [self._rights[kind] for kind in part.cycle] if isinstance(part, Repeated) else []
            if memory is not None and all(map(bool, rights)) == any(rights):
                yield MappingRun(memory, at, self._origin, rights)
            else:
                yield [*self._mappings(first, part, at)]
            at += sum(many * size for (_, size), many in counted(part))

    def _run(self, first: int, part: Chunks) -> MemoryRun | None:
        """The memory of alike chunks; None for others. first: the number of the first one."""
        if not isinstance(part, Repeated) or len({size for _, size in part.cycle}) > 1:
            return None
        kinds = [*self._memory(first, part.cycle)]
        made = [step for step in kinds if isinstance(step, CreateAllocation)]
        return MemoryRun(self._name, range(first, first + len(part)), made)

    def _memory(self, first: int, part: Chunks) -> Iterator[Step]:
        return (self._kinds[kind](memory_of(self._name, number)) for number, kind in enumerate(part, first))

    def _mappings(self, first: int, part: Chunks, at: int) -> Iterator[Step]:
        for number, kind in enumerate(part, first):
            name, memory, size = mapping_of(self._name, number), memory_of(self._name, number), kind[1]
            yield Map(name, self._origin, self._name, memory, at, size, size)
            if rights := self._rights[kind]:
                yield SetAccess(name, self._origin, rights)
            at += size


def with_regions(objects: Objects, regions: Mapping[str, PlacedRegion]) -> Objects:
    """The objects with a reservation for each region, and an allocation and a mapping for the first of its chunks of
    each kind: what the rules about them need to see."""
    allocations, reservations = [*objects.allocations.lines], dict(objects.reservations)
    for name, placed in regions.items():
        first: dict[Kind, int] = {}
        for number, kind in _first_chunks(placed.chunks):
            first.setdefault(kind, number)
        memory = allocations_of(placed)
        allocations += [AllocationLine(memory[kind], [memory_of(name, number)]) for kind, number in first.items()]
        lines = tuple(mapping_at(placed, number, 0) for number in first.values())
        reservations[name] = ResolvedReservation(name, range_of(placed), lines, placed.region.path)
    return replace(objects, allocations=AllocationsByName(allocations), reservations=reservations)


def all_mappings(placed: PlacedRegion) -> Iterator[PlacedLine]:
    """The mapping of each chunk."""
    at = 0
    for number, (_, size) in enumerate(placed.chunks):
        yield PlacedLine(mapping_at(placed, number, at), at, size)
        at += size


def mapping_at(placed: PlacedRegion, number: int, at: int) -> MappingLine:
    """The mapping of a chunk. at: its offset in bytes."""
    region, (device, size) = placed.region, placed.chunks[number]
    name, memory, access = mapping_of(region.name, number), memory_of(region.name, number), region.access_to(device)
    mapping = ResolvedMapping(name, memory, at, number > 0, size, True, access, region.path, region.spec.attached)
    return MappingLine(mapping, [memory], number)


def range_of(placed: PlacedRegion) -> Reservation:
    """The reservation of a region."""
    spec = placed.region.spec
    return _reservation(spec.range_size, spec.alignment, spec.seal, spec.attached)


def allocations_of(placed: PlacedRegion) -> dict[Kind, ResolvedAllocation]:
    """The allocation that all chunks of a kind have in common."""
    spec, path = placed.region.spec, placed.region.path
    shareable: Literal["none", "posix_fd"] = "none" if spec.map is None else "posix_fd"
    made: dict[Kind, ResolvedAllocation] = {}
    for (device, size), _ in counted(placed.chunks):
        where = HOST if is_host(device) else device
        memory = _allocation(where, node_of(device), size, shareable, spec.rdma)
        made.setdefault((device, size), ResolvedAllocation(memory, where, path))
    return made


@lru_cache(maxsize=1024)  # thousands of regions have the same, and pydantic takes 20 us for each
def _reservation(size: int | None, alignment: int | None, seal: bool, attached: Attached) -> Reservation:
    return Reservation.model_construct(size=size, alignment=alignment, seal=seal, attached=attached)


@lru_cache(maxsize=1024)
def _allocation(
    device: str, numa_node: int | None, size: int, shareable: Literal["none", "posix_fd"], rdma: bool
) -> Allocation:
    return Allocation.model_construct(device=device, numa_node=numa_node, size=size, shareable=shareable, rdma=rdma)


def _parts(chunks: Chunks) -> Iterator[tuple[int, Chunks]]:
    """(number of the first chunk, chunks) of each part."""
    first = 0
    for part in segments(chunks):
        yield first, part
        first += len(part)


def _first_chunks(chunks: Chunks) -> Iterator[tuple[int, Kind]]:
    """(number, kind) of some of the chunks in their order, among them the first of each kind."""
    for first, part in _parts(chunks):
        yield from enumerate(part.cycle if isinstance(part, Repeated) else part, first)
