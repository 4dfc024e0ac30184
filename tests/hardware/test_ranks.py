"""Ranks that map each other's memory, each a process with a device of its own where there are as many."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hardware.machine import Machine
from tests.hardware.rank import CHUNK

ROOT = Path(__file__).parents[2]
CYCLES = int(os.environ.get("HIPPLAN_RANK_CYCLES", "20"))


def run(machine: Machine, folder: Path, what: str, *more: int, killed: int = -1) -> list[Any]:
    """What each rank says; None of the one that is killed."""
    size = max(2, machine.linked)
    group = folder / "group"
    arguments = [str(size), what, *map(str, more)]
    commands = [
        [sys.executable, "-X", "faulthandler", "-m", "tests.hardware.rank", str(group), str(rank), *arguments]
        for rank in range(size)
    ]
    ranks = [subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) for command in commands]
    errors = [rank.communicate(timeout=500)[1] for rank in ranks]
    codes = [rank.returncode for rank in ranks]
    wrong = [(number, code, errors[number]) for number, code in enumerate(codes) if code and number != killed]
    assert killed < 0 or ranks[killed].returncode == -9
    assert not wrong, wrong
    files = [Path(f"{group}.{rank}.json") for rank in range(size)]
    return [json.loads(file.read_text()) if file.exists() else None for file in files]


def test_each_rank_writes_into_every_peer_s_part(machine: Machine, tmp_path: Path) -> None:
    answer = run(machine, tmp_path, "write")
    for rank in answer:
        assert rank["addresses"] == answer[0]["addresses"]
        assert rank["rows"] == [[other] for other in range(len(answer))]


def test_a_graph_goes_on_while_heaps_grow(gpu: Machine, tmp_path: Path) -> None:
    answer = run(gpu, tmp_path, "graph")
    for rank, item in enumerate(answer):
        assert item["flag"] == [2]
        assert item["sizes"] == [3 * CHUNK] * len(answer)
        assert item["last"] == (rank - 1) % len(answer) + 1


def test_a_rank_that_is_killed_is_seen_to_go_and_its_memory_stays(machine: Machine, tmp_path: Path) -> None:
    size = max(2, machine.linked)
    answer = run(machine, tmp_path, "lose", killed=size - 1)
    for item in answer[:-1]:
        assert item == {"lost": "ended", "seen": [7], "drift": 0, "alive": 0}


def test_many_cycles_leave_nothing(machine: Machine, tmp_path: Path) -> None:
    outcomes = run(machine, tmp_path, "cycles", CYCLES)
    kept = CYCLES * 2 * CHUNK  # of the heap, after its growth
    if machine.is_amd_before(7, 0) and [outcome["lost"] for outcome in outcomes] == [kept] * len(outcomes):
        pytest.xfail("AMD's 6.4 keeps what it has imported from another process until the process ends")
    for outcome in outcomes:
        assert outcome["same"], outcome
