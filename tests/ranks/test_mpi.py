"""Groups over communicators of mpi4py, under mpirun."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hipplan.machines.machine import sim_profile
from hipplan.machines.profiles import load_machine
from tests.conftest import ROOT

MPIRUN = shutil.which("mpirun") or ""
SIZE = 4
DEVICES = sim_profile(load_machine("h200-4"))
pytestmark = [
    pytest.mark.skipif(not MPIRUN, reason="there is no mpirun: apt install openmpi-bin"),
    pytest.mark.skipif(
        importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed: pip install mpi4py"
    ),
]


def mpirun(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    line = [MPIRUN, "-n", str(SIZE), "--oversubscribe", "--allow-run-as-root", sys.executable, "-m", *arguments]
    known = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    path = f"{ROOT}{os.pathsep}{known.get('PYTHONPATH', '')}"
    return subprocess.run(
        line, capture_output=True, text=True, timeout=300, env={**known, "PYTHONPATH": path, **environment}
    )


def said_by_all(folder: Path, what: str) -> list[Any]:
    done = mpirun("tests.ranks.mpi_rank", str(folder), what, HIPSIM_PROFILE=DEVICES)
    assert done.returncode == 0, done.stderr
    report = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(SIZE)]
    assert [item["left"] for item in report] == [0] * SIZE
    return [item["said"] for item in report]


def test_ranks_write_into_each_other_s_memory(tmp_path: Path) -> None:
    answers = said_by_all(tmp_path, "write")

    assert [rows for rows, _, _ in answers] == [[SIZE * me + other for other in range(SIZE)] for me in range(SIZE)]
    assert [inbox for _, inbox, _ in answers] == [[(me - 1) % SIZE + 1] for me in range(SIZE)]
    assert {weights for _, _, weights in answers} == {"803f"}  # 1 in bf16


def test_a_part_of_the_ranks_is_a_group(tmp_path: Path) -> None:
    size = 2 * 2**20
    assert said_by_all(tmp_path, "parts") == [[1, 2, 2 * size], [1, 2, 2 * size], [0, 2, size], [0, 2, size]]


def test_all_hear_of_a_failure_and_go_on(tmp_path: Path) -> None:
    for rank, answer in enumerate(said_by_all(tmp_path, "fail")):
        assert answer[0].startswith("ApplyError" if rank == 2 else "GroupError HP430 rank 2 failed"), answer
        assert answer[1] == "committed"


def test_many_calls_and_a_plan_that_one_rank_cannot_use(tmp_path: Path) -> None:
    assert said_by_all(tmp_path, "many") == ["PlanError", "GroupError", "GroupError", "GroupError"]


def test_a_rank_that_does_not_answer_is_named(tmp_path: Path) -> None:
    answers = said_by_all(tmp_path, "late")
    assert answers == [["HP431 rank 2 did not answer within 2 s, so all ranks stay as they were"]] * SIZE


def test_a_rank_without_a_group_is_not_waited_for_longer(tmp_path: Path) -> None:
    answers = said_by_all(tmp_path, "absent")
    assert answers == [["HP434 not all ranks of the communicator have called hipplan.group()"]] * 2 + [[]] + [
        answers[0]
    ]


def test_a_rank_that_raises_after_the_decision_is_gone_for_the_others(tmp_path: Path) -> None:
    answers = said_by_all(tmp_path, "raise_later")
    assert answers == [["closed", True], "of the experiment", ["closed", True], ["closed", True]]


def test_the_error_of_a_group_without_mpi(tmp_path: Path) -> None:
    for answers in said_by_all(tmp_path, "outlive"):
        assert answers == [
            "the communicator cannot be used",
            "rank and size come from the communicator",
            "MPI has been finalized",
        ]


@pytest.mark.parametrize("plan", sorted((ROOT / "plans" / "ranks").iterdir()), ids=lambda plan: plan.stem)
@pytest.mark.parametrize("faults", ["", "hipMemCreate@1=2"])
def test_the_command(plan: Path, faults: str) -> None:
    line = ["hipplan", "apply", str(plan), "--once", "--runtime", "sim", "--group", "mpi", "--format", "json"]
    done = mpirun(*line, "--machine", "h200-4", HIPSIM_FAIL=faults)

    events = re.findall('"event": "([^"]*)"', done.stdout)  # mpirun may put lines of several ranks together
    if faults:
        assert (done.returncode, set(events)) == (4, {"failed"})
    else:
        assert (done.returncode, sorted(events)) == (0, ["applied"] * SIZE + ["torn down"] * SIZE), done.stderr


def test_the_command_ends_all_where_a_rank_never_comes(tmp_path: Path) -> None:
    """One process of mpirun's does something else for an hour."""
    start = [MPIRUN, "--oversubscribe", "--allow-run-as-root", "-n", "2", sys.executable, "-m", "hipplan", "apply"]
    start += [str(ROOT / "plans" / "ranks" / "symmetric-heap.yaml"), "--runtime", "sim", "--machine", "h200-4"]
    start += ["--group", "mpi", "--timeout", "1", ":", "-n", "1", sys.executable, "-c"]
    start += ["import time; from mpi4py import MPI; time.sleep(3600)"]
    path = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    done = subprocess.run(start, capture_output=True, text=True, timeout=300, env={**os.environ, "PYTHONPATH": path})

    assert "HP434" in done.stderr
    assert done.returncode in (3, 4), done.stderr
