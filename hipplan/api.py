"""apply(): load, measure, compile, run."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hipplan.language.loader import LoadedPlan, PlanSource, loaded
from hipplan.layout.assembly import target
from hipplan.layout.bound import bindings_for
from hipplan.layout.layout import Layout
from hipplan.layout.options import OnBytes, OnStep, Options
from hipplan.layout.prepare import with_others
from hipplan.layout.record import recording
from hipplan.layout.run import run
from hipplan.machines.machine import Machine
from hipplan.plain import flag, seconds

if TYPE_CHECKING:
    from hipplan.ranks.agreement import LayoutRanks
    from hipplan.ranks.groups import Group

log = logging.getLogger("hipplan")


def apply(
    plan: LoadedPlan | PlanSource,
    *,
    vars: Mapping[str, Any] | None = None,  # noqa: A002
    runtime: str | os.PathLike[str] | None = None,
    machine: Machine | str | os.PathLike[str] | None = None,
    bind: Mapping[str, Any] | None = None,
    on_step: OnStep | None = None,
    on_bytes: OnBytes | None = None,
    verify: bool = True,
    record: str | os.PathLike[str] | None = None,
    locked: str | os.PathLike[str] | None = None,
    answer: bool = False,
    group: Group | None = None,
    timeout: float = 60.0,
) -> Layout:
    """Applies a plan: makes everything and reads it back, or makes nothing. Returns the layout.

    plan: a path, text, a stream, a dict, or the result of hipplan.load.
    vars: values for the plan's variables; only if the plan is not loaded yet.
    runtime: auto, amd, cuda, sim or a path; default HIPPLAN_RUNTIME, else auto. auto takes the simulator on machines
    without a GPU's driver only.
    machine: a profile (or its name, or its path) for the simulator to simulate; only with the simulator.
    record: a file that records each step (JSON lines; `hipplan replay` shows it).
    locked: a file that `hipplan lock` wrote: applies exactly that, with the same addresses, or raises an error.
    bind: memory for `bind:` buffers (buffer protocol), descriptors for `bind:` allocations, by name; a name that the
    plan does not have is an error (HP405).
    on_step: called before each step with its number, from 0, and the step; an exception in it rolls back.
    on_bytes: called while contents are copied, with the bytes done and the bytes of the step; an exception rolls back.
    answer: lets `hipplan verify` in another process of this user ask for a check; a thread of this process answers.
    group: the ranks that apply together (hipplan.group): all of them commit, or none does. Each rank applies its own
    part of a plan with `ranks:`, else its own plan.
    timeout: with a group, how many seconds a rank that is ready waits for the others.
    verify: reads back from the driver what was made, and compares it with the plan; False skips that.

    Raises PlanError (the plan is invalid, or differs from the lock), MachineError (this machine cannot hold it, or
    differs from the lock), RuntimeUnavailable, ApplyError (rolled back; `leaks` names what could not be released),
    RecordError (the record cannot be written). With a group also GroupError (another rank failed or did not answer;
    rolled back) and GroupInDoubt (the decision of the group cannot be read).
    """
    options = Options(on_step=on_step, on_bytes=on_bytes, verify=verify).checked()
    answer, timeout = flag(answer, "answer"), seconds(timeout, "timeout")
    ranks = None if group is None else _ranks(group, timeout)
    with nullcontext() if ranks is None else ranks.agreeing("apply") as agreement:
        known = loaded(plan, vars, None if agreement is None else agreement.rank)
        with recording(record, known, locked=locked) as recorder:
            passed = bindings_for(known, bind)
            where = target(runtime, machine, locked)
            native, notice = where.chosen.runtime, where.chosen.notice
            program, of_lock = where.program(known)
            for text in filter(None, (notice, of_lock)):
                log.warning("%s", text)
            if agreement is not None:
                program = with_others(program, agreement, native)
            options = replace(options, bind=passed, record=recorder, together=agreement)
            layout = run(program, native, options, notice=notice, ranks=ranks)
    if answer:
        _answer(layout)
    return layout


def _ranks(group: Group, timeout: float) -> LayoutRanks:
    from hipplan.ranks.agreement import LayoutRanks  # which an apply by itself need not wait for

    return LayoutRanks(group, timeout)


def _answer(layout: Layout) -> None:
    from hipplan.processes.answering import answer_in_thread  # with hooks that other processes do not need

    answer_in_thread(layout)
