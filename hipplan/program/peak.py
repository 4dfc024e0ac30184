"""What steps take of each device and of the host, and what a change needs while old and new memory exist together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from hipplan.errors import Diagnostic
from hipplan.language.findings import Findings
from hipplan.machines.machine import Machine
from hipplan.program import steps
from hipplan.program.alterations import refuse
from hipplan.program.difference import Difference
from hipplan.program.program import descriptors_of
from hipplan.units import about_size, format_size

Taking = (
    steps.CreateAllocation
    | steps.CreateDeviceBuffer
    | steps.CreatePinnedBuffer
    | steps.RegisterBuffer
    | steps.CreateManagedBuffer
)
"""Steps that may take memory which is free before."""

_MAPPED = frozenset({steps.Map, steps.SetAccess})

OPEN_FILES_MARGIN = 64
"""Descriptors left for everything else in the process."""


def check(way: Difference, machine: Machine, findings: Findings) -> None:
    """HP301, HP303, HP308: what a change needs while what goes is still there. machine: as if nothing of it were."""
    there, made = taken(way.old.steps, machine), taken((*way.additions, *way.changes), machine)
    for name, ordinal in way.new.devices.items():
        device, both = machine.devices[ordinal], bytes_of(there[ordinal]) + bytes_of(made[ordinal])
        short = 0 if device.memory is None else device.in_use + both - device.memory
        if made[ordinal] and short > 0:
            summary = f"{name} needs {about_size(short)} more than is free while old and new memory exist together"
            findings.add(_too_much("HP301", summary, there[ordinal], made[ordinal], about_size))
    on_host, coming = there[steps.CPU_ORDINAL], made[steps.CPU_ORDINAL]
    both = bytes_of(on_host) + bytes_of(coming)
    if machine.host_memory is not None and coming and both > machine.host_memory:
        room = format_size(machine.host_memory)
        summary = f"old and new memory together need {format_size(both)} of host memory, the host has {room}"
        findings.add(_too_much("HP303", summary, on_host, coming, format_size))
    count = descriptors_of((*way.old.steps, *way.additions, *way.changes))
    limit = machine.limits.open_files
    if machine.runtime == "amd" and limit and count + OPEN_FILES_MARGIN > limit:
        summary = f"old and new allocations together need {count} file descriptors; the limit is {limit}"
        findings.add(Diagnostic("HP308", summary, hint="remove in one update and add in the next"))


def require_capacity(way: Difference) -> None:
    """Raises ApplyError (HP420): a change needs more memory than a device has, however much of it is free."""
    machine = way.old.measured
    if machine is None:
        return
    made = taken(way.additions, machine)
    there = taken(way.old.steps, machine) if made else made
    for name, ordinal in way.new.devices.items():
        total = machine.devices[ordinal].memory
        stay, come = bytes_of(there[ordinal]), bytes_of(made[ordinal])
        if come and total is not None and stay + come > total:
            why = f"{format_size(stay)} of the layout stay until the end, {format_size(come)} are added"
            raise refuse(f"{name} has {about_size(total)}, {about_size(stay + come - total)} too little", why=why)


def bytes_of(some: Iterable[Taking]) -> int:
    return sum(step.size for step in some)


def _too_much(
    code: str, summary: str, there: Sequence[Taking], coming: Sequence[Taking], shown: Callable[[int], str]
) -> Diagnostic:
    """Of one place, where what is there stays until what comes is there too."""
    largest = max(coming, key=lambda step: step.size)
    stay, come = shown(bytes_of(there)), shown(bytes_of(coming))
    why = f"{stay} of the layout stay until the end, {come} are added; '{largest.name}' is the largest"
    hint = "remove in one update and add in the next, or close the layout and apply the plan"
    return Diagnostic(code, summary, largest.origin, why=why, hint=hint)


def taken(some: Iterable[steps.Step], machine: Machine) -> dict[int, list[Taking]]:
    """The steps that take memory, by the ordinal of what they take it of."""
    found: dict[int, list[Taking]] = defaultdict(list)
    for step in some:
        if type(step) in _MAPPED:  # thousands, and they take none
            continue
        if isinstance(step, steps.CreateAllocation):
            found[step.device if step.location == "device" else steps.CPU_ORDINAL].append(step)
        elif isinstance(step, steps.CreateDeviceBuffer):
            found[step.device].append(step)
        elif isinstance(step, steps.CreateManagedBuffer):
            if machine.runtime != "cuda" and machine.devices[step.device].xnack is False:
                found[steps.CPU_ORDINAL].append(step)  # pages that cannot migrate on a fault are the host's
        elif isinstance(step, (steps.CreatePinnedBuffer, steps.RegisterBuffer)):
            found[steps.CPU_ORDINAL].append(step)
    return found
