"""Objects of a program by name, as reports show them, made without those of others. Pure."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, count
from operator import itemgetter

from hipplan.kinds.mapping.live import Map, Rights
from hipplan.kinds.reservation.live import Reserve, ReserveBeside
from hipplan.program.chunk_runs import ChunkRun
from hipplan.program.count_runs import CountMappingRun, CountRun
from hipplan.program.inventory import region_resources, resources_of
from hipplan.program.mapped_runs import MappedRun
from hipplan.program.memo import Memo
from hipplan.program.numbered import Stem, prefixes_of, stem_of
from hipplan.program.program import Program
from hipplan.program.regions import numbers_in
from hipplan.program.resources import Resource
from hipplan.program.runs import Run, runs
from hipplan.program.series import segments
from hipplan.program.steps import Step


def resource_of(program: Program, name: str) -> Resource | None:
    """The object with this name, as of Program.resources; None if there is none. Unless it sleeps, or something beside
    it in its range, its cost does not depend on other objects."""
    for region in _regions_of(program, name):
        if _sleeps_in(program, region):
            return program.by_name.get(name)
        if (known := _in_region(program, region).get(name)) is not None:
            return known
    step = program.makers.get(name)
    if step is not None:
        return next(iter(_made(program, [step])))
    return program.by_name.get(name) if program.sleeping else None


def _sleeps_in(program: Program, whole: str) -> bool:
    """Whether something mapped in a region or reservation sleeps."""
    return bool(program.sleeping) and whole in program.names_asleep.ranges


def _regions_of(program: Program, name: str) -> Iterator[str]:
    """The regions that may have an object of this name: both they and tensors may have dots in their names."""
    end = len(name)
    while end > 0:
        if (region := name[:end]) in program.regions:
            yield region
        end = name.rfind(".", 0, end)


def object_count(program: Program) -> int:
    """How many objects it has."""
    if program.sleeping:
        return len(program.resources)
    return len(program.makers) + sum(len(_in_region(program, name)) - 1 for name in program.regions)


def mappings_within(program: Program, name: str, start: int = 0, end: int = sys.maxsize) -> list[Resource]:
    """The mappings of a region or reservation, or those that have some of these bytes of it, in the order of the steps.
    While none of them sleeps, its cost does not depend on other objects."""
    if _sleeps_in(program, name):
        within = (other for other in program.resources if other.kind == "mapping" and other.inside == name)
        return [other for other in within if other.offset < end and other.offset + other.size > start]
    return [*_made(program, [*_mapped(program, name, start, end - start)])]


def mappings_of_memory(program: Program, memory: Collection[str]) -> tuple[Resource, ...]:
    """The mappings of these allocations that are awake, in the order of the steps."""
    numbers: dict[Stem, list[int]] = {}
    for stem, number in filter(None, map(stem_of, memory)):
        numbers.setdefault(stem, []).append(number)
    mapped: list[Step] = []
    for part in segments(program.steps):
        if isinstance(part, MappedRun):
            there = sorted(number for number in numbers.get(part.memory.stem, ()) if number in part.memory.numbers)
            mapped += [part.made(part.number_mapping(number)) for number in there]
        elif not isinstance(part, Run):
            mapped += (step for step in part if isinstance(step, Map) and step.allocation in memory)
    return _made(program, mapped)


def end_of_mappings(program: Program, name: str) -> int:
    """Where the last mapping of a region or reservation ends in it, in bytes; 0 if it has none."""
    if program.sleeping:
        return max((other.offset + other.size for other in mappings_within(program, name)), default=0)
    ranges, mappings = _ranges(program, name), _mappings_by_range(program)
    return max(
        (
            start + (part.offset + part.size if isinstance(part, Map) else part.end)
            for reservation, start in ranges.items()
            for _, part in mappings.get(reservation, ())
        ),
        default=0,
    )


def tensors_in(program: Program) -> Iterator[Resource]:
    """The tensors of all regions. While nothing sleeps, their cost does not depend on other objects."""
    regions = [program.by_name] if program.sleeping else [_in_region(program, name) for name in program.regions]
    return (resource for region in regions for resource in region.values() if resource.kind == "tensor")


def resources_behind(program: Program, names: Iterable[str]) -> Iterable[Resource]:
    """The objects with these names, and what their bytes lie in: of a region also its tensors, of a tensor the
    mappings that have some of it. All objects while something there sleeps. KeyError for a name of no object."""
    behind: dict[str, Resource] = {}
    for name in names:
        wanted = resource_of(program, name)
        if wanted is None:
            raise KeyError(name)
        if wanted.asleep or _sleeps_in(program, wanted.inside or wanted.name):
            return program.resources
        behind |= {resource.name: resource for resource in chain([wanted], _around(program, wanted))}
    return behind.values()


def objects_near(program: Program, names: Iterable[str]) -> tuple[Resource, ...]:
    """The objects but for chunks in runs, and for what `count:` makes that is neither named nor mapped in what is. With
    the name of one come all of its count, and what maps them."""
    prefixes = {*chain.from_iterable(map(prefixes_of, names))}
    mapped = (run for steps in (program.steps, program.sleeping) for _, run in runs(steps) if run.of in prefixes)
    prefixes |= {prefix for run in mapped for prefix in run.prefixes}

    def is_wanted(run: Run) -> bool:
        if isinstance(run, ChunkRun):
            return False
        return not isinstance(run, (CountRun, CountMappingRun)) or not prefixes.isdisjoint(run.prefixes)

    return program.objects_of(is_wanted)


def region_of(program: Program, memory: str) -> str:
    """The region of whose chunk this is the memory; empty if it is an allocation of its own."""
    numbers = numbers_in(memory)
    if numbers is None or not numbers.is_memory or numbers.of not in program.regions:
        return ""
    return numbers.of


def starts_of_ranges(program: Program, whole: str) -> frozenset[int]:
    """Where ranges that were reserved behind a reservation begin in it, in bytes: no copy of the driver's goes over one
    of these."""
    return frozenset(step.at for step in _besides(program, whole))


_in_regions: Memo[Program, dict[str, dict[str, Resource]]] = Memo()
"""Region -> name -> the region or one of its tensors."""


def _in_region(program: Program, name: str) -> dict[str, Resource]:
    """A region that is awake, and its tensors."""
    regions = _in_regions.value(program, dict)
    if name not in regions:
        rights = program.rights

        def rights_of(mapping: str) -> Rights:
            step = rights.get(mapping)
            return () if step is None else step.rights

        made = region_resources(program.regions[name], rights_of, program.devices, program.sealed, program.attached)
        regions[name] = {resource.name: resource for resource in made}
    return regions[name]


def _around(program: Program, wanted: Resource) -> Iterator[Resource]:
    """What the bytes of an object lie in."""
    whole = wanted.name if wanted.kind == "region" else wanted.inside
    if not whole:
        return
    if whole in program.regions:
        yield from _in_region(program, whole).values()
    if wanted.kind != "mapping":
        yield from _made(program, [*_mapped(program, whole, wanted.offset, wanted.size)])


def _mapped(program: Program, whole: str, start: int, size: int) -> Iterator[Map]:
    """The steps that map some of these bytes of a range."""
    ranges, mappings = _ranges(program, whole), _mappings_by_range(program)
    for _, part in heapq.merge(*(mappings.get(name, ()) for name in ranges), key=itemgetter(0)):
        if isinstance(part, Map):
            at = ranges[part.reservation] + part.offset
            if at < start + size and start < at + part.size:
                yield part
        else:
            first = ranges[part.of] + part.offset
            low, high = (start - first) // part.size, -((first - start - size) // part.size)
            yield from map(part.made, part.numbers[max(0, low) : max(0, high)])


Numbered = tuple[int, Map | MappedRun]
"""What maps memory, with its number in the order of the steps."""
_mappings: Memo[Program, dict[str, list[Numbered]]] = Memo()
_added: Memo[Program, dict[str, list[ReserveBeside]]] = Memo()


def _mappings_by_range(program: Program) -> dict[str, list[Numbered]]:
    """The mappings of each reservation, found once: otherwise each reservation would cost a look at all steps."""
    return _mappings.value(program, lambda: _mappings_in_order(program))


def _mappings_in_order(program: Program) -> dict[str, list[Numbered]]:
    mappings: dict[str, list[Numbered]] = {}
    numbers = count()
    for part in segments(program.steps):
        if isinstance(part, MappedRun):
            mappings.setdefault(part.of, []).append((next(numbers), part))
        elif not isinstance(part, Run):
            for step in part:
                if isinstance(step, Map):
                    mappings.setdefault(step.reservation, []).append((next(numbers), step))
    return mappings


def _ranges(program: Program, whole: str) -> dict[str, int]:
    """The reservations that make a range -> where each begins in it, in bytes."""
    return {whole: 0} | {step.name: step.at for step in _besides(program, whole)}


def _besides(program: Program, whole: str) -> Sequence[ReserveBeside]:
    """The steps that have reserved more addresses behind a range."""
    return _added.value(program, lambda: _added_to(program)).get(whole, ())


def _added_to(program: Program) -> dict[str, list[ReserveBeside]]:
    added: dict[str, list[ReserveBeside]] = {}
    for step in program.reservations.values():
        if isinstance(step, ReserveBeside):
            added.setdefault(step.follows, []).append(step)
    return added


def _made(program: Program, wanted: Sequence[Step]) -> tuple[Resource, ...]:
    """What these steps make; nothing else."""
    near: dict[str, Step] = {}
    for step in wanted:
        if isinstance(step, Map):
            near |= {name: program.makers[name] for name in (step.allocation, step.reservation) if name not in near}
        elif isinstance(step, Reserve):
            near |= {beside.name: beside for beside in _besides(program, step.name)}
    names = {step.name for step in wanted}
    there = [*(step for name, step in near.items() if name not in names), *wanted]
    made = resources_of(there, {}, program.devices, program.sealed, attached=program.attached, rights=program.rights)
    return tuple(resource for resource in made if resource.name in names)
