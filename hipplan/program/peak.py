"""The memory that steps take from each device and the host, and the peak of a change: old and new memory together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import chain
from operator import attrgetter

from hipplan.errors import Diagnostic
from hipplan.language.findings import Findings
from hipplan.machines.machine import Machine
from hipplan.program import huge_pages, steps
from hipplan.program.difference import Difference
from hipplan.program.facts import descriptors_of
from hipplan.program.refusals import refuse
from hipplan.program.runs import alike
from hipplan.program.series import Series
from hipplan.program.taking import Taking, taken_by, takers
from hipplan.units import about_size, format_size, full_size

OPEN_FILES_MARGIN = 64
"""Descriptors left for everything else in the process."""


def check(change: Difference, machine: Machine, findings: Findings) -> None:
    """HP301, HP303, HP308, HP315: what a change needs at its peak. machine: as if the layout's memory were free."""
    added: Series[steps.Step] = Series.joined((change.additions, change.changes))
    there, made = change.old.taken, taken(alike(added), machine)
    for name, ordinal in change.new.devices.items():
        device, both = machine.devices[ordinal], there.get(ordinal, 0) + bytes_of(made[ordinal])
        short = 0 if device.memory is None else device.in_use + both - device.memory
        if made[ordinal] and short > 0:
            summary = f"{name} needs {about_size(short)} more than is free while old and new memory exist together"
            findings.add(_too_much("HP301", summary, there.get(ordinal, 0), made[ordinal], about_size))
    on_host, coming = there.get(steps.CPU_ORDINAL, 0), made[steps.CPU_ORDINAL]
    both = on_host + bytes_of(coming)
    for size, says, _ in host_bounds(machine):
        if coming and both > size:
            summary = f"old and new memory together need {full_size(both)} of host memory, {says} {full_size(size)}"
            findings.add(_too_much("HP303", summary, on_host, coming, format_size))
            break
    comes_in_huge_pages = bool(huge_pages.taken(alike(change.additions)))  # those of the layout count as free
    both_steps = chain(alike(change.old.steps), alike(change.additions)) if comes_in_huge_pages else ()
    for lacking in huge_pages.shortages(both_steps, machine):
        summary = f"old and new buffers together need {lacking.what}"
        findings.add(Diagnostic("HP315", summary, hint="remove in one update and add in the next"))
    count = change.old.descriptors + descriptors_of(alike(added))
    limit = machine.limits.open_files
    if machine.runtime != "cuda" and limit and count + OPEN_FILES_MARGIN > limit:
        summary = f"old and new allocations together need {count} file descriptors; the limit is {limit}"
        why = f"{OPEN_FILES_MARGIN} are reserved for the process"
        hint = "raise the hard limit (ulimit -Hn), or change less at once"
        findings.add(Diagnostic("HP308", summary, why=why, hint=hint))


def host_bounds(machine: Machine) -> list[tuple[int, str, str]]:
    """(bytes of host memory that a plan may take, who says so, what to do) for each bound that is known."""
    smaller = "make the pinned, registered and managed buffers smaller"
    group = f"raise memory.max of the control group (docker --memory, a pod's limits), or {smaller}"
    pinned = f"amdgpu.no_system_mem_limit=1 lifts it; or {smaller}"
    larger = f"take a machine with more memory, or {smaller}"
    bounds = [
        (machine.host_memory, "the host has", smaller),
        (machine.limits.host_memory, "the control groups of this process allow", group),
        (machine.limits.backed_memory, "this machine itself has", larger),
        (machine.limits.pinned_memory, "AMD's driver pins at most", pinned),
    ]
    return [(size, says, do) for size, says, do in bounds if size is not None]


def require_capacity(change: Difference) -> None:
    """Raises ApplyError (HP420): a change needs more memory than a device has, however much of it is free."""
    machine = change.old.measured
    if machine is None:
        return
    made = taken_by(change.additions, machine)
    there = change.old.taken if made else {}
    for name, ordinal in change.new.devices.items():
        total = machine.devices[ordinal].memory
        stay, come = there.get(ordinal, 0), made.get(ordinal, 0)
        if come and total is not None and stay + come > total:
            why = f"{full_size(stay)} of the layout stay until the end, {full_size(come)} are added"
            raise refuse(f"{name} has {about_size(total)}, {about_size(stay + come - total)} too little", why=why)


Takings = list[tuple[Taking, int]]
"""(step, how many like it) of the steps that take memory from one device or the host."""


def bytes_of(taking: Takings) -> int:
    """What all of them take."""
    return sum([many * step.size for step, many in taking])


def largest_of(taking: Takings) -> Taking:
    """The first of those that take most."""
    return max((step for step, _ in taking), key=attrgetter("size"))


def _too_much(code: str, summary: str, there: int, coming: Takings, shown: Callable[[int], str]) -> Diagnostic:
    """The error for one device or the host: old memory stays until the new memory is made."""
    largest = largest_of(coming)
    stay, come = shown(there), shown(bytes_of(coming))
    why = f"{stay} of the layout stay until the end, {come} are added; '{largest.name}' is the largest"
    hint = "remove in one update and add in the next, or close the layout and apply the plan"
    return Diagnostic(code, summary, largest.origin, why=why, hint=hint)


def taken(some_steps: Iterable[tuple[steps.Step, int]], machine: Machine) -> dict[int, Takings]:
    """Returns the steps, each with how many are like it, that take memory, by the ordinal of the device that has it."""
    by_ordinal: dict[int, Takings] = defaultdict(list)
    for step, many in takers(some_steps):
        ordinal = step.taken_from(machine)
        if ordinal is not None:
            by_ordinal[ordinal].append((step, many))
    return by_ordinal
