"""Failing each driver call of each plan in turn, on any runtime: faults are injected above it.

Where the runtime keeps no ledger, the tests free what was reported as lost, and free device memory must then
be the same as before.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hipplan.errors import ApplyError, LeakError
from hipplan.layout.run import run
from hipplan.program.program import Program
from tests.conftest import PLANS
from tests.hardware.machine import Held, Machine
from tests.hardware.test_plans import program_of

pytestmark = pytest.mark.in_parts

CODES = ["hipErrorOutOfMemory", "hipErrorUnknown"]
every_plan = pytest.mark.parametrize("plan", PLANS, ids=lambda path: path.stem)
every_code = pytest.mark.parametrize("code", CODES)


def counted(machine: Machine, program: Program) -> tuple[int, int]:
    """Driver calls of the apply and of the teardown."""
    machine.runtime.arm_faults("*@1000000000=1")  # never comes, but counts
    layout = run(program, machine.runtime)
    applying = machine.runtime.calls_counted()
    layout.close()
    both = machine.runtime.calls_counted()
    machine.disarm()
    return applying, both - applying


def applied(machine: Machine, program: Program, rule: str) -> tuple[bool, ApplyError | None]:
    """Applies under a fault, and closes without one. Gives whether the fault came, and what failed.

    How many calls an apply makes depends on where its batches end, and that on the time: a fault on one of the last
    calls may find its apply over already.
    """
    machine.runtime.arm_faults(rule)
    layout, failed = None, None
    try:
        layout = run(program, machine.runtime)
    except ApplyError as error:
        failed = error
    came = machine.runtime.faults_fired() > 0
    machine.disarm()
    if layout is not None:
        layout.close()
    return came, failed


@every_plan
@every_code
def test_a_call_that_fails_once_leaves_nothing(plan: Path, code: str, machine: Machine) -> None:
    program = program_of(plan, machine)
    before = Held.by(machine)
    faults = 0
    for n in range(1, counted(machine, program)[0] + 1):
        came, error = applied(machine, program, f"*@{n}={code}")
        faults += came
        assert error is None or error.exit_code == 4, f"call {n}: {error}"
        assert Held.by(machine).same(before, machine.slack), f"call {n}"
    assert faults > n / 2


@every_plan
@every_code
def test_what_is_lost_when_all_calls_fail_is_reported(plan: Path, code: str, machine: Machine) -> None:
    program = program_of(plan, machine)
    before = Held.by(machine)
    faults = 0
    for n in range(1, counted(machine, program)[0] + 1):
        came, error = applied(machine, program, f"*@{n}+={code}")
        faults += came
        assert (error is not None) == came, f"call {n} failed unheard"
        if error is not None:
            machine.free_retired(error.undone.failures)
        assert Held.by(machine).same(before, machine.slack), f"call {n}: {error}"
    assert faults > n / 2


@every_plan
@every_code
def test_an_undo_that_fails_is_exactly_that_leak(plan: Path, code: str, machine: Machine) -> None:
    program = program_of(plan, machine)
    before = Held.by(machine)
    faults = 0
    for n in range(1, counted(machine, program)[1] + 1):
        layout = run(program, machine.runtime)
        machine.runtime.arm_faults(f"*@{n}={code}")
        try:
            layout.close()
        except LeakError as error:
            machine.disarm()
            faults += 1
            assert error.exit_code == 5
            machine.free_retired(error.undone.failures)
        machine.disarm()
        assert Held.by(machine).same(before, machine.slack), f"call {n} of the teardown"
    assert faults
