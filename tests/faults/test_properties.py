"""What holds of every plan, tried on plans made by a rule from a seed that hypothesis chooses.

HIPPLAN_EXAMPLES sets how many each property is tried on (`make reliability`: 1,000).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hipplan.files.strict_json import pieces
from hipplan.kinds.managed.live import Advise, AttachStream, Prefetch
from hipplan.kinds.mapping.live import Map, SetAccess
from hipplan.kinds.stream.live import AwaitStream
from hipplan.language.loader import load
from hipplan.layout.options import Options
from hipplan.layout.prepare import prepare
from hipplan.layout.run import run
from hipplan.machines.runtimes import choose
from hipplan.program import steps
from hipplan.program.program import Program
from hipplan.show import render_json
from tests.conftest import Simulator
from tests.faults import generated
from tests.faults.harness import CODES, FOR_EVER, ONCE, Apply, calls_of, inject
from tests.faults.test_every_call import bound

EXAMPLES = int(os.environ.get("HIPPLAN_EXAMPLES", "40"))
seeds = st.integers(0, 2**32)
tries = settings(
    max_examples=EXAMPLES,
    derandomize="HIPPLAN_EXAMPLES" not in os.environ,
    database=None,
)


@contextmanager
def program_of(seed: int) -> Iterator[tuple[Program, Path]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "data.bin").write_bytes(bytes(100_000))
        yield prepare(load(generated.plan(seed, folder)), choose("sim"), None), folder


@tries
@given(seed=seeds)
def test_an_apply_and_a_teardown_come_to_zero(seed: int, sim: Simulator) -> None:
    with program_of(seed) as (program, _), bound(sim) as bind:
        before = sim.ledger()
        with run(program, sim.runtime, Options(bind=bind)) as layout:
            assert layout.drift() == []
            held = sum(program.bytes_by_device().values())
            if not any(step.call == "hipMemImportFromShareableHandle" for step in program.steps):
                used = sum(device["used"] for device in sim.ledger()["devices"])
                assert used - sum(device["used"] for device in before["devices"]) >= held
        assert sim.ledger() == before


@tries
@given(seed=seeds)
def test_the_same_plan_gives_the_same_program(seed: int) -> None:
    with program_of(seed) as (program, folder):
        again = prepare(load(generated.plan(seed, folder)), choose("sim"), None)

        assert again == program
        assert [*pieces(render_json.program_json(again))] == [*pieces(render_json.program_json(program))]


@tries
@given(seed=seeds)
def test_no_step_speaks_of_what_is_not_there_yet(seed: int) -> None:
    with program_of(seed) as (program, _):
        made: set[str] = {""}
        for step in program.steps:
            assert set(_needs(step)) <= made, f"{step.call} {step.name}"
            made.add(step.name)


def _needs(step: steps.Step) -> Iterator[str]:
    if isinstance(step, Map):
        yield from (step.reservation, step.allocation)
    if isinstance(step, (Prefetch, AttachStream)):
        yield step.stream
    if isinstance(step, (SetAccess, Advise, Prefetch, AttachStream, AwaitStream)):
        yield step.name


@tries
@given(seed=seeds, at=st.floats(0, 1), code=st.sampled_from(sorted(CODES)), mode=st.sampled_from([ONCE, FOR_EVER]))
def test_whatever_call_fails_only_what_was_reported_is_left(
    seed: int, at: float, code: str, mode: str, sim: Simulator, tmp_path: Path
) -> None:
    sim.runtime.set_retry_pause(0)
    with program_of(seed) as (program, _), bound(sim) as bind:
        phase: Any = Apply(sim, program, bind)
        calls = calls_of(phase, tmp_path / "trace")
        n = min(len(calls), 1 + int(at * len(calls)))
        inject(phase, f"*@{n}{mode}={code}", calls[n - 1], code, lasting=mode == FOR_EVER)
    sim.runtime.set_retry_pause(1000)
