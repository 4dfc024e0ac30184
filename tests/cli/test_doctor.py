"""hipplan doctor, as it is run."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from hipplan.machines.simulator import library_path
from tests.cli.conftest import Run

NEUTRAL = {"HIPPLAN_RUNTIME": "", "LD_LIBRARY_PATH": "", "ROCM_PATH": "", "CUDA_VISIBLE_DEVICES": "0"}


@pytest.fixture
def rocm(tmp_path: Path) -> dict[str, str]:
    """The simulator, where ROCm's library is looked for."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libamdhip64.so.7").symlink_to(library_path())
    return NEUTRAL | {"ROCM_PATH": str(tmp_path)}


def test_it_works_anywhere(hipplan: Run) -> None:
    done = hipplan("doctor")

    assert done.returncode in (0, 3)
    assert done.stderr == ""
    assert done.stdout.startswith("Linux ")
    assert re.search(r"^for this process: .* open files", done.stdout, re.M)
    assert done.stdout.count("\n  do:  ") == sum(
        line.startswith(("error:", "warning:", "note:")) for line in done.stdout.splitlines()
    )


def test_programs_get_facts_and_findings(rocm: dict[str, str], hipplan: Run) -> None:
    done = hipplan("doctor", "--runtime", "amd", "--format", "json", env=rocm)
    report = json.loads(done.stdout)

    assert done.returncode == 0, done
    assert report["format_version"] == 1
    assert {*report["facts"]} == {"system", "libraries", "environment", "runtimes"}
    assert len(report["facts"]["runtimes"]["amd"]["machine"]["devices"]) == 1
    assert report["facts"]["environment"]["CUDA_VISIBLE_DEVICES"] == "0"
    for finding in report["findings"]:
        assert {*finding} == {"level", "topic", "summary", "do", "why"}
        assert finding["do"]


def test_an_error_is_exit_code_3(rocm: dict[str, str], hipplan: Run) -> None:
    done = hipplan("doctor", "--runtime", "amd", env=rocm | {"HIP_VMEM_MANAGE_SUPPORT": "0"})

    assert done.returncode == 3
    assert "error: HIP_VMEM_MANAGE_SUPPORT=0: virtual memory management is switched off" in done.stdout
    assert "\n1 error, " in done.stdout


def test_strict_makes_warnings_errors(rocm: dict[str, str], hipplan: Run) -> None:
    variables = rocm | {"HSA_ENABLE_SDMA": "0"}

    assert hipplan("doctor", "--runtime", "amd", env=variables).returncode == 0
    assert hipplan("doctor", "--runtime", "amd", "--strict", env=variables).returncode == 3


def test_a_driver_that_hangs_is_reported_in_time(rocm: dict[str, str], tmp_path: Path, hipplan: Run) -> None:
    os.mkfifo(tmp_path / "fifo")
    hangs = {"HIPSIM_FAIL": f"hipGetDeviceCount@1=pause:{tmp_path / 'fifo'}"}
    done = hipplan("doctor", "--runtime", "amd", "--timeout", "0.5", env=rocm | hangs)

    assert done.returncode == 3
    assert "error: amd: the amd driver did not answer within 0.5 s" in done.stdout


@pytest.mark.parametrize("line", [["--runtime", "sim"], ["--timeout", "0"], ["--timeout", "x"], ["file"], ["--all"]])
def test_wrong_usage(line: list[str], hipplan: Run) -> None:
    done = hipplan("doctor", *line)

    assert done.returncode == 2
    assert done.stdout == ""
    assert "hipplan doctor: error: " in done.stderr
