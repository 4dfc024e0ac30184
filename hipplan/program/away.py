"""Sleep on the host, still mapped: memory moves there at its addresses, and back to its device when it wakes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from hipplan.kinds.allocation.live import CreateAllocation
from hipplan.language.host import HOST, is_host, node_of, on_node
from hipplan.machines.machine import Machine
from hipplan.program.difference import Difference, difference
from hipplan.program.inventory import device_names
from hipplan.program.on_host import lacking, near
from hipplan.program.program import Program
from hipplan.program.regions import PlacedRegion, memory_of, moved
from hipplan.program.remake import (
    ChosenMemory,
    Place,
    carries_of,
    on_device,
    on_host,
    placed_at,
    stays_in_reach,
    with_all_of,
)


def goes_away(program: Program, memory: Set[str]) -> Difference:
    """The change that moves allocations of devices to the host. Raises ApplyError, MachineError (HP309)."""
    chosen = with_all_of(program, memory)
    names = device_names(program.devices)
    homes = {step.name: names[step.device] for step in chosen.steps if isinstance(step, CreateAllocation)}
    nodes = {home: on_host(program, chosen, _near(home, program)) for home in sorted({*homes.values()})}
    places = {name: nodes[home] for name, home in homes.items()}
    return _change(program, chosen, places, {**program.away, **homes})


def comes_home(program: Program, memory: Set[str], *, retain: bool) -> Difference:
    """The change that moves allocations back to their devices. retain: the layout keeps the host's memory."""
    chosen = with_all_of(program, memory)
    places = {name: on_device(program, program.away[name]) for name in memory}
    away = {name: home for name, home in program.away.items() if name not in memory}
    return replace(_change(program, chosen, places, away), retain=retain)


def at_home(program: Program) -> Program:
    """A program with everything where it would be awake."""
    places = {name: on_device(program, home) for name, home in program.away.items()}
    return _at(program, with_all_of(program, {*program.away}), places, {})


def away_as(old: Program, new: Program, memory: Set[str]) -> Program:
    """A new program with memory on the host that is there in the old one; awake it is the same in both."""
    there = {step.name: step for step in old.own_memory()}
    places = {name: _place_of(there[name]) for name in memory}
    return _at(new, with_all_of(new, memory), places, {name: old.away[name] for name in memory})


def bytes_away(program: Program) -> dict[int, int]:
    """Device -> bytes that it would need more if everything were at home."""
    sums: dict[int, int] = {}
    for step in program.own_memory() if program.away else ():
        if home := program.away.get(step.name):
            sums[program.devices[home]] = sums.get(program.devices[home], 0) + step.size
    return sums


def _change(program: Program, chosen: ChosenMemory, places: Mapping[str, Place], away: Mapping[str, str]) -> Difference:
    made = _at(program, chosen, places, away)
    change = difference(program, made, {*places})
    moves = stays_in_reach(program, made, chosen.steps)
    return replace(change, carries=tuple(carries_of(change, {*places})), keeps_views=moves)


def _at(program: Program, chosen: ChosenMemory, places: Mapping[str, Place], away: Mapping[str, str]) -> Program:
    regions = {name: _placed(program.regions[name], some, places) for name, some in chosen.chunks.items()}
    return placed_at(program, chosen, places, regions, away=dict(away))


def _placed(region: PlacedRegion, numbers: Sequence[int], places: Mapping[str, Place]) -> PlacedRegion:
    """A region with these chunks in their places. Its devices, to which it grows, stay."""
    on: dict[str, list[int]] = {}
    for number in numbers:
        on.setdefault(places[memory_of(region.region.name, number)].name, []).append(number)
    for device, some in on.items():
        region = moved(region, some, device)
    return region


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
