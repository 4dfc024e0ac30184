"""Every plan of plans/: applied, read back, freed."""

from __future__ import annotations

from pathlib import Path

import pytest

from hipplan.errors import MachineError
from hipplan.language.loader import load
from hipplan.layout.prepare import prepare
from hipplan.layout.run import run
from hipplan.program.program import Program
from tests.conftest import PLANS
from tests.hardware.machine import Held, Machine

every_plan = pytest.mark.parametrize("plan", PLANS, ids=lambda path: path.stem)


def program_of(plan: Path, machine: Machine) -> Program:
    """Skips where this machine cannot hold the plan: preflight says why."""
    try:
        program = prepare(load(plan), machine.chosen, None)
    except MachineError as error:
        pytest.skip(str(error.diagnostics[0].summary))
    if any(resource.kind == "managed" for resource in program.resources):
        machine.wavers()
    return program


@every_plan
def test_a_plan_is_applied_verified_and_freed(plan: Path, machine: Machine) -> None:
    program = program_of(plan, machine)
    before = Held.by(machine)
    with run(program, machine.runtime) as layout:
        during = Held.by(machine)
        assert layout.drift() == []
        taken = program.bytes_by_device()
        for name, ordinal in program.devices.items():
            # Free memory may fall by more: drivers take whole blocks for small buffers.
            assert before.free[ordinal] - during.free[ordinal] >= taken[name] - machine.slack, name
    assert Held.by(machine).same(before, machine.slack)


@every_plan
def test_a_plan_leaves_the_current_device_alone(plan: Path, machine: Machine) -> None:
    program = program_of(plan, machine)
    last = machine.count - 1
    with machine.current(last):
        run(program, machine.runtime).close()
        # What is made now is on the device that was current before.
        import ctypes

        now = ctypes.c_int(-1)
        machine.call("hipGetDevice", ctypes.byref(now))
    assert now.value == last
