"""The memory that a change makes again under its addresses: allocations, and stretches of alike chunks. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import NamedTuple, cast

from hipplan.kinds.allocation.live import CreateAllocation
from hipplan.kinds.mapping.live import Map
from hipplan.program import steps
from hipplan.program.chunk_runs import MappingRun, MemoryRun, chunk_runs
from hipplan.program.count_runs import CountMappingRun
from hipplan.program.facts import number_key
from hipplan.program.groups import MemoryGroup
from hipplan.program.numbered import stem_of
from hipplan.program.on_demand import are_many
from hipplan.program.program import Program
from hipplan.program.regions import mapping_of, memory_of, numbers_in
from hipplan.program.runs import Run
from hipplan.program.series import Parts, segments

Numbers = Mapping[str, Sequence[range]]
"""Region -> the numbers of some of its chunks."""


class ChosenChunks(NamedTuple):
    """Alike chunks: their memory, and its mappings, which have as many rights in turn as there are kinds of memory."""

    memory: MemoryRun
    mapped: MappingRun


@dataclass
class ChosenMemory:
    """The memory that is made again."""

    steps: Sequence[steps.Step] = ()
    """The steps that make it, map it and set its rights, in their order."""
    numbers: Numbers = field(default_factory=dict)
    """The chunks of regions in it."""
    alone: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Region -> the numbers of those of them whose steps are written out."""
    stretches: Sequence[ChosenChunks] = ()
    """Those of them whose steps are in runs."""
    others: Set[str] = frozenset()
    """Allocations in it that are no chunks."""


def chosen_memory(program: Program, numbers: Numbers, memory: Set[str], *, period: int = 1) -> ChosenMemory:
    """Some chunks and allocations. numbers: of the chunks. memory: allocations that are no chunks. period: each stretch
    has this many kinds of memory, or a multiple of it."""
    stretches: list[ChosenChunks] = []
    alone: dict[str, list[int]] = {}
    for region, wanted in numbers.items():
        together = [*_stretches(program, region, wanted, period)]
        stretches += together
        if some := [*_others(wanted, [stretch.memory.chunks for stretch in together])]:
            alone[region] = some
    return _in_order(program, numbers, memory, alone, stretches)


def written_out(program: Program, chosen: ChosenMemory) -> ChosenMemory:
    """The same without stretches."""
    return _in_order(program, chosen.numbers, chosen.others, _one_by_one(chosen.numbers), [])


def with_all_of(program: Program, groups: Iterable[MemoryGroup], *, is_together: bool = True) -> ChosenMemory:
    """The memory of these groups. is_together: whether alike chunks stay together."""
    memory: set[str] = set()
    numbers: dict[str, list[range]] = {}
    for group in groups:
        if isinstance(group, MappingRun):
            numbers.setdefault(group.region, []).append(group.chunks)
        elif (of := numbers_in(group)) is not None and of.is_memory and of.of in program.regions:
            numbers.setdefault(of.of, []).append(range(of.first, of.first + 1))
        else:
            memory.add(group)
    if is_together:
        return chosen_memory(program, numbers, memory)
    return _in_order(program, numbers, memory, _one_by_one(numbers), [])


def _one_by_one(numbers: Numbers) -> dict[str, list[int]]:
    return {region: [*chain.from_iterable(some)] for region, some in numbers.items()}


def _in_order(
    program: Program,
    numbers: Numbers,
    memory: Set[str],
    alone: Mapping[str, Sequence[int]],
    stretches: Sequence[ChosenChunks],
) -> ChosenMemory:
    single = [step for region, some in alone.items() for step in _steps_of_chunks(program, region, some)]
    single += _steps_of(program, memory)
    numbered: list[tuple[int, steps.Step | Run]] = [(program.numbers[number_key(step)], step) for step in single]
    for run in chain.from_iterable(stretches):
        numbered.append((program.number_of(run), run))
    in_order = [part for _, part in sorted(numbered, key=itemgetter(0))]
    if not stretches:
        return ChosenMemory(cast("list[steps.Step]", in_order), numbers, alone, stretches, memory)
    made: Parts[steps.Step] = Parts()
    for part in in_order:
        made.extend(part if isinstance(part, Run) else (part,))
    return ChosenMemory(made.series(), numbers, alone, stretches, memory)


def _stretches(program: Program, region: str, wanted: Sequence[range], period: int) -> Iterator[ChosenChunks]:
    """Yields the alike chunks of a region. A few are written out: their cost does not depend on the others."""
    wanted = [numbers for numbers in wanted if are_many(len(numbers))]
    if not wanted:
        return
    there = [run for _, run in chunk_runs(program.steps) if run.region == region]
    memory = [run for run in there if isinstance(run, MemoryRun)]
    mapped = [run for run in there if isinstance(run, MappingRun)]
    for numbers in wanted:
        for of_memory in memory:
            some = _overlap(numbers, of_memory.chunks)
            for of_mappings in mapped if some else ():
                if chunks := _overlap(some, of_mappings.chunks):
                    yield _stretch(of_memory, of_mappings, chunks, period)


def _overlap(some: range, others: range) -> range:
    return range(max(some.start, others.start), min(some.stop, others.stop))


def _stretch(of_memory: MemoryRun, of_mappings: MappingRun, chunks: range, period: int) -> ChosenChunks:
    first = chunks.start - of_mappings.chunks.start
    mapped = of_mappings.between(first, first + len(chunks))
    many = min(len(chunks), math.lcm(len(of_memory.kinds), len(mapped.rights), period))
    kinds = [cast(CreateAllocation, of_memory.made(chunk)) for chunk in chunks[:many]]
    memory = MemoryRun(of_memory.region, chunks, kinds)
    rights = [mapped.rights[place % len(mapped.rights)] for place in range(many)]
    return ChosenChunks(memory, MappingRun(memory, mapped.offset, mapped.origin, rights))


def _others(wanted: Iterable[range], together: Sequence[range]) -> Iterator[int]:
    """The numbers in none of these."""
    for numbers in wanted:
        start = numbers.start
        for chunks in sorted((some for some in together if some.start in numbers), key=lambda some: some.start):
            yield from range(start, chunks.start)
            start = chunks.stop
        yield from range(start, numbers.stop)


def _steps_of_chunks(program: Program, region: str, numbers: Iterable[int]) -> Iterator[steps.Step]:
    """The steps of chunks of a region, without a look at others."""
    for number in numbers:
        yield program.makers[memory_of(region, number)]
        yield from mapped_again(program, mapping_of(region, number))


def mapped_again(program: Program, mapping: str) -> Iterator[steps.Step]:
    """The steps that map memory and give rights on it. mapping: its name."""
    yield program.makers[mapping]
    if (rights := program.rights.get(mapping)) is not None:
        yield rights


def _steps_of(program: Program, memory: Set[str]) -> Iterator[steps.Step]:
    """The steps of allocations that are no chunks, without a look at others in runs."""
    if memory:
        yield from filter(None, map(program.makers.get, memory))
        for mapping in _mappings_of(program, memory):
            yield from mapped_again(program, mapping)


def _mappings_of(program: Program, memory: Set[str]) -> Iterator[str]:
    """The names of the mappings of allocations that are no chunks."""
    members = [member for name in memory if (member := stem_of(name)) is not None]
    for part in segments(program.steps):
        if isinstance(part, CountMappingRun):
            there = part.memory.numbers
            for stem, number in members:
                if stem == part.memory.stem and number in there:
                    yield part.name_of(part.numbers[there.index(number)])
        elif not isinstance(part, Run):
            yield from (step.name for step in part if isinstance(step, Map) and step.allocation in memory)
