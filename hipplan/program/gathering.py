"""Gathers the chunks that growing added into runs, as a plan would have them: then what is beside them costs nothing.
Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple, cast

from hipplan.kinds.allocation.live import CreateAllocation
from hipplan.kinds.mapping.live import Map, SetAccess
from hipplan.program.chunk_runs import ChunkRun, MappingRun, MemoryRun, memory_in_no_run
from hipplan.program.memo import keep
from hipplan.program.numbered import OF_MEMORY
from hipplan.program.on_demand import Repeated, are_many
from hipplan.program.program import Program
from hipplan.program.regions import PlacedRegion, mapping_of, memory_of
from hipplan.program.runs import Run, written_out
from hipplan.program.series import Parts, Series, segments
from hipplan.program.steps import Step, named

Moved = list[tuple[int, int, int]]
"""(slot, slot before, how many) of consecutive objects."""
_Pieces = Mapping[int, Sequence[tuple[int, int]]]
"""The id of a new run -> (number of the first, how many) of its objects whose slots were consecutive."""

_SHARE, _STEPS_OF_CHUNK = 4, 3
"""To gather some, all steps in no run are looked at: so at least one in so many of them is of a chunk."""


class Gathered(NamedTuple):
    """The same objects, more of them in runs."""

    program: Program
    moved: Moved
    """Where all of them are in the snapshots of its layouts."""


def pays(program: Program, chunks: int) -> bool:
    """Whether so many chunks are worth a look at all steps that are in no run."""
    return _SHARE * _STEPS_OF_CHUNK * chunks >= sum(len(part) for _, part in written_out(program.steps))


def is_due(program: Program) -> bool:
    """Whether enough chunks are in no run, or in one beside another: for two runs, as some are of other regions."""
    return are_many(program.loose_chunks // 2) and pays(program, program.loose_chunks)


def gathered(program: Program) -> Gathered | None:
    """The program with one run for alike chunks that are in none or in several; None if there are too few."""
    there = [*segments(program.steps)]
    joined = [joint for region in _regions_of(program, there).values() for joint in region if joint.is_new]
    if not joined:
        return None
    steps = _with(there, joined)
    regions = {**program.regions}
    for joint in joined:
        regions[joint.memory.region] = _with_run(regions[joint.memory.region], joint.memory)
    made = replace(program, steps=steps, regions=regions)
    pieces = {id(run): joint.pieces for joint in joined for run in (joint.memory, joint.mapping)}
    return Gathered(made, _moved(program.slots, steps, pieces))


class _Joint(NamedTuple):
    """Chunks that are alike, as one run of memory and one of mappings."""

    memory: MemoryRun
    mapping: MappingRun
    parts: list[tuple[str, str]]
    """The names of what was there: of a chunk's memory and its mapping, or of the first of a run."""
    pieces: list[tuple[int, int]]
    """(number of the first, how many) of the objects whose slots were consecutive."""
    is_new: bool

    def with_more(self, other: _Joint) -> _Joint | None:
        """Both as one, if the other goes on as this does."""
        memory, mapping = self.memory.continued_by(other.memory), self.mapping.continued_by(other.mapping)
        if memory is None or mapping is None:
            return None
        return _Joint(memory, mapping, self.parts + other.parts, self.pieces + other.pieces, True)


def _regions_of(program: Program, there: Sequence[Sequence[Step]]) -> dict[str, list[_Joint]]:
    """Region -> the runs of its chunks, each as long as it can be. there: all steps, by segments."""
    joints: dict[str, list[_Joint]] = {}
    memory = {(run.region, run.chunks): run for run in there if isinstance(run, MemoryRun)}
    for run in there:
        if isinstance(run, MappingRun) and (of := memory.get((run.region, run.chunks))) is not None:
            first = run.chunks.start
            names = [(of.name_of(first), run.name_of(first))]
            joints.setdefault(run.region, []).append(_Joint(of, run, names, [(first, len(run.chunks))], False))
    for region, numbers in _alone(program).items():
        joints.setdefault(region, []).extend(_alike(program, region, numbers))
    return {region: _joined(some) for region, some in joints.items()}


def _joined(joints: list[_Joint]) -> list[_Joint]:
    joined: list[_Joint] = []
    for joint in sorted(joints, key=lambda joint: joint.memory.chunks.start):
        both = joined[-1].with_more(joint) if joined else None
        if both is not None:
            joined[-1] = both
        else:
            joined.append(joint)
    return joined


def _alone(program: Program) -> dict[str, list[int]]:
    """Region -> the numbers of its chunks of which neither the memory nor the mapping is in a run, if they are many."""
    memory: dict[str, list[str]] = {}
    for region, name in memory_in_no_run(program.steps, program.regions):
        memory.setdefault(region, []).append(name)
    many = {region: names for region, names in memory.items() if are_many(len(names))}
    if not many:
        return {}
    parts = (part for _, part in written_out(program.steps))
    mapped = {step.name for step in chain.from_iterable(parts) if type(step) is Map}
    numbers = {region: [int(name.rpartition(OF_MEMORY)[2]) for name in names] for region, names in many.items()}
    return {region: [n for n in some if mapping_of(region, n) in mapped] for region, some in numbers.items()}


