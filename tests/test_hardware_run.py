"""`make amd` with the simulator in the place of ROCm's library: what the first person with the hardware will run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hipplan.machines.machine import sim_profile
from hipplan.machines.profiles import load_machine
from hipplan.machines.simulator import library_path
from tests.conftest import ROOT, WHOLE


@pytest.mark.in_parts
@pytest.mark.parametrize(
    ("name", "release", "box", "part"),
    [
        ("libamdhip64.so.6", "6.3.42131", "sim-2", "conformance"),
        ("libamdhip64.so.7", "7.2.53211", "sim-2-unlinked", "hardware"),  # as two consumer cards often are
    ],
)
def test_parts_with_right_and_wrong_results(name: str, release: str, box: str, part: str, tmp_path: Path) -> None:
    library = tmp_path / "rocm" / "lib" / name
    library.parent.mkdir(parents=True)
    shutil.copy(library_path(), library)
    machine = load_machine(box).model_copy(update={"hip_version": release})
    report = tmp_path / "report"
    parts = {"conformance", "hardware"} if WHOLE else {part}
    few = "" if WHOLE or part != "hardware" else "-k test_plans"
    command = [str(ROOT / "tests" / "hardware" / "run.sh"), str(report), "smoke", *sorted(parts)]
    variables = {
        "PYTHON": sys.executable,
        "HIPPLAN_RUNTIME": "amd",
        "ROCM_PATH": str(tmp_path / "rocm"),
        "HIPSIM_PROFILE": sim_profile(machine),
        "HIPSIM_LOG": "none",
        "HIPPLAN_CYCLES": "20",
        "PYTEST_ADDOPTS": few,  # the others run in this process, in tests/hardware
    }
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, timeout=600)

    assert done.returncode == 0, done.stdout + done.stderr
    assert str(library) in (report / "machine.yaml").read_text()
    assert {"machine.yaml", *(f"{part}.log" for part in parts)} <= {path.name for path in report.iterdir()}


def test_a_part_that_fails_is_counted_and_there_is_a_report(tmp_path: Path) -> None:
    report = tmp_path / "report"
    command = [str(ROOT / "tests" / "hardware" / "run.sh"), str(report), "nonsense", "smoke", "hardware"]
    variables = {"PYTHON": sys.executable, "HIPPLAN_RUNTIME": str(tmp_path / "nothing.so")}
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, timeout=600)

    assert done.returncode == 3, done.stdout + done.stderr
    assert "no part 'nonsense'" in done.stderr
    assert done.stdout.count("nothing.so: cannot open shared object file") == 2  # the machine, the tests as a whole
    assert {path.name for path in report.iterdir()} == {"machine.yaml", "machine.log", "hardware.log"}
