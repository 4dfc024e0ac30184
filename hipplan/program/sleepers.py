"""What can sleep: the memory that names mean, and why some of it cannot be freed by itself. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from hipplan.errors import ApplyError
from hipplan.program import patterns, steps
from hipplan.program.backups import DROP, MAPPED
from hipplan.program.facts import makers_of
from hipplan.program.groups import MemoryGroup, Units, by_first, first_of, groups_asleep, groups_in, is_on_device
from hipplan.program.homes import Homes
from hipplan.program.lookup import objects_near, region_of
from hipplan.program.program import Program
from hipplan.program.refusals import MAPPED_ON_HOST, cannot_sleep, refuse, refuse_asleep, refuse_piece
from hipplan.program.regions import memory_of
from hipplan.program.resize import require_memory
from hipplan.program.resources import RANGES, Resource
from hipplan.program.runs import runs
from hipplan.program.sleeping_bytes import unmovable

KINDS = (*RANGES, "mapping", "allocation")
ABLE: patterns.Names = ("*",)
"""This very object stands for everything that can sleep; the pattern refuses if anything cannot."""


def units_away(program: Program, names: Sequence[str] | None = None) -> Mapping[str, str]:
    """The allocations of these names that sleep on the host, still mapped, as of Program.away. Raises ApplyError
    (HP420)."""
    if names is None:
        return program.away
    units = units_of(program, names, is_writable=False)
    single = {group for group in chain.from_iterable(units.values()) if isinstance(group, str)}
    return Homes.of(program.away).only(single, names)


def is_any_asleep(program: Program, names: Sequence[str] | None = None) -> bool:
    """Whether memory of these names sleeps, and is not mapped. Raises ApplyError (HP420)."""
    asleep = by_first(groups_asleep(program))
    if names is None:
        return bool(asleep)
    units = units_of(program, names, is_writable=False)
    return not asleep.keys().isdisjoint(by_first(chain.from_iterable(units.values())))


def units_of(program: Program, names: Sequence[str], *, is_writable: bool = True) -> Units:
    """The allocations of each name. is_writable: only memory that a device may write is together. Raises ApplyError
    (HP420): no such object, or it is only a chunk of a region."""
    if (quickly := _single_units(program, names)) is not None:
        return quickly
    known = {resource.name: resource for resource in objects_near(program, names)}
    if not known.keys() >= {*names}:
        known = program.by_name
    mapped: dict[str, list[str]] = defaultdict(list)  # mapping or range -> the memory of it, or of all in it
    for mapping in known.values():
        if mapping.memory:
            for name in (mapping.name, mapping.inside):
                mapped[name].append(mapping.memory)
    units: dict[str, Sequence[MemoryGroup]] = {}
    for name in dict.fromkeys(names):
        if name not in known or "#contents" in name:
            several = (name for name, resource in known.items() if resource.kind in KINDS)
            raise refuse(f"there is no '{name}' that could sleep", hint=patterns.hint(name, several))
        _require_whole(known[name], program)
        if known[name].kind == "region":
            require_memory(program, name)
        if known[name].kind == "allocation":
            units[name] = [name]
        elif name in program.regions and (groups := groups_in(program, name, is_writable=is_writable)):
            units[name] = groups
        else:
            units[name] = [*dict.fromkeys(mapped[name])]
    return units


def _single_units(program: Program, names: Sequence[str]) -> Units | None:
    """units_of() where all names are those of allocations, or of regions in no runs, without listing all objects. None:
    one of the names means something else."""
    asleep = makers_of(program.sleeping)
    in_runs = {run.of for some_steps in (program.steps, program.sleeping) for _, run in runs(some_steps)}
    if not in_runs.isdisjoint(names):
        return None
    units: dict[str, Sequence[MemoryGroup]] = {}
    for name in names:
        region = program.regions.get(name)
        memory = [name] if region is None else [memory_of(name, chunk) for chunk in range(len(region.chunks))]
        makers = [program.makers.get(each) or asleep.get(each) for each in memory]
        is_memory = all(maker is not None and maker.makes == "allocation" for maker in makers)
        if not memory or not is_memory or region_of(program, name):
            return None
        units[name] = memory
    return units


def _require_whole(resource: Resource, program: Program) -> None:
    inside = region_of(program, resource.name) if resource.kind == "allocation" else resource.inside
    if resource.kind != "reservation" and inside in program.regions:
        raise refuse_piece(resource.name, inside)


def able(program: Program, to: str) -> tuple[str, ...]:
    """The regions and allocations that are awake and can sleep. to: as in falls_asleep()."""
    awake = [
        resource.name
        for resource in program.outer
        if resource.kind in ("region", "allocation") and not resource.asleep and not resource.inside
        and not program.is_away(resource.name)
        and "#" not in resource.name and resource.name not in program.parts
    ]  # fmt: skip
    awake = [name for name in awake if name not in program.regions or program.regions[name].chunks]
    units = units_of(program, awake, is_writable=to != MAPPED)
    refused = {name for name, _ in _unable(program, units, to)}
    able = {name: memory for name, memory in units.items() if name not in refused}
    alone = {name: [each for each in groups if isinstance(each, str)] for name, groups in able.items()}
    lost = set() if to in (DROP, MAPPED) else unmovable(program, chain.from_iterable(alone.values()))
    return tuple(name for name, memory in alone.items() if lost.isdisjoint(memory))


def require_able(program: Program, units: Units, to: str) -> None:
    """Raises ApplyError (HP440): this memory cannot be freed by itself; HP441: it is on the host, and sleeps."""
    for name in units if to != MAPPED else ():
        if program.is_away(name):
            raise refuse_asleep(name, MAPPED_ON_HOST)
    for _, error in _unable(program, units, to):
        raise error


def _unable(program: Program, units: Units, to: str) -> Iterator[tuple[str, ApplyError]]:
    """The names whose memory cannot be freed by itself, and why (HP440)."""
    for name, groups in units.items():
        if name in program.shared:
            why = "other ranks of this node map it, which keeps its memory allocated"
            yield (
                name,
                cannot_sleep(
                    name, why, "close the layout and apply the plan again, or put it into a region of its own"
                ),
            )
        maker = program.makers.get(name)  # None for memory that sleeps already
        if maker is not None and maker.why_awake:
            yield name, cannot_sleep(name, maker.why_awake, maker.instead_of_sleep)
        made = [*chain.from_iterable(_makers(program, group) for group in groups)]
        moves = to == MAPPED and any(memory in program.away or is_on_device(step) for memory, step in made)
        for memory, step in made:
            if moves and step is not None and step.is_for_network:
                yield name, cannot_sleep(name, "network cards reach it on its device (rdma: true)", "sleep to='host'")
            if step is not None and step.is_import:
                who = f"rank {step.from_rank}" if step.from_rank >= 0 else "the process that made it"
                yield name, cannot_sleep(name, f"'{memory}' is imported: its memory is freed when {who} frees it")
            if step is not None and step.is_on_host and not moves:
                hint = (
                    "its memory on the GPUs sleeps once all of it is there: remap() moves it"
                    if name in program.regions
                    else ""
                )
                yield name, cannot_sleep(name, f"'{memory}' is host memory", hint)


def _makers(program: Program, group: MemoryGroup) -> list[tuple[str, steps.Step | None]]:
    """The steps of some of its allocations that stand for all, by name; None for one that sleeps already."""
    if isinstance(group, str):
        return [(group, program.makers.get(group))]
    if first_of(group) not in program.makers:
        return [(first_of(group), None)]
    return [(step.name, step) for step, _ in group.memory.alike()]
