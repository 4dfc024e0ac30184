"""Recreates mapped memory under the same addresses. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace

from hipplan.errors import suggest
from hipplan.program import pieces, steps
from hipplan.program.alterations import CopyBytes, before, refuse
from hipplan.program.difference import Difference
from hipplan.program.memory import right_to_copy_from
from hipplan.program.program import Program
from hipplan.program.regions import PlacedRegion, mapping_of, memory_of
from hipplan.program.resize import require
from hipplan.program.resources import Access
from hipplan.program.sealing import mappings_of, with_access


def remapped(program: Program, names: Iterable[str], *, device: str | None, keep_bytes: bool) -> Difference:
    """The change that puts new memory under the addresses of regions, reservations, mappings or allocations.

    device: where the new memory is; None: where the old is. keep_bytes: copy the bytes. Raises ApplyError
    (HP420): memory that cannot be recreated, no such device.
    """
    there, program = program, pieces.as_planned(program)
    memory = {allocation for name in names for allocation in _memory(program, name)}
    old = {step.name: step for step in program.steps if step.name in memory and not isinstance(step, steps.SetAccess)}
    imported = next((name for name, step in old.items() if not isinstance(step, steps.CreateAllocation)), None)
    if imported is not None:
        raise refuse(f"'{imported}' is imported: it cannot be recreated here")
    made = program if device is None else _moved(program, memory, device)
    change = pieces.lead(there, made, memory)
    return replace(change, carries=tuple(_carries(change, pieces.named(there, memory)))) if keep_bytes else change


def _memory(program: Program, name: str) -> set[str]:
    """The allocations of a region, reservation, mapping or allocation. ApplyError (HP420): they cannot be recreated."""
    kind = require(program, name, "region", "reservation", "mapping", "allocation")
    shared = next(
        (region for region in program.shared if name.startswith((f"{region}[", f"{region}#")) or name == region), ""
    )
    if shared:
        raise refuse(
            f"'{shared}' is mapped by other ranks: its memory cannot move",
            hint="close the layout and apply the plan again",
        )
    if kind == "allocation":
        return _allocation(program, name)
    return {mapping.memory for mapping in mappings_of(program, name)}


def _allocation(program: Program, name: str) -> set[str]:
    """The allocation with this name. ApplyError (HP420): it is a chunk of a region."""
    inside = next(
        (
            resource.inside
            for resource in program.resources
            if resource.memory == name and resource.inside in program.regions
        ),
        "",
    )
    if inside:
        raise refuse(f"'{name}' is a piece of the region '{inside}'", hint=f"name '{inside}'")
    return {name}


def _moved(program: Program, names: set[str], device: str) -> Program:
    """The program with these allocations on another device."""
    if device not in program.devices or steps.RANK_SIGN in device:
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

    moved = replace(program, steps=tuple(map(stepped, program.steps)), regions=regions)
    owned = dict(_to_owner(regions[name] for name in regions if regions[name] is not program.regions[name]))
    return _with_owner(moved, owned) if owned else moved


def _to_owner(moved: Iterable[PlacedRegion]) -> Iterator[tuple[str, Access]]:
    """(mapping, who may use it) of moved regions whose access is that of the owner, which is another device now."""
    for placed in moved:
        if placed.region.follows_owner:
            for number, (device, _) in enumerate(placed.chunks):
                access = placed.region.access_to(device).items()
                given = tuple((who, right) for who, right in access if right != "none")
                yield mapping_of(placed.region.name, number), given


def _with_owner(program: Program, access: Mapping[str, Access]) -> Program:
    """The program with this access. Sealed mappings get it when they are unsealed."""
    sealed = {mapping: access.get(mapping, before) for mapping, before in program.sealed.items()}
    now = {
        mapping: tuple((who, "r") for who, _ in given) if mapping in sealed else given
        for mapping, given in access.items()
    }
    return replace(with_access(program, now), sealed=sealed)


def _on(placed: PlacedRegion, device: str) -> PlacedRegion:
    """A region with all of its memory on one device. Where the plan writes no access, the device gets that of the one
    which had the memory; of several all keep theirs.

    Raises ApplyError (HP420): a region whose access the plan writes would be out of reach for the device.
    """
    chunks = tuple((device, size) for _, size in placed.chunks)
    region, access = placed.region, placed.region.access
    if region.spec.access is None:
        access = {**(access if len(region.devices) > 1 else {}), device: "rw"}
    elif not region.follows_owner and device not in access and any(holder in access for holder in region.devices):
        why = f"the plan's access has {', '.join(region.devices)}, and {device} would hold the memory"
        hint = f"write access: {{owner: rw}} into the plan, or add {device}: rw"
        raise refuse(f"no access to '{region.name}' for {device}", why=why, hint=hint)
    return replace(placed, region=region._replace(devices=(device,), access=access), chunks=chunks)


def _carries(change: Difference, names: Set[str]) -> Iterator[steps.Step]:
    """The steps that copy the bytes of each allocation. The new memory is mapped at a temporary place for this, and so
    is the old memory, unless it already has a mapping that the copying devices may read."""
    machine = change.new.measured
    new = {step.name: step for step in change.new.steps if isinstance(step, steps.CreateAllocation)}
    in_place = _Places(change.old)
    for was in change.old.steps:
        if not isinstance(was, steps.CreateAllocation) or was.name not in names:
            continue
        name, size, now = was.name, was.size, new[was.name]
        both = (
            machine is not None
            and machine.can_access(was.device, now.device)
            and machine.can_access(now.device, was.device)
        )
        who = {ordinal: {was.device, now.device} if both else {ordinal} for ordinal in (was.device, now.device)}
        place, there = f"{name} (copy)", in_place.readable(was, who[was.device], right_to_copy_from(machine))
        mapped = [(f"{name} (copied to)", name, now.device)]
        if there is None:
            mapped.append((f"{name} (copied from)", before(name), was.device))
        taken = len(mapped) * size
        yield steps.Reserve(place, None, size=taken, asked=taken, alignment=0, slack=0, address=0, exact=False)
        for number, (piece, memory, device) in enumerate(mapped):
            at = number * size
            yield steps.Map(piece, None, reservation=place, allocation=memory, offset=at, size=size, asked=size)
            yield steps.SetAccess(piece, None, rights=tuple((ordinal, "rw") for ordinal in sorted(who[device])))
        yield CopyBytes(
            name=name,
            origin=None,
            source=mapped[-1][0] if there is None else there,
            in_place=there is not None,
            source_device=was.device,
            target=mapped[0][0],
            target_device=now.device,
            size=size,
        )


class _Places:
    """The mappings of a program that map a whole allocation."""

    def __init__(self, program: Program) -> None:
        self._maps: dict[str, list[steps.Map]] = {}
        for step in program.steps:
            if isinstance(step, steps.Map):
                self._maps.setdefault(step.allocation, []).append(step)
        self._rights = {step.name: dict(step.rights) for step in program.steps if isinstance(step, steps.SetAccess)}

    def readable(self, allocation: steps.CreateAllocation, devices: Set[int], right: str) -> str | None:
        """A mapping that all of these devices may read. right: what devices need that do not hold the memory."""
        needed = {device: "r" if device == allocation.device else right for device in devices}
        for mapping in self._maps.get(allocation.name, ()):
            rights = self._rights.get(mapping.name, {})
            if mapping.size == allocation.size and all(
                right in rights.get(device, "") for device, right in needed.items()
            ):
                return mapping.name
        return None
