"""Groups over stores of torch.distributed, and under torchrun."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.ranks.test_agreement import PLAN, results
from tests.ranks.workers import Task, Workers

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
pytest.importorskip("torch.distributed")


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    made = Workers()
    yield made
    made.close()


@pytest.fixture
def store() -> Any:
    from torch.distributed import TCPStore

    return TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)


def tasks_for(size: int, store: Any, **more: Any) -> list[Task]:
    return [Task(PLAN, "", rank, size, port=store.port, **more) for rank in range(size)]


def test_ranks_agree_over_a_tcp_store(workers: Workers, store: Any) -> None:
    assert results(workers.run(*tasks_for(3, store, calls=3))) == ["committed"] * 3


def test_a_failure_reaches_all_over_a_tcp_store(workers: Workers, store: Any) -> None:
    tasks = tasks_for(3, store)
    tasks[2].faults = "hipMemCreate@1=2"
    assert results(workers.run(*tasks)) == ["GroupError", "GroupError", "ApplyError"]


def test_a_rank_that_is_killed_is_missed_over_a_tcp_store(workers: Workers, store: Any) -> None:
    tasks = tasks_for(3, store, timeout=5.0)
    tasks[1].act, tasks[1].at = "kill", 3
    assert results(workers.run(*tasks)) == ["GroupError", "killed", "GroupError"]


def test_a_tcp_store_that_goes_away_leaves_a_doubt(workers: Workers, store: Any) -> None:
    tasks = tasks_for(2, store, timeout=5.0)
    tasks[1].act, tasks[1].at, tasks[1].after = "lose", 5, True
    outcome = workers.run(*tasks)[1]
    assert outcome is not None
    assert (outcome.result, outcome.codes, outcome.left) == ("GroupInDoubt", ("HP432",), 0)


@pytest.mark.skipif(int(torch.__version__.split(".")[0]) < 2, reason="this torchrun does not run on this Python")
@pytest.mark.parametrize("faults", ["", "hipMemCreate@1=2"])
def test_the_command_under_torchrun(tmp_path: Path, faults: str) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN)
    line = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "4", "-m", "hipplan"]
    line += ["apply", str(plan), "--once", "--runtime", "sim", "--group", "torch", "--format", "json"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(line, capture_output=True, text=True, env={**environment, "HIPSIM_FAIL": faults})

    assert done.stdout.count('"torn down"') == (0 if faults else 4), done.stderr
    assert (done.returncode == 0) == (not faults)
