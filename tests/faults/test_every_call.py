"""Fail every driver call in turn, in apply, verify and teardown: nothing may be left but what was reported.

"once": the n-th call fails and the next succeeds, so roll back frees everything. "for ever": the n-th call
and all after it fail, so roll back fails too, and every object made before is a leak that must be named.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from hipplan.errors import ApplyError
from hipplan.kinds.lives import STEPS
from hipplan.kinds.reservation.live import ReserveBeside
from hipplan.language.loader import load
from hipplan.layout.options import Options
from hipplan.layout.prepare import prepare
from hipplan.layout.run import run
from hipplan.machines.runtimes import choose
from hipplan.program.content_steps import Fill
from hipplan.program.program import Program
from hipplan.show import render_json
from tests.conftest import PLANS, WHOLE, Simulator
from tests.descriptors import descriptors
from tests.faults import generated
from tests.faults.counting import points
from tests.faults.harness import (
    CODES,
    DEFECTS,
    FOR_EVER,
    ONCE,
    RELEASES,
    RETRIES,
    Apply,
    Phase,
    Teardown,
    Verify,
    as_release,
    calls_of,
    sweep_codes,
    sweep_undo,
)

pytestmark = pytest.mark.in_parts

SEEDS = tuple(range(24)) if WHOLE else (*range(11), 23)  # the last one seals what it fills
AT_LEAST = 30_000 if WHOLE else 5_000
QUICKSTART = next(path for path in PLANS if path.stem == "quickstart")
SHARED = {"hipplan": 1, "allocations": {"shared": {"device": "gpu.0", "size": "2MiB", "shareable": "posix_fd"}}}
SHARED["devices"] = {"gpu": {"count": 2}}

every_plan = pytest.mark.parametrize("source", [*PLANS, *SEEDS], ids=lambda one: getattr(one, "stem", f"seed{one}"))


@pytest.fixture(params=RELEASES)
def quick(sim: Simulator, request: pytest.FixtureRequest) -> Iterator[Simulator]:
    """The simulator as a release of HIP, with retries that do not wait."""
    sim.runtime.set_retry_pause(0)
    with as_release(sim, request.param, *DEFECTS.get(request.param, ())):
        yield sim
    sim.runtime.set_retry_pause(1000)


def program_of(source: Any, folder: Path = Path()) -> Program:
    """Of a plan's path, or of a seed."""
    if isinstance(source, int):
        (folder / "data.bin").write_bytes(bytes(100_000))
        source = generated.plan(source, folder)
    return prepare(load(source), choose("sim"), None)


@contextlib.contextmanager
def bound(sim: Simulator) -> Iterator[Mapping[str, Any]]:
    """What the generated plans bind."""
    with run(program_of(SHARED), sim.runtime) as layout:
        descriptor = layout.export("shared")
        try:
            yield {"caller": bytearray(65536), "shared": descriptor}
        finally:
            os.close(descriptor)


@every_plan
def test_a_call_that_fails_leaves_nothing_but_what_was_reported(source: Any, quick: Simulator, tmp_path: Path) -> None:
    """Every call of apply, verify and teardown, once and for ever."""
    program = program_of(source, tmp_path)
    with bound(quick) as bind:  # the simulator opens its devices' memory when it is first used
        run(program, quick.runtime, Options(bind=bind)).close()
    before = descriptors()
    with bound(quick) as bind:
        with run(program, quick.runtime, Options(bind=bind)) as layout:
            _sweep_all(Verify(quick, layout), tmp_path)
        _sweep_all(Apply(quick, program, bind), tmp_path)
        _sweep_all(Teardown(quick, program, bind), tmp_path)
    assert descriptors() == before


def _sweep_all(phase: Phase, folder: Path) -> None:
    calls = calls_of(phase, folder / "trace")
    for mode in (ONCE, FOR_EVER):
        sweep_codes(phase, calls, mode)


@pytest.mark.parametrize("source", [PLANS[-1], *SEEDS[:6]], ids=lambda one: getattr(one, "stem", f"seed{one}"))
def test_a_failure_in_undo_neither_hides_the_first_error_nor_stops_the_rest(
    source: Any, quick: Simulator, tmp_path: Path
) -> None:
    """Every call of apply fails, and for each of them every call of its roll back."""
    program = program_of(source, tmp_path)
    with bound(quick) as bind:
        phase = Apply(quick, program, bind)
        sweep_undo(phase, calls_of(phase, tmp_path / "trace"), "hipErrorOutOfMemory")


