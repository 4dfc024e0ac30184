"""Sleep on the host, still mapped: memory moves there at its addresses, and back to its device when it wakes. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import replace

from hipplan.kinds.allocation.live import CreateAllocation
from hipplan.language.host import HOST, is_host, node_of, on_node
from hipplan.machines.machine import Machine
from hipplan.program.chosen import ChosenMemory, chosen_memory, with_all_of
from hipplan.program.difference import Difference
from hipplan.program.groups import MemoryGroup
from hipplan.program.homes import Homes
from hipplan.program.inventory import device_names
from hipplan.program.on_host import lacking, near
from hipplan.program.program import Program
from hipplan.program.regions import memory_of, moved
from hipplan.program.remake import Again, Place, PlaceOf, made_again, on_device, on_host, placed_at
from hipplan.program.runs import plain


def goes_away(program: Program, groups: Iterable[MemoryGroup]) -> Difference:
    """The change that moves memory of devices to the host. Raises ApplyError, MachineError (HP309)."""
    chosen = with_all_of(program, groups)
    names = device_names(program.devices)
    single = {step.name: names[step.device] for step in plain(chosen.steps) if isinstance(step, CreateAllocation)}
    of_runs = [(memory, [names[kind.device] for kind in memory.kinds]) for memory, _ in chosen.stretches]
    homes = Homes(single, of_runs)
    devices = sorted({home for home, *_ in homes.counted()})
    nodes = {home: on_host(program, chosen, _near(home, program)) for home in devices}
    away = Homes.of(program.away).with_more(homes)
    again = _at(program, chosen, lambda step: nodes[names[step.device]], away)
    return made_again(program, again, keep_bytes=True)


def comes_home(program: Program, homes: Mapping[str, str], *, retain: bool) -> Difference:
    """The change that moves allocations back to their devices. retain: the layout keeps the host's memory."""
    going = Homes.of(homes)
    single = with_all_of(program, going.single, is_together=False)
    numbers: dict[str, list[range]] = {region: [*some] for region, some in single.numbers.items()}
    for run, _ in going.of_runs:
        numbers.setdefault(run.region, []).append(run.chunks)
    period = math.lcm(*(len(devices) for _, devices in going.of_runs))
    chosen = chosen_memory(program, numbers, single.others, period=period)
    away = Homes.of(program.away).without(going)
    again = _at(program, chosen, lambda step: on_device(program, program.away[step.name]), away)
    return replace(made_again(program, again, keep_bytes=True), retain=retain)


def at_home(program: Program) -> Program:
    """A program with everything where it would be awake."""
    chosen = with_all_of(program, program.away, is_together=False)
    return _at(program, chosen, lambda step: on_device(program, program.away[step.name]), {}).program


def away_as(old: Program, new: Program, memory: Set[str]) -> Program:
    """A new program with memory on the host that is there in the old one; awake it is the same in both."""
    chosen = with_all_of(new, memory, is_together=False)
    there = {step.name: _place_of(step) for step in old.own_memory() if step.name in memory}
    return _at(new, chosen, lambda step: there[step.name], {name: old.away[name] for name in memory}).program


def bytes_away(program: Program) -> dict[int, int]:
    """Device -> bytes that it would need more if everything were at home."""
    sums: dict[int, int] = {}
    for home, name, many in Homes.of(program.away).counted():
        step = program.makers[name]
        if isinstance(step, CreateAllocation):
            sums[program.devices[home]] = sums.get(program.devices[home], 0) + many * step.size
    return sums


def _at(program: Program, chosen: ChosenMemory, place_of: PlaceOf, away: Mapping[str, str]) -> Again:
    """Chosen memory in other places. The devices of regions, to which these grow, stay."""
    places: dict[str, list[tuple[range, list[str]]]] = {}
    for region, numbers in chosen.alone.items():
        for number in numbers:
            step = program.makers[memory_of(region, number)]
            assert isinstance(step, CreateAllocation)
            places.setdefault(region, []).append((range(number, number + 1), [place_of(step).name]))
    for memory, _ in chosen.stretches:
        places.setdefault(memory.region, []).append((memory.chunks, [place_of(kind).name for kind in memory.kinds]))
    regions = {name: moved(program.regions[name], some) for name, some in places.items()}
    return placed_at(program, chosen, place_of, regions, away=away)


def _place_of(step: CreateAllocation) -> Place:
    return Place(HOST if step.location == "host" else on_node(step.device), step.device, step.location)


def _near(device: str, program: Program) -> str:
    """The host's memory near a device, where the release has such memory."""
    machine = program.measured
    if machine is None:
        return HOST
    place = near(device, machine, program.devices)
    return place if _has(machine, place) else HOST


def _has(machine: Machine, place: str) -> bool:
    node = node_of(place)
    known = [numa.node for numa in machine.numa_nodes]
    return is_host(place) and node is not None and node in known and not lacking(machine, node)
