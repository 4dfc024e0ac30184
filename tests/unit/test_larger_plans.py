"""plans/MACHINE/*.yaml: plans for the machine their folder is named after, applied on the simulator as that machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from hipplan.errors import ApplyError
from hipplan.loader import load
from hipplan.prepare import prepare
from hipplan.profiles import load_machine
from hipplan.runtimes import choose
from hipplan.transaction import run
from tests.conftest import ROOT, Simulator

LARGER = sorted((ROOT / "plans").glob("*/*.yaml"))

every_plan = pytest.mark.parametrize("plan", LARGER, ids=lambda path: f"{path.parent.name}-{path.stem}")


@every_plan
def test_it_is_applied_verified_and_given_back(plan: Path, sim: Simulator) -> None:
    machine = load_machine(plan.parent.name)
    chosen = choose("sim", machine)
    layout = run(prepare(load(plan), chosen, machine), chosen.runtime)
    undone = layout.close()

    assert undone.leaks == ()
    assert layout.checks


@every_plan
def test_a_call_that_fails_leaves_nothing(plan: Path, sim: Simulator) -> None:
    machine = load_machine(plan.parent.name)
    chosen = choose("sim", machine)
    program = prepare(load(plan), chosen, machine)
    calls = len(program.steps)
    for n in range(1, calls + 1, max(1, calls // 50)):
        sim.runtime.arm_faults(f"*@{n}=hipErrorOutOfMemory")
        try:
            run(program, chosen.runtime).close()
        except ApplyError as error:
            assert error.leaks == ()

        assert sim.runtime.faults_fired() == 1
        assert sim.alive() == set()
