"""Fail every driver call in turn: nothing may be left but what was reported.

"once": the n-th call fails and the next succeeds, so roll back gives everything back. "for ever": the n-th call
and all after it fail, so roll back fails too, and every object made before is a leak that must be named.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hipplan import _core
from hipplan.api import prepare
from hipplan.errors import ApplyError, LeakError
from hipplan.loader import load
from hipplan.program import Program
from hipplan.runtimes import choose
from hipplan.transaction import run
from tests.conftest import PLANS, Simulator, keys_of

CODES = ["hipErrorOutOfMemory", "hipErrorInvalidValue", "hipErrorNotSupported", "hipErrorUnknown"]

every_plan = pytest.mark.parametrize("plan", PLANS, ids=lambda path: path.stem)
every_code = pytest.mark.parametrize("code", CODES)


def program_of(plan: Path) -> Program:
    return prepare(load(plan), choose("sim"), None)


def calls_of_apply(program: Program, sim: Simulator) -> tuple[int, int]:
    """How many driver calls the apply, and the teardown, of a program make."""
    sim.runtime.arm_faults("*@1000000000=1")  # never comes, but counts
    layout = run(program, sim.runtime)
    applying = sim.runtime.calls_counted()
    layout.close()
    return applying, sim.runtime.calls_counted() - applying


@every_plan
@every_code
def test_a_call_that_fails_once_in_apply_leaves_nothing(plan: Path, code: str, sim: Simulator) -> None:
    program = program_of(plan)
    calls, _ = calls_of_apply(program, sim)
    for n in range(1, calls + 1):
        sim.runtime.arm_faults(f"*@{n}={code}")
        failed: ApplyError | None = None
        try:
            run(program, sim.runtime).close()
        except ApplyError as error:
            failed = error
        assert sim.runtime.faults_fired() == 1, f"call {n} of {calls} was never made"
        assert sim.alive() == set(), f"call {n}: {failed}"
        if failed is None:  # setting the caller's device back is tried twice
            continue
        assert failed.leaks == (), f"call {n}: {failed}"
        assert failed.exit_code == 4
        assert failed.call, f"call {n} does not say which HIP call failed"
        assert failed.code == {"hipErrorOutOfMemory": 2, "hipErrorInvalidValue": 1,
                               "hipErrorNotSupported": 801, "hipErrorUnknown": 999}[code]  # fmt: skip
        assert code in str(failed)


@every_plan
@every_code
def test_when_all_calls_fail_from_one_on_every_object_is_named(plan: Path, code: str, sim: Simulator) -> None:
    program = program_of(plan)
    calls, _ = calls_of_apply(program, sim)
    for n in range(1, calls + 1):
        sim.runtime.arm_faults(f"*@{n}+={code}")
        with pytest.raises(ApplyError) as caught:
            run(program, sim.runtime)
        sim.runtime.arm_faults("")
        error = caught.value

        assert keys_of(error.undone.failures) == sim.alive(), f"call {n}: {error}"
        assert error.exit_code == (5 if error.leaks else 4)
        for name in error.leaks:
            assert name in str(error)
        sim.free_everything()
        _core.take_leaks()  # what could not set the current device back


@every_plan
@every_code
def test_an_undo_that_fails_is_exactly_that_leak(plan: Path, code: str, sim: Simulator) -> None:
    program = program_of(plan)
    _, undoing = calls_of_apply(program, sim)
    for n in range(1, undoing + 1):
        layout = run(program, sim.runtime)
        sim.runtime.arm_faults(f"*@{n}={code}")
        failures: Any = ()
        try:
            layout.close()
        except LeakError as error:
            failures = error.undone.failures
            assert error.exit_code == 5
        assert sim.runtime.faults_fired() == 1, f"call {n} of {undoing} was never made"
        sim.runtime.arm_faults("")
        assert keys_of(failures) == sim.alive(), f"call {n} of the teardown"
        sim.free_everything()


def test_not_ready_is_retried_and_counted(sim: Simulator) -> None:
    program = program_of(PLANS[0])
    before = sim.runtime.retries
    sim.runtime.arm_faults("hipMallocManaged@1=hipErrorNotReady;hipFree@1=hipErrorNotReady")

    run(program, sim.runtime).close()

    assert sim.runtime.retries - before == 2


def test_not_ready_for_ever_is_a_failure_after_a_bounded_time(sim: Simulator) -> None:
    program = program_of(PLANS[0])
    sim.runtime.arm_faults("hipMallocManaged@1+=hipErrorNotReady")
    with pytest.raises(ApplyError) as caught:
        run(program, sim.runtime)

    assert caught.value.code == 600
    assert sim.runtime.faults_fired() == 7


def test_the_error_names_step_line_call_and_code(sim: Simulator) -> None:
    plan = next(path for path in PLANS if path.stem == "quickstart")
    sim.runtime.arm_faults("hipMemCreate@2=hipErrorOutOfMemory")
    with pytest.raises(ApplyError) as caught:
        run(program_of(plan), sim.runtime)
    text = str(caught.value)

    assert f"{plan}:13:10: error[HP401]: hipMemCreate failed for 'cache'" in text
    assert "hipErrorOutOfMemory (2)" in text
    assert "step: 4 of 16" in text
    assert "3 of 3 objects given back, nothing left behind" in text
