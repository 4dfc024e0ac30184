"""apply(): load, measure, compile, run."""

from __future__ import annotations

import logging
import os
import resource
from collections.abc import Mapping
from typing import Any

from hipplan.compiler import compile as compile_plan
from hipplan.discover import discover
from hipplan.errors import Diagnostic, MachineError
from hipplan.layout import Layout
from hipplan.loader import LoadedPlan, PlanSource, load
from hipplan.lock import Locked
from hipplan.profiles import Machine, load_machine
from hipplan.program import Program
from hipplan.record import Recorder
from hipplan.runtimes import Chosen, choose
from hipplan.transaction import OnStep, run

log = logging.getLogger("hipplan")


def apply(
    plan: LoadedPlan | PlanSource,
    *,
    vars: Mapping[str, Any] | None = None,  # noqa: A002
    runtime: str | None = None,
    machine: Machine | str | None = None,
    bind: Mapping[str, Any] | None = None,
    on_step: OnStep | None = None,
    verify: bool = True,
    record: str | os.PathLike[str] | None = None,
    locked: str | os.PathLike[str] | None = None,
) -> Layout:
    """Applies a plan: everything is made, read back and handed out, or nothing is.

    plan: a path, a text, a stream, a dict, or what hipplan.load gave.
    vars: values for the plan's variables, when it is not loaded yet.
    runtime: auto, amd, cuda, sim or a path; default HIPPLAN_RUNTIME, else auto.
    machine: a profile (or its name) that the simulator becomes; only with the simulator.
    record: a file for what is done, step by step (JSON lines; `hipplan replay` shows it).
    locked: a file that `hipplan lock` made: exactly what it says, with the same addresses, or an error.
    bind: memory for `bind:` buffers (buffer protocol), descriptors for `bind:` allocations, by name.

    Raises PlanError (the plan is invalid, or not what is locked), MachineError (this machine cannot hold it, or is
    not what is locked), RuntimeUnavailable,
    ApplyError (rolled back; `leaks` names what could not be), RecordError (the record cannot be written).
    """
    loaded = plan if isinstance(plan, LoadedPlan) else load(plan, vars)
    profile = load_machine(machine) if isinstance(machine, str) else machine
    lock = None if locked is None else Locked(locked)
    recorder = None if record is None else Recorder(record)
    chosen = choose(runtime, profile)
    program = prepare(loaded, chosen, profile)
    if lock is not None:
        program = lock.hold(program)
    if chosen.notice:
        log.warning("%s", chosen.notice)
    return run(program, chosen.runtime, bind=bind, on_step=on_step, check=verify, notice=chosen.notice, record=recorder)


def prepare(plan: LoadedPlan, chosen: Chosen, profile: Machine | None) -> Program:
    """Compiles a plan for the machine that a runtime runs on. Raises MachineError, RuntimeUnavailable."""
    if profile is not None and chosen.kind != "sim":
        summary = f"the machine is measured with the runtime {chosen.kind}, it cannot be chosen"
        raise MachineError(Diagnostic("HP314", summary, hint="use --runtime sim, or leave --machine out"))
    if plan.plan.requires.gpu and chosen.kind == "sim":
        summary = "the plan requires a GPU, and this is the simulator"
        span = plan.span("requires", "gpu")
        raise MachineError(Diagnostic("HP313", summary, span, hint="run it where there is a GPU"))
    machine = discover(chosen)
    program = compile_plan(plan, machine, current_device=0)
    _raise_open_files(sum(step.call == "hipMemCreate" for step in program.steps))
    return program


def _raise_open_files(allocations: int) -> None:
    """AMD's runtime takes a descriptor for each allocation: lifts the soft limit as far as needed and allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = allocations + 256
    if soft != resource.RLIM_INFINITY and soft < needed:
        top = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        if top > soft:
            resource.setrlimit(resource.RLIMIT_NOFILE, (top, hard))
