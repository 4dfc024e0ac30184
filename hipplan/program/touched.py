"""The part of two programs that a change is about: without what is equal in both and depends on nothing else. Pure.

To compare thousands of chunks that stay would cost more than the change. So most of its preparation sees this part. Of
a region that becomes larger or smaller, it has only the first and the last few of the chunks that stay: they tell who
may use it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from operator import attrgetter
from typing import NamedTuple

from hipplan.kinds.lives import BUFFERS
from hipplan.program import steps
from hipplan.program.chunk_runs import ChunkRun, MappingRun, MemoryRun, chunk_runs
from hipplan.program.count_runs import CountMappingRun, CountRun
from hipplan.program.equal_counts import (
    NOTHING_COUNTED,
    EqualCounts,
    EqualMappings,
    equal_counts,
    is_equal_buffer,
    is_same_range,
)
from hipplan.program.numbered import outer_name, stem_of
from hipplan.program.program import Program
from hipplan.program.regions import PlacedRegion, mapping_of, memory_of
from hipplan.program.runs import plain
from hipplan.program.series import Parts, segments


class EqualChunks(NamedTuple):
    """Chunks of a region that are equal in both programs."""

    numbers: range
    size: int
    """Bytes of each; the first chunk of the region is at 0."""

    def has(self, offset: int) -> bool:
        """Whether the chunk at this offset is one of them."""
        return offset % self.size == 0 and offset // self.size in self.numbers


@dataclass(frozen=True)
class Touched:
    """Two programs without what is equal in both."""

    old: Program
    new: Program
    regions: frozenset[str]
    """Regions that are left out."""
    buffers: frozenset[str]
    """Buffers that are left out."""
    chunks: Mapping[str, EqualChunks]
    """Chunks that are left out, of regions that are not."""
    counts: EqualCounts
    """Members of lines with `count:` that are left out, and their mappings."""
    whole: tuple[Program, Program]
    """The old and the new program with them."""

    def leaves_out(self, kind: object, name: str, offset: int = -1) -> bool:
        """Whether an object is left out. name, offset: of a mapping its range, and its place there."""
        if kind == "allocation":
            region, sign, number = name.partition("#")
            if sign:
                return region in self.regions or self._is_alike(region, number)
            return self._is_counted(name)
        if kind == "mapping" and name in self.chunks:
            return self.chunks[name].has(offset)
        if kind == "mapping" and name in self.counts.mappings:
            return any(equal.has(offset) for equal in self.counts.mappings[name])
        if kind in ("reservation", "mapping"):
            return name in self.regions
        return name in self.buffers or (kind in BUFFERS and self._is_counted(name))

    def _is_counted(self, name: str) -> bool:
        (of, _), number = stem_of(name) or (("", ""), 0)
        return number in self.counts.members.get(of, ())

    def _is_alike(self, region: str, number: str) -> bool:
        return region in self.chunks and number.isdecimal() and int(number) in self.chunks[region].numbers

    def __len__(self) -> int:
        """The number of objects that are left out."""
        new = self.whole[1]
        of_regions = sum(1 + 2 * len(new.regions[name].chunks) for name in self.regions)
        of_chunks = 2 * sum(len(alike.numbers) for alike in self.chunks.values())
        of_counts = sum(map(len, self.counts.members.values())) + sum(len(equal.numbers) for _, equal in self._mapped())
        return len(self.buffers) + of_regions + of_chunks + of_counts

    def bytes_mapped(self, reservation: str) -> int:
        """How many bytes mappings take that are left out of a range that is not."""
        return sum(len(equal.numbers) * equal.size for equal in self.counts.mappings.get(reservation, ()))

    def _mapped(self) -> Iterator[tuple[str, EqualMappings]]:
        """(reservation, mappings) of what `count:` makes."""
        return ((of, equal) for of, mappings in self.counts.mappings.items() for equal in mappings)

    def slots(self) -> Iterator[tuple[int, int, int]]:
        """(slot in the new program, slot in the old one, how many) of consecutive objects that are left out."""
        old, new = self.whole
        for name in (*self.buffers, *self.regions):
            yield new.slots[name], old.slots[name], 1
        for region, alike in self.chunks.items():
            for name_of in (memory_of, mapping_of):
                first = name_of(region, alike.numbers.start)
                yield new.slots[first], old.slots[first], len(alike.numbers)
        counted = [(f"{of}.{numbers.start}", len(numbers)) for of, numbers in self.counts.members.items()]
        counted += [(mapping_of(of, equal.numbers.start), len(equal.numbers)) for of, equal in self._mapped()]
        for first, count in counted:
            yield new.slots[first], old.slots[first], count
        in_old, in_new = _by_region(old), _by_region(new)
        for region in self.regions:
            for of_memory, name_of in ((True, memory_of), (False, mapping_of)):
                both = in_old.get((region, of_memory), ()), in_new.get((region, of_memory), ())
                for chunks in _stretches(*both, len(new.regions[region].chunks)):
                    first = name_of(region, chunks.start)
                    yield new.slots[first], old.slots[first], len(chunks)


def _by_region(program: Program) -> dict[tuple[str, bool], list[range]]:
    """(region, whether of its memory) -> the chunks of each of its runs."""
    chunks: dict[tuple[str, bool], list[range]] = {}
    for _, run in chunk_runs(program.steps):
        chunks.setdefault((run.region, run.makes == "allocation"), []).append(run.chunks)
    return chunks


def _stretches(old: Sequence[range], new: Sequence[range], count: int) -> Iterator[range]:
    """All chunks, `count` in number: those in a run of both programs together, others by themselves. old, new: the
    chunks of each run."""
    overlaps = (range(max(was.start, now.start), min(was.stop, now.stop)) for was, now in product(old, new))
    after = 0
    for chunks in (*sorted(filter(None, overlaps), key=attrgetter("start")), range(count, count)):
        yield from (range(chunk, chunk + 1) for chunk in range(after, chunks.start))
        if chunks:
            yield chunks
        after = chunks.stop


def touched(old: Program, new: Program, renewed: Set[str]) -> Touched:
    """renewed: names of objects that are recreated although they do not differ."""
    is_plain = not any(program.contents or program.parts for program in (old, new))
    if not is_plain or old.devices != new.devices:
        return Touched(old, new, frozenset(), frozenset(), {}, NOTHING_COUNTED, (old, new))
    stay = [*_in_same_range(old, new, renewed)]
    regions = frozenset(name for name in stay if _is_alike(old.regions[name], new.regions[name]))
    chunks = dict(_alike_chunks(old, new, [name for name in stay if name not in regions]))
    counts = equal_counts(old, new, renewed)
    buffers = frozenset(_equal_buffers(old, new, renewed))
    if not (regions or buffers or chunks or counts.members):
        return Touched(old, new, regions, buffers, chunks, counts, (old, new))
    without = partial(_without, names=regions | buffers, chunks=chunks, counts=counts)
    return Touched(without(old), without(new), regions, buffers, chunks, counts, (old, new))


def _in_same_range(old: Program, new: Program, renewed: Set[str]) -> Iterator[str]:
    """The regions in the same range of addresses whose steps follow from the region and its devices."""
    differ = {outer_name(name) for name in (*old.sealed, *new.sealed, *renewed)}
    for asleep in (old.sleeping, new.sleeping):
        differ |= {outer_name(step.name) for step in plain(asleep)} | {run.region for _, run in chunk_runs(asleep)}
    for name in new.regions:
        if (
            name in old.regions
            and name not in differ
            and name not in new.shared
            and name not in old.shared
            and is_same_range(old.makers[name], new.makers[name])
        ):
            yield name


def _alike_chunks(old: Program, new: Program, regions: Collection[str]) -> Iterator[tuple[str, EqualChunks]]:
    """(region, chunks): those in the first runs of a region that are equal in both programs, without the first few and
    the last."""
    before, after = (_first_runs(program) if regions else {} for program in (old, new))
    for region in regions:
        was, now = before.get(region), after.get(region)
        if was is None or now is None or _bare(*was) != _bare(*now):
            continue
        period = max(len(was[0].kinds), len(was[1].rights))
        numbers = range(period, min(len(run.chunks) for run in (*was, *now)) - period)
        if numbers:
            yield region, EqualChunks(numbers, was[1].size)


def _first_runs(program: Program) -> dict[str, tuple[MemoryRun, MappingRun]]:
    """Region -> the runs that begin with its first chunk."""
    first = [run for _, run in chunk_runs(program.steps) if run.chunks.start == 0]
    memory = {run.region: run for run in first if isinstance(run, MemoryRun)}
    mapped = {run.region: run for run in first if isinstance(run, MappingRun)}
    return {region: (memory[region], mapped[region]) for region in memory.keys() & mapped.keys()}


def _bare(memory: MemoryRun, mapped: MappingRun) -> tuple[object, ...]:
    """What tells the chunks of two such runs apart: not their place in a plan, and not what it asks for."""
    kinds = [replace(kind, name="", origin=None, asked=0) for kind in memory.kinds]
    return kinds, mapped.offset, mapped.size, mapped.rights


def _is_alike(was: PlacedRegion, now: PlacedRegion) -> bool:
    """Whether two regions differ at most in their place in a plan. A change of a layout hands on most regions as they
    are, which need not be compared."""
    return was is now or _without_place(was) == _without_place(now)


def _without_place(placed: PlacedRegion) -> PlacedRegion:
    """The region as if it stood at no place in a plan: another plan may have it further down."""
    return replace(placed, region=placed.region._replace(path=()))


def _equal_buffers(old: Program, new: Program, renewed: Set[str]) -> Iterator[str]:
    there = {step.name: step for _, step in old.single if step.makes}
    for _, step in new.single:
        if step.name not in renewed and (was := there.get(step.name)) is not None and is_equal_buffer(was, step):
            yield step.name


def _without(program: Program, names: Set[str], chunks: Mapping[str, EqualChunks], counts: EqualCounts) -> Program:
    """names: of the regions and buffers that are left out. chunks: those that are, of other regions. counts: as of
    Touched."""
    stay: Parts[steps.Step] = Parts()
    for segment in segments(program.steps):
        if isinstance(segment, (CountRun, CountMappingRun)):
            for part in counts.outside(segment):
                stay.extend(part)
        elif not isinstance(segment, ChunkRun):
            stay.extend([step for step in segment if outer_name(step.name) not in names])
        elif segment.region in chunks and segment.chunks.start == 0:
            numbers = chunks[segment.region].numbers
            stay.extend([*segment[: segment.number_of(numbers.start)], *segment[segment.number_of(numbers.stop) :]])
        elif segment.region not in names:
            stay.extend(segment)
    regions = {name: placed for name, placed in program.regions.items() if name not in names}
    return replace(program, steps=stay.series(), regions=regions)
