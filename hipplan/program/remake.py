"""Programs in which mapped memory is sealed against writing, or made anew under the same addresses. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import replace

from hipplan.errors import suggest
from hipplan.language.objects import HOST
from hipplan.program import pieces, steps
from hipplan.program.alterations import CopyBytes, before, refuse
from hipplan.program.difference import Difference
from hipplan.program.program import Program
from hipplan.program.regions import PlacedRegion, memory_of
from hipplan.program.resize import require
from hipplan.program.resources import Resource

Access = tuple[tuple[str, str], ...]
"""(device name, right) of each who has one."""


def sealed(program: Program, name: str) -> Program:
    """Nobody may write a region, a reservation's mappings or one mapping: rw becomes r. ApplyError (HP420)."""
    mappings = _mappings(program, name)
    before = {one.name: one.access for one in mappings if one.name not in program.sealed}
    now = {name: tuple((who, "r") for who, _ in access) for name, access in before.items()}
    return replace(_with_access(program, now), sealed={**program.sealed, **before})


def unsealed(program: Program, name: str) -> Program:
    """What was sealed has its access again. ApplyError (HP420)."""
    again = {one.name: program.sealed[one.name] for one in _mappings(program, name) if one.name in program.sealed}
    rest = {mapping: access for mapping, access in program.sealed.items() if mapping not in again}
    return replace(_with_access(program, again), sealed=rest)


def remapped(program: Program, name: str, *, device: str | None, keep_bytes: bool) -> Difference:
    """New memory under the same addresses, for a region, a reservation's mappings, one mapping or an allocation.

    device: where the new memory is; None: where the old is. keep_bytes: the bytes come along. Raises ApplyError
    (HP420): memory that cannot be made anew, no such device.
    """
    there, program = program, pieces.as_planned(program)
    kind = require(program, name, "region", "reservation", "mapping", "allocation")
    names = _allocation(program, name) if kind == "allocation" else {one.memory for one in _mappings(program, name)}
    old = {step.name: step for step in program.steps if step.name in names and not isinstance(step, steps.SetAccess)}
    imported = next((one for one, step in old.items() if not isinstance(step, steps.CreateAllocation)), None)
    if imported is not None:
        raise refuse(f"'{imported}' is imported: it cannot be made anew here")
    made = program if device is None else _moved(program, names, device)
    way = pieces.lead(there, made, names)
    return replace(way, carries=tuple(_carries(way, pieces.named(there, names)))) if keep_bytes else way


def _mappings(program: Program, name: str) -> list[Resource]:
    """The mappings that a name means. ApplyError (HP420)."""
    kind = require(program, name, "region", "reservation", "mapping", "allocation")
    mappings = [one for one in program.resources if one.kind == "mapping"]
    if kind == "mapping":
        (one,) = (one for one in mappings if one.name == name)
        if one.inside in program.regions:
            raise refuse(f"'{name}' is a piece of the region '{one.inside}'", hint=f"name '{one.inside}'")
        return [one]
    if kind == "allocation":
        raise refuse(f"'{name}' is memory without an address", hint="name its mapping or reservation")
    return [one for one in mappings if one.inside == name]


def _allocation(program: Program, name: str) -> set[str]:
    """It alone. ApplyError (HP420): it is a piece of a region."""
    inside = next((one.inside for one in program.resources if one.memory == name and one.inside in program.regions), "")
    if inside:
        raise refuse(f"'{name}' is a piece of the region '{inside}'", hint=f"name '{inside}'")
    return {name}


def _with_access(program: Program, access: dict[str, Access]) -> Program:
    """With other access for these mappings."""
    ordinals = program.devices | {HOST: steps.CPU_ORDINAL}

    def stepped(step: steps.Step) -> steps.Step:
        if not isinstance(step, steps.SetAccess) or step.name not in access:
            return step
        return replace(step, rights=tuple((ordinals[who], right) for who, right in access[step.name]))

    return replace(program, steps=tuple(map(stepped, program.steps)))


def _moved(program: Program, names: set[str], device: str) -> Program:
    """With these allocations on another device."""
    if device not in program.devices:
        hint = suggest(device, program.devices) or f"the plan has: {', '.join(program.devices)}"
        raise refuse(f"there is no device '{device}'", hint=hint)
    ordinal = program.devices[device]
    regions = {
        name: _on(placed, device) if memory_of(name, 0) in names else placed for name, placed in program.regions.items()
    }

    def stepped(step: steps.Step) -> steps.Step:
        if isinstance(step, steps.CreateAllocation) and step.name in names:
            return replace(step, device=ordinal, location="device")
        return step

    return replace(program, steps=tuple(map(stepped, program.steps)), regions=regions)


def _on(placed: PlacedRegion, device: str) -> PlacedRegion:
    """A region with all of its memory on one device."""
    chunks = tuple((device, size) for _, size in placed.chunks)
    return replace(placed, region=placed.region._replace(devices=(device,)), chunks=chunks)


def _carries(way: Difference, names: Set[str]) -> Iterator[steps.Step]:
    """For each allocation: both mapped at a place of their own, readable by their devices, then copied."""
    machine = way.new.measured
    new = {step.name: step for step in way.new.steps if isinstance(step, steps.CreateAllocation)}
    for was in way.old.steps:
        if not isinstance(was, steps.CreateAllocation) or was.name not in names:
            continue
        name, size, now = was.name, was.size, new[was.name]
        both = (
            machine is not None
            and machine.can_access(was.device, now.device)
            and machine.can_access(now.device, was.device)
        )
        place = f"{name} (copy)"
        yield steps.Reserve(name=place, size=2 * size, asked=2 * size, alignment=0, slack=0, address=0, exact=False)
        source, target = f"{name} (copied from)", f"{name} (copied to)"
        for piece, at, memory, device in ((source, 0, before(name), was.device), (target, size, name, now.device)):
            yield steps.Map(name=piece, reservation=place, allocation=memory, offset=at, size=size, asked=size)
            who = sorted({was.device, now.device}) if both else [device]
            yield steps.SetAccess(name=piece, rights=tuple((one, "rw") for one in who))
        yield CopyBytes(
            name=name,
            source=source,
            source_device=was.device,
            target=target,
            target_device=now.device,
            size=size,
        )
