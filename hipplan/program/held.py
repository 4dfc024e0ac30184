"""Programs whose memory outlives the process that made it: what a holder can hold, and what an attaching process maps.

A holder keeps descriptors of allocations. A process that attaches imports them, reserves and maps at the program's
addresses, and gives devices the rights that the program has for attached processes: the same names at the same places.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from typing import Literal

from hipplan.errors import Diagnostic, HeldError, MachineError, PlanError
from hipplan.language.findings import Findings, in_order
from hipplan.language.objects import HOST, bare_uuid
from hipplan.machines.machine import FALLBACK_GRANULARITY, Machine, MachineDevice
from hipplan.program import contents, pieces, steps
from hipplan.program.addresses import addresses_for
from hipplan.program.parts import STRIDE
from hipplan.program.program import Program
from hipplan.program.resources import Access as Rights
from hipplan.program.resources import Resource
from hipplan.units import PAGE, round_up

Right = Literal["r", "rw"]
Access = Literal["plan", "r", "rw"]
"""Of an attached process: what the plan allows it for each object, or one right for all of them."""
Addresses = Literal["same", "any"]

_WHY = {
    "peer": "a peer link is its process's own; access: says who may use memory, and needs no link",
    "stream": "a stream is its process's own",
    "device": "hipMalloc's memory ends with its process",
    "pinned": "pinned memory ends with its process",
    "registered": "registered memory is its process's own",
    "managed": "managed memory ends with its process",
    "allocation": "it is imported: the process that made it holds it",
}
"""By what a step makes."""


def fixed(program: Program) -> frozenset[str]:
    """Reservations whose place the plan itself demands."""
    return frozenset(step.name for step in program.steps if isinstance(step, steps.Reserve) and step.exact)


def writable(program: Program) -> list[str]:
    """What the plan lets attached processes write: regions, reservations and, where they differ, single mappings.

    Sealed memory counts, because they can unseal it.
    """
    writes: dict[str, list[str]] = {}
    reads: set[str] = set()
    for mapping in _mappings(program):
        if mapping.attached == "rw" and _has_writers(mapping, program):
            writes.setdefault(mapping.inside, []).append(mapping.name)
        else:
            reads.add(mapping.inside)
    whole = program.regions.keys() | (writes.keys() - reads)
    return [name for range_, names in writes.items() for name in ([range_] if range_ in whole else names)]


def only_read(program: Program, access: Access) -> dict[str, Right]:
    """Mappings that devices may write by the plan, but not those of a process attached with this access -> what the
    plan lets attached processes do with them."""
    return {
        mapping.name: mapping.attached
        for mapping in _mappings(program)
        if _most(mapping, access) == "r" and _has_writers(mapping, program)
    }


def _mappings(program: Program) -> Iterator[Resource]:
    return (resource for resource in program.resources if resource.memory)


def _has_writers(mapping: Resource, program: Program) -> bool:
    """Whether some device may write a mapping, once it is unsealed."""
    return "rw" in dict(program.sealed.get(mapping.name, mapping.access)).values()


def _most(mapping: Resource, access: Access) -> Right:
    return mapping.attached if access == "plan" else access


def holdable(program: Program, as_they_are: Container[str] = ()) -> Program:
    """The same program, and all its memory can be exported; its ranges are as large as CUDA takes addresses for.

    as_they_are: ranges that stay. Raises PlanError (HP450), MachineError (HP309).
    """
    refused = list(_refused(program))
    if refused:
        raise PlanError(in_order(refused))
    whole = pieces.as_planned(program)

    def made(step: steps.Step) -> steps.Step:
        if isinstance(step, steps.CreateAllocation):
            return replace(step, shareable="posix_fd")
        if isinstance(step, steps.Reserve) and step.name not in as_they_are:
            return replace(step, size=round_up(step.size, STRIDE))
        return step

    findings = Findings()
    fitted = pieces.fitted(replace(whole, steps=tuple(map(made, whole.steps))), findings, is_held=True)
    if findings.errors:
        raise MachineError(in_order(findings.all))
    return fitted


def _refused(program: Program) -> Iterator[Diagnostic]:
    hint = "remove it, and apply it in the process that uses it: holders hold allocations and regions"
    for name, shared in program.shared.items():
        why = "map: is for ranks that apply together; attached processes can map all of it"
        yield Diagnostic("HP450", f"a holder cannot hold '{name}' for ranks", shared.origin, why=why)
    lanes = contents.lane_names(program)
    for step in program.making:
        kept = isinstance(step, steps.CreateAllocation) or step.makes in ("", "reservation", "mapping")
        if not kept and step.name not in lanes:
            why = _WHY[step.makes]
            yield Diagnostic("HP450", f"a holder cannot hold '{step.name}'", step.origin, why=why, hint=hint)
    if not any(isinstance(step, steps.CreateAllocation) for step in program.making):
        yield Diagnostic("HP450", "there is nothing for a holder to hold", why="the plan makes no memory of devices")


def at_known_places(program: Program) -> Program:
    """With addresses that `hipplan lock` chooses, so that they are free in a process that attaches."""
    at = addresses_for(program)

    return replace(program, steps=tuple(_placed(step, at) for step in program.steps))


def as_held(program: Program, at: Mapping[str, int]) -> Program:
    """What a process can attach to, without the text of the plan. at: where each reservation is."""
    lanes = contents.lane_names(program)
    held = tuple(_placed(replace(step, origin=None), at) for step in program.making if step.name not in lanes)
    return replace(program, steps=held, warnings=(), source=program.name)


def _placed(step: steps.Step, at: Mapping[str, int]) -> steps.Step:
    if not isinstance(step, steps.Reserve):
        return step
    return replace(step, address=at[step.name], exact=True, slack=0)


def _unplaced(step: steps.Step) -> steps.Step:
    if not isinstance(step, steps.Reserve):
        return step
    slack = round_up(step.alignment, FALLBACK_GRANULARITY) if step.alignment > PAGE else 0
    return replace(step, address=0, exact=False, slack=slack)


def descriptors_held(program: Program) -> list[str]:
    """The allocations, in the order in which their descriptors are sent."""
    return [step.name for step in program.steps if isinstance(step, steps.CreateAllocation)]


def imported(program: Program) -> list[str]:
    """The same, of a program that maps them."""
    return [step.name for step in program.steps if isinstance(step, steps.ImportAllocation)]


def bytes_held(program: Program) -> dict[str, int]:
    """Device -> bytes, as readable text."""
    return {name: size for name, size in program.bytes_by_device().items() if size}


def bytes_by_uuid(program: Program) -> dict[str, int]:
    """UUID of a device -> bytes, because device names differ between processes."""
    devices = program.measured.devices if program.measured else []
    own = ((devices[program.devices[name]].uuid, size) for name, size in bytes_held(program).items() if devices)
    return {bare_uuid(uuid or ""): size for uuid, size in own}


def attached(program: Program, here: Machine, access: Access, addresses: Addresses) -> Program:
    """The program of a process that maps what is held. here: the machine as that process sees it.

    access: the rights are at most that; what is sealed stays so. Raises HeldError (HP454): a device is not here, or out
    of reach.
    """
    most = {mapping.name: _most(mapping, access) for mapping in _mappings(program)}
    same = ordinals_here(program, here)
    ordinals = {name: own for name, number in program.devices.items() if (own := same[number]) is not None}
    names = {number: name for name, number in program.devices.items()}

    def mapped(step: steps.Step) -> steps.Step | None:
        if isinstance(step, steps.CreateAllocation):
            return import_of(step, names, same)
        if addresses == "any":
            step = _unplaced(step)
        if isinstance(step, steps.SetAccess):
            limit = most[steps.whole_name(step.name)]
            known = ((who if who < 0 else same[who], min(right, limit)) for who, right in step.rights)
            rights = tuple((who, right) for who, right in known if who is not None)
            return replace(step, rights=rights) if rights else None
        return step

    whole = replace(
        program,
        machine=here.name,
        measured=here,
        steps=tuple(kept for step in program.steps if (kept := mapped(step)) is not None),
        devices=ordinals,
        selectors={name: program.selectors.get(name, "") for name in ordinals},
        host_visible=frozenset(name for name, ordinal in ordinals.items() if here.devices[ordinal].host_visible),
        sealed=_still_sealed(program, ordinals, most),
        attached={},
    )
    wrong = list(_out_of_reach(whole, here))
    if wrong:
        raise HeldError(in_order(wrong))
    return whole


def ordinals_here(program: Program, here: Machine) -> dict[int, int | None]:
    """Ordinal of a device in the process that made a program -> its ordinal in this one; None if it does not see it."""
    there = program.measured.devices if program.measured else []
    return {number: _same(there[number], number, here) for number in program.devices.values()}


def import_of(
    step: steps.CreateAllocation, names: Mapping[int, str], same: Mapping[int, int | None]
) -> steps.ImportAllocation:
    """The step by which another process takes an allocation. names, same: by ordinal in the process that made it."""
    ordinal = same[step.device] if step.location == "device" else steps.CPU_ORDINAL
    return steps.ImportAllocation(
        step.name,
        step.origin,
        bind=step.name,
        device=steps.UNSEEN if ordinal is None else ordinal,
        size=step.size,
        asked=step.asked,
        holder=names[step.device] if step.location == "device" else HOST,
    )


def _same(device: MachineDevice, ordinal: int, here: Machine) -> int | None:
    """The ordinal here of a device that another process sees; None if this one does not see it."""
    for key in ("uuid", "pci"):
        if (known := getattr(device, key)) is not None:
            ids = (bare_uuid(getattr(own, key) or "") for own in here.devices)
            return next((number for number, own_id in enumerate(ids) if own_id == bare_uuid(known)), None)
    return ordinal if ordinal < len(here.devices) else None


def _still_sealed(program: Program, ordinals: Mapping[str, int], most: Mapping[str, Right]) -> dict[str, Rights]:
    """What an attached process may unseal."""
    return {
        mapping: tuple((who, right) for who, right in before if who == HOST or who in ordinals)
        for mapping, before in program.sealed.items()
        if most[mapping] == "rw"
    }


def _out_of_reach(program: Program, here: Machine) -> Iterator[Diagnostic]:
    """HP454, once for each pair of devices."""
    memory = {step.name: step for step in program.steps if isinstance(step, steps.ImportAllocation)}
    unseen = {step.holder: step.origin for step in memory.values() if step.device == steps.UNSEEN}
    for holder, origin in unseen.items():
        hint = "let it see that device: CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES"
        yield Diagnostic("HP454", f"this process does not see {holder}, which holds the memory", origin, hint=hint)
    behind = {step.name: memory[step.allocation] for step in program.steps if isinstance(step, steps.Map)}
    names = {ordinal: name for name, ordinal in program.devices.items()}
    pairs = {
        (who, behind[step.name].device): step
        for step in program.steps
        if isinstance(step, steps.SetAccess)
        for who, _ in step.rights
    }
    for (who, source), step in pairs.items():
        if who >= 0 and source >= 0 and not here.can_access(who, source):
            what = f"{names[who]} cannot be given access to '{step.name}'"
            why = f"{here.name} has no link from device {who} to device {source}"
            yield Diagnostic("HP454", what, step.origin, why=why)
