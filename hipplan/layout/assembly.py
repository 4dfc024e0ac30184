"""From a plan to the program that a command or call applies: which runtime, which machine, compared with which lock."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from hipplan.language.loader import LoadedPlan
from hipplan.layout.prepare import prepare
from hipplan.machines.machine import Machine
from hipplan.machines.profiles import load_machine
from hipplan.machines.runtimes import Chosen, choose
from hipplan.program.lock import Locked, sizes_of
from hipplan.program.open_sizes import NONE_KNOWN, Sizes
from hipplan.program.program import Program

_NOTHING: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class Target:
    """What a plan is applied on."""

    chosen: Chosen
    profile: Machine | None = None
    """What the simulator simulates."""
    lock: Locked | None = None
    """What the program must equal, with its addresses."""

    def program(
        self, plan: LoadedPlan, beside: Mapping[str, int] = _NOTHING, kept: Sizes = NONE_KNOWN
    ) -> tuple[Program, str]:
        """The plan's program here, and a notice about its lock; empty if there is none.

        beside: as of prepare(). kept: bytes by name, for what plan and lock leave open. Raises as prepare(); PlanError
        (HP320), MachineError (HP321): it differs from the lock.
        """
        program = prepare(plan, self.chosen, self.profile, beside, {**kept, **sizes_of(self.lock)})
        if self.lock is None:
            return program, ""
        program = self.lock.placed(program, self.profile)
        return program, self.lock.notice(program, self.profile)


def target(
    runtime: str | os.PathLike[str] | None,
    machine: Machine | str | os.PathLike[str] | None = None,
    locked: str | os.PathLike[str] | None = None,
) -> Target:
    """What these arguments of hipplan.apply mean. Raises MachineError, PlanError (the lock), RuntimeUnavailable."""
    profile = None if machine is None else load_machine(machine)
    lock = None if locked is None else Locked(locked)
    return Target(choose(runtime, profile), profile, lock)
