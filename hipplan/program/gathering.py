"""Gathers chunks that growing added one by one into runs, as a plan would have them: then what is beside them costs
nothing. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, cast

from hipplan.kinds.allocation.live import CreateAllocation
from hipplan.kinds.mapping.live import Map, SetAccess
from hipplan.program.chunk_runs import MappingRun, MemoryRun
from hipplan.program.memo import keep
from hipplan.program.on_demand import Repeated, are_many
from hipplan.program.program import Program
from hipplan.program.regions import PlacedRegion, mapping_of, memory_of, numbers_in
from hipplan.program.runs import Run, written_out
from hipplan.program.series import Parts, Series, segments
from hipplan.program.steps import Step, named

Moved = list[tuple[int, int, int]]
"""(slot, slot before, how many) of consecutive objects."""

_SHARE = 4
"""To gather some, all steps in no run are looked at: so at least one in so many of them is of a chunk."""


class Gathered(NamedTuple):
    """The same objects, more of them in runs."""

    program: Program
    moved: Moved
    """Where all of them are in the snapshots of its layouts."""


def is_due(program: Program) -> bool:
    """Whether enough chunks are in no run."""
    lone = program.lone_chunks
    if not are_many(lone // 2):  # some may be of other regions
        return False
    return _SHARE * 2 * lone >= sum(len(part) for _, part in written_out(program.steps))


def gathered(program: Program) -> Gathered | None:
    """The program with runs for alike chunks that are in none; None if there are too few."""
    runs = [pair for region, numbers in _alone(program).items() for pair in _pairs(program, region, numbers)]
    if not runs:
        return None
    steps, pieces = _with_runs(program.steps, runs)
    regions = {**program.regions}
    for memory, _ in runs:
        regions[memory.region] = _with_run(regions[memory.region], memory)
    made = replace(program, steps=steps, regions=regions)
    return Gathered(made, _moved(program.slots, steps, pieces))


_Pair = tuple[MemoryRun, MappingRun]


def _alone(program: Program) -> dict[str, list[int]]:
    """Region -> the numbers of its chunks that are in no run."""
    alone: dict[str, list[int]] = {}
    for _, part in written_out(program.steps):
        for step in part:
            if type(step) is CreateAllocation and step.name.partition("#")[0] in program.regions:
                numbers = numbers_in(step.name)
                if numbers is not None:
                    alone.setdefault(numbers.of, []).append(numbers.first)
    return alone


def _pairs(program: Program, region: str, numbers: list[int]) -> Iterator[_Pair]:
    """The runs of chunks that are alike, and in order. numbers: of chunks in no run."""
    chunks = [_Chunk.of(program, region, number) for number in sorted(numbers)]
    every = len(program.regions[region].region.devices)
    first = 0
    for number in range(1, len(chunks) + 1):
        if number < len(chunks) and _goes_on(chunks, first, number, every):
            continue
        if are_many(number - first) and (pair := _pair(region, chunks[first:number], every)) is not None:
            yield pair
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
    end, place = last.mapping.offset + last.mapping.size, here.mapping
    if (here.number, place.offset) != (last.number + 1, end):
        return False
    if (place.size, place.asked, place.origin) != (last.mapping.size, last.mapping.asked, last.mapping.origin):
        return False
    if here.memory.size != place.size or (here.access is None) != (last.access is None):
        return False
    if number - first < every:
        return True
    like = chunks[number - every]
    if here.access is not None and like.access is not None:
        given = here.access.rights, here.access.origin, here.access.together
        if given != (like.access.rights, like.access.origin, like.access.together):
            return False
    return named(like.memory)(here.memory.name) == here.memory


def _pair(region: str, chunks: Sequence[_Chunk], every: int) -> _Pair | None:
    """The runs of chunks that repeat; None if a step of theirs differs from those of runs."""
    few, place = chunks[:every], chunks[0].mapping
    memory = MemoryRun(region, range(chunks[0].number, chunks[-1].number + 1), [chunk.memory for chunk in few])
    rights = [chunk.access.rights if chunk.access is not None else () for chunk in few]
    mapped = MappingRun(memory, place.offset, place.origin, rights)
    for chunk in few:
        if mapped.made(chunk.number) != chunk.mapping:
            return None
        if chunk.access is not None and mapped.access(chunk.number) != chunk.access:
            return None
    return memory, mapped


_Pieces = Mapping[int, Sequence[tuple[int, int]]]
"""The id of a run -> (number of the first, how many) of its objects whose slots were consecutive."""


def _with_runs(some_steps: Sequence[Step], pairs: Iterable[_Pair]) -> tuple[Series[Step], _Pieces]:
    """The steps with runs, each in the place of its first step, or as a part of the run that it goes on."""
    there = [*segments(some_steps)]
    begin: dict[str, Run] = {}
    names: set[str] = set()
    pieces: dict[int, list[tuple[int, int]]] = {}
    for pair in pairs:
        longer = [_longer(there, run) for run in pair]
        for run, before in zip(pair, longer, strict=True):
            single = [(number, 1) for number in run.numbers]
            names.update(map(run.name_of, run.numbers))
            if before is None or None in longer:
                begin[run.name_of(run.numbers.start)] = run
                pieces[id(run)] = single
            else:
                place, was, now = before
                pieces[id(now)] = [*pieces.get(id(was), [(was.numbers.start, len(was.numbers))]), *single]
                there[place] = now
    parts: Parts[Step] = Parts()
    for segment in there:
        if isinstance(segment, (tuple, list)):
            for step in segment:
                if type(step) not in _OF_CHUNKS or step.name not in names:
                    parts.append(step)
                elif step.makes and step.name in begin:
                    parts.extend(begin[step.name])
        else:
            parts.extend(segment)
    return parts.series(), pieces


_OF_CHUNKS = frozenset({CreateAllocation, Map, SetAccess})


def _longer(there: Sequence[Sequence[Step]], run: Run) -> tuple[int, Run, Run] | None:
    """(the place of a run that another one goes on, that run, both as one); None if it goes on none."""
    for place, was in enumerate(there):
        if isinstance(was, Run) and type(was) is type(run) and (both := was.continued_by(run)) is not None:
            return place, was, cast(Run, both)
    return None


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
