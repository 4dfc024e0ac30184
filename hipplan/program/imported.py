"""Memory of another process in a program: its range of addresses, what is imported, the mapping and its rights.

Processes that attach to a holder map memory so, and its fillers, and the ranks of a node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hipplan.errors import Span
from hipplan.kinds.allocation.live import CreateAllocation, ImportAllocation
from hipplan.kinds.mapping.live import Map, Rights, SetAccess
from hipplan.kinds.reservation.live import Reserve
from hipplan.language.host import HOST
from hipplan.language.objects import bare_uuid
from hipplan.machines.machine import FALLBACK_GRANULARITY, Machine, MachineDevice
from hipplan.program.steps import CPU_ORDINAL, UNSEEN
from hipplan.units import PAGE, round_up


def range_for(name: str, size: int, alignment: int = 0, origin: Span | None = None) -> Reserve:
    """The step that reserves a range, wherever the driver puts it."""
    return at_any_address(Reserve(name, origin, size, size, alignment, slack=0, address=0, exact=False))


def at_any_address(step: Reserve) -> Reserve:
    """The same range, wherever the driver puts it."""
    slack = round_up(step.alignment, FALLBACK_GRANULARITY) if step.alignment > PAGE else 0
    return replace(step, address=0, exact=False, slack=slack)


def import_of(step: CreateAllocation, names: Mapping[int, str], ordinals: Mapping[int, int | None]) -> ImportAllocation:
    """The step that imports an allocation which another process has made.

    names, ordinals: a device's name, and its ordinal in this process, by its ordinal in the one that made it.
    """
    ordinal = ordinals[step.device] if step.location == "device" else CPU_ORDINAL
    return ImportAllocation(
        step.name,
        step.origin,
        bind=step.name,
        device=UNSEEN if ordinal is None else ordinal,
        size=step.size,
        asked=step.asked,
        holder=names[step.device] if step.location == "device" else HOST,
    )


def mapping_steps(
    memory: CreateAllocation | ImportAllocation, name: str, range_: str, offset: int, rights: Rights
) -> tuple[Map, SetAccess]:
    """The steps that map memory into a range, and give these rights on the mapping, which has this name."""
    made = Map(name, memory.origin, range_, memory.name, offset, memory.size, memory.size)
    return made, SetAccess(name, memory.origin, rights)


def ordinal_here(device: MachineDevice, ordinal: int, here: Machine) -> int | None:
    """The ordinal in this process of a device that another process sees; None if this one does not see it.

    ordinal: in the other process; it counts where the device has no id.
    """
    for key in ("uuid", "pci"):
        if (wanted := getattr(device, key)) is not None:
            ids = (bare_uuid(getattr(candidate, key) or "") for candidate in here.devices)
            return next((number for number, id_ in enumerate(ids) if id_ == bare_uuid(wanted)), None)
    return ordinal if ordinal < len(here.devices) else None


def no_link(machine: Machine, who: int, source: int) -> str:
    """Why a device cannot be given access to memory on another one; empty if it can."""
    if min(who, source) < 0 or machine.can_access(who, source):
        return ""
    return f"{machine.name} has no link from device {who} to device {source}"
