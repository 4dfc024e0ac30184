"""compile(plan, machine) -> Program: what a plan is on a machine whose HIP can make it.

Pure: no clock, no driver, no files once both are loaded, so the same plan and machine give the same steps.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Set

from hipplan.errors import MachineError
from hipplan.language.findings import Findings
from hipplan.language.loader import LoadedPlan, PlanSource
from hipplan.lowering.lowered import Lowering, lower, lowered
from hipplan.machines.machine import Machine
from hipplan.program import peak
from hipplan.program.compiler import planned, planned_change
from hipplan.program.difference import Difference
from hipplan.program.open_sizes import NONE_KNOWN, Sizes
from hipplan.program.program import Program

Meet = Callable[[Program], Program]


def alone(program: Program) -> Program:
    """The program of a rank that maps no memory of others."""
    return program


def compile(  # noqa: A001
    plan: LoadedPlan | PlanSource,
    machine: Machine | str | os.PathLike[str],
    current_device: int = 0,
    sizes: Sizes = NONE_KNOWN,
) -> Program:
    """Compile a plan for a machine. Arguments that are not loaded yet are passed to load() and machine() first.

    current_device: the ordinal that `current: true` selectors mean. sizes: bytes by name, such as those of a lock, for
    what the plan leaves open (size: fill); the rest is decided for the machine.
    Raises MachineError with every reason why this machine cannot hold the plan (HP3xx).
    """
    program = planned(plan, machine, current_device, sizes)
    lowered(program)  # raises if this release of HIP cannot make it
    return program


def compile_change(
    old: Program,
    plan: LoadedPlan,
    machine: Machine,
    renewed: Set[str] = frozenset(),
    meet: Meet = alone,
    before: Program | None = None,
) -> Difference:
    """The change from a program to a plan. The machine's `in_use` must not count the memory of the program.

    meet: adds to the plan's program what it maps of other ranks. before: the lowered form of the program; default: as
    an apply makes it.

    Raises MachineError: the machine cannot hold the plan, or not old and new objects at once during the change.
    """
    return lowered_change(old, plan, machine, renewed, meet, before).planned


def lowered_change(
    old: Program, plan: LoadedPlan, machine: Machine, renewed: Set[str], meet: Meet, before: Program | None
) -> Lowering:
    """The change of compile_change(), with what the driver is asked for."""
    change = lower(planned_change(old, plan, machine, renewed, meet), lowered(old) if before is None else before)
    findings = Findings()
    peak.check(change.lowered, machine, findings)
    if findings.errors:
        raise MachineError(findings.all)
    return change
