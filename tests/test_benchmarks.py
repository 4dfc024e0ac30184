"""Every benchmark runs, here at its smallest on the simulator: what it says of time is not looked at."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

SMALL = {
    "alternatives": ("--runtime", "sim", "--rounds", "1"),
    "apply": ("--runtime", "sim", "--rounds", "1", "--counts", "8"),
    "growth": ("--runtime", "sim", "--rounds", "1"),
    "llama": ("--runtime", "sim", "--rounds", "1"),
    "loading": ("--runtime", "sim", "--rounds", "1", "--gib", "0.01"),
    "tensors": ("--rounds", "1", "--counts", "100", "200"),
    "sim_steps": ("--rounds", "1"),
    "validate": ("--objects", "200", "--rounds", "1"),
}
"""The arguments of a quick run. A new benchmark gets a line here."""


def test_every_benchmark_is_run_here() -> None:
    assert {path.stem for path in (ROOT / "benchmarks").glob("*.py")} - {"common"} == set(SMALL)


@pytest.mark.parametrize("name", SMALL)
def test_it_runs(name: str, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), *SMALL[name]]
    environment = {key: value for key, value in os.environ.items() if key != "CXX"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stderr
    assert "ratio" in done.stdout
    assert list(tmp_path.iterdir()) == []  # nothing is written unasked
