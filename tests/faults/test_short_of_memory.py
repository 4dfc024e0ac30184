"""Refuse each request for memory in turn, behind a driver call too: nothing may be lost that is not reported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hipplan.kinds.lives import STEPS
from hipplan.kinds.reservation.live import ReserveBeside
from tests.conftest import ROOT, WHOLE, Simulator
from tests.cpp import refusing
from tests.faults.refusals import CHANGES, PLANS, POOL_CHANGES, program_of

pytestmark = refusing.not_under_sanitizers


@pytest.mark.in_turns
def test_memory_that_is_refused_loses_nothing(tmp_path: Path) -> None:
    """Of Python's own requests only the large ones: pybind11 itself does not look whether it got an object."""
    line = [sys.executable, "-m", "tests.faults.refusals"]
    # Else the C library reserves addresses for each new thread.
    environment = {**refusing.environment(tmp_path), "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(line, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    report = {result["what"]: result for result in map(json.loads, done.stdout.splitlines())}

    assert {what: item["wrong"] for what, item in report.items() if item["wrong"]} == {}
    assert min(report[what]["refused"] for what in [*PLANS, *CHANGES, *POOL_CHANGES]) >= (5 if WHOLE else 1)


def test_they_take_every_kind_of_step(sim: Simulator) -> None:
    taken = {type(step) for plan in PLANS.values() for step in program_of(plan).steps}
    kinds = {*STEPS} - {ReserveBeside}

    assert taken >= kinds