def _alike(program: Program, region: str, numbers: list[int]) -> Iterator[_Joint]:
    """The chunks that are alike, and in order. numbers: of chunks in no run."""
    chunks = [_Chunk.of(program, region, number) for number in sorted(numbers)]
    every = len(program.regions[region].region.devices)
    first = 0
    for number in range(1, len(chunks) + 1):
        if number < len(chunks) and _goes_on(chunks, first, number, every):
            continue
        if are_many(number - first) and (joint := _joint(region, chunks[first:number], every)) is not None:
            yield joint
        first = number


class _Chunk(NamedTuple):
    """The steps of a chunk."""

    number: int
    memory: CreateAllocation
    mapping: Map
    access: SetAccess | None

    @classmethod
    def of(cls, program: Program, region: str, number: int) -> _Chunk:
        name = mapping_of(region, number)
        memory = cast(CreateAllocation, program.makers[memory_of(region, number)])
        return cls(number, memory, cast(Map, program.makers[name]), program.rights.get(name))


def _goes_on(chunks: Sequence[_Chunk], first: int, number: int, every: int) -> bool:
    """Whether a chunk goes on as the ones from `first` on do. every: how many of them repeat."""
    here, last = chunks[number], chunks[number - 1]
    behind = last.number + 1, last.mapping.offset + last.mapping.size
    if (here.number, here.mapping.offset) != behind or here.memory.size != last.memory.size:
        return False
    if (here.access is None) != (last.access is None):
        return False
    if number - first < every:
        return True
    like = chunks[number - every]
    if here.access is not None and like.access is not None and here.access.rights != like.access.rights:
        return False
    return named(like.memory)(here.memory.name) == here.memory


def _joint(region: str, chunks: Sequence[_Chunk], every: int) -> _Joint | None:
    """The runs of chunks that repeat; None if a step of theirs differs from that of a run."""
    few, numbers = chunks[:every], range(chunks[0].number, chunks[-1].number + 1)
    memory = MemoryRun(region, numbers, [chunk.memory for chunk in few])
    rights = [chunk.access.rights if chunk.access is not None else () for chunk in few]
    mapping = MappingRun(memory, chunks[0].mapping.offset, chunks[0].mapping.origin, rights)
    for chunk in chunks:
        if mapping.made(chunk.number) != chunk.mapping:
            return None
        if chunk.access is not None and mapping.access(chunk.number) != chunk.access:
            return None
    names = [(chunk.memory.name, chunk.mapping.name) for chunk in chunks]
    return _Joint(memory, mapping, names, [(number, 1) for number in numbers], True)


def _with(there: Sequence[Sequence[Step]], joined: Iterable[_Joint]) -> Series[Step]:
    """The steps with these runs, each in the place of the first of what was there."""
    begin: dict[str, Run] = {}
    names: set[str] = set()
    for joint in joined:
        names.update(chain.from_iterable(joint.parts))
        begin.update(zip(joint.parts[0], (joint.memory, joint.mapping), strict=True))
    parts: Parts[Step] = Parts()
    for segment in there:
        if isinstance(segment, ChunkRun):
            name = segment.name_of(segment.chunks.start)
            parts.extend(begin.get(name, ()) if name in names else segment)
        elif isinstance(segment, (tuple, list)):
            for step in segment:
                if type(step) not in _OF_CHUNKS or step.name not in names:
                    parts.append(step)
                elif step.makes and step.name in begin:
                    parts.extend(begin[step.name])
        else:
            parts.extend(segment)
    return parts.series()


_OF_CHUNKS = frozenset({CreateAllocation, Map, SetAccess})


def _with_run(placed: PlacedRegion, run: MemoryRun) -> PlacedRegion:
    """The region, whose chunks in a run are together."""
    first, end = run.chunks.start, run.chunks.stop
    few = placed.chunks[first : first + len(run.kinds)]
    made = replace(placed, chunks=Series(placed.chunks).with_parts({first: Repeated(few, end - first)}))
    keep(made, mapped=placed.mapped)
    return made


def _moved(slots: Mapping[str, int], some_steps: Sequence[Step], pieces: _Pieces) -> Moved:
    """Where the objects of steps were. slots: before. pieces: of runs that were not there."""
    moved: Moved = []
    slot = 0
    for name, count in _consecutive(some_steps, pieces):
        was = slots[name]
        if moved and moved[-1][1] + moved[-1][2] == was:
            begin, first, before = moved.pop()
            moved.append((begin, first, before + count))
        else:
            moved.append((slot, was, count))
        slot += count
    return moved


def _consecutive(some_steps: Sequence[Step], pieces: _Pieces) -> Iterator[tuple[str, int]]:
    """(name of the first, how many) of objects whose slots were consecutive."""
    for segment in segments(some_steps):
        if isinstance(segment, Run):
            whole = [(segment.numbers.start, len(segment.numbers))]
            yield from ((segment.name_of(first), count) for first, count in pieces.get(id(segment), whole))
        else:
            yield from ((step.name, 1) for step in segment if step.makes)