def test_enough_was_injected(request: pytest.FixtureRequest) -> None:
    here = [item for item in request.session.items if item.path == request.path]
    if len(here) < len(PLANS) + len(SEEDS) or hasattr(request.config, "workerinput"):
        pytest.skip("only some of these tests were run in this process")
    assert sum(points.values()) >= AT_LEAST


def test_the_generated_plans_use_every_kind_of_step(sim: Simulator, tmp_path: Path) -> None:
    """Coherent buffers are in a shipped plan: what is generated is frozen (tests/frozen)."""
    coherent = next(path for path in PLANS if path.stem == "coherent-flags")
    made = {type(step) for source in (*SEEDS, coherent) for step in program_of(source, tmp_path).steps}

    assert made >= {*STEPS, Fill} - {ReserveBeside}, "growing alone makes a range beside another"


@pytest.mark.parametrize("on_step", [None, lambda number, step: None], ids=["many at once", "one by one"])
def test_not_ready_is_retried_and_counted_in_the_report(sim: Simulator, on_step: Any) -> None:
    """Alike for steps made many at once and one by one; a query that says NotReady is asked again too."""
    program = program_of(QUICKSTART)
    sim.runtime.arm_faults("hipMemCreate@1=hipErrorNotReady; hipMemMap@2=hipErrorNotReady;"
                           "hipMallocManaged@1=hipErrorNotReady; hipMemGetAccess@1=hipErrorNotReady;"
                           "hipFree@1=hipErrorNotReady; hipDeviceSynchronize@1=hipErrorNotReady")  # fmt: skip
    layout = run(program, sim.runtime, Options(on_step=on_step))

    assert layout.retries == 4
    assert render_json.layout_json(layout)["retries"] == 4

    undone = layout.close()

    assert undone.retries == 2
    assert render_json.undone_json(undone)["retries"] == 2
    assert undone.summary().endswith("; 2 calls repeated because the driver returned NotReady")


def test_what_is_retried_in_the_making_and_in_its_roll_back_is_counted_apart(sim: Simulator) -> None:
    sim.runtime.arm_faults("hipMemCreate@1=hipErrorNotReady; hipMemMap@2=hipErrorOutOfMemory;"
                           "hipMemRelease@1=hipErrorNotReady; hipDeviceSynchronize@1=hipErrorNotReady")  # fmt: skip
    with pytest.raises(ApplyError) as caught:
        run(program_of(QUICKSTART), sim.runtime)

    assert "retried: 1 call repeated" in str(caught.value)
    assert "nothing leaked; 2 calls repeated" in str(caught.value)


@pytest.mark.parametrize("code", sorted(set(CODES) - {"hipErrorNotReady"}))
def test_nothing_else_is_retried(code: str, sim: Simulator) -> None:
    sim.runtime.arm_faults(f"hipMemCreate@1={code}")
    with pytest.raises(ApplyError):
        run(program_of(QUICKSTART), sim.runtime)

    assert sim.runtime.faults_fired() == 1


def test_not_ready_for_ever_is_a_failure_after_a_bounded_time(sim: Simulator) -> None:
    program = program_of(PLANS[0])
    sim.runtime.arm_faults("hipMallocManaged@1+=hipErrorNotReady")
    with pytest.raises(ApplyError) as caught:
        run(program, sim.runtime)

    assert caught.value.code == 600
    assert sim.runtime.faults_fired() == 1 + RETRIES
    assert f"retried: {RETRIES} calls repeated because the driver returned NotReady" in str(caught.value)


def test_the_error_names_step_line_call_and_code(sim: Simulator) -> None:
    sim.runtime.arm_faults("hipMemCreate@4=hipErrorOutOfMemory")
    with pytest.raises(ApplyError) as caught:
        run(program_of(QUICKSTART), sim.runtime)
    text = str(caught.value)

    assert f"{QUICKSTART}:13:10: error[HP401]: hipMemCreate failed for 'cache'" in text
    assert "hipErrorOutOfMemory (2)" in text
    assert "step: 6 of 22" in text
    assert "5 of 5 objects released, nothing leaked" in text
