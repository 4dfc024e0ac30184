"""Every benchmark runs, here at its smallest on the simulator: what it says of time is not looked at."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hipplan.machines.machine import sim_profile
from hipplan.machines.profiles import load_machine
from tests.conftest import ROOT

SMALL = {
    "alternatives": ("--runtime", "sim", "--rounds", "1"),
    "apply": ("--runtime", "sim", "--rounds", "1", "--counts", "8"),
    "beside": ("--runtime", "sim", "--rounds", "1", "--counts", "8,40"),
    "calls": ("--runtime", "sim", "--rounds", "1", "--counts", "8"),
    "kept": ("--runtime", "sim", "--rounds", "1", "--gib", "0.02"),
    "host_tier": ("--runtime", "sim", "--rounds", "1", "--gib", "0.01"),
    "growth": ("--runtime", "sim", "--rounds", "1", "--chunks", "2,8"),
    "llama": ("--runtime", "sim", "--rounds", "1"),
    "long_lived": ("--runtime", "sim", "--rounds", "1", "--changes", "8", "--chunks", "4"),
    "loading": ("--runtime", "sim", "--rounds", "1", "--gib", "0.01"),
    "ranks": ("--runtime", "sim", "--rounds", "1", "--ranks", "2"),
    "tensors": ("--rounds", "1", "--counts", "100", "200"),
    "repetition": ("--runtime", "sim", "--rounds", "1"),
    "sleep": ("--runtime", "sim", "--rounds", "1", "--gib", "0.01"),
    "sim_steps": ("--rounds", "1"),
    "validate": ("--objects", "200", "--rounds", "1"),
}
"""The arguments of a quick run. A new benchmark gets a line here."""


COMPILER = """#!/bin/sh
# A compiler that is quick, and remembers what it made of each source.
for word in "$@"; do
  case $before in -o) library=$word ;; c++) source=$word ;; esac
  before=$word
done
made=$0.$(basename "$source").so
[ -e "$made" ] || g++ "$@" -O0 -o "$made" || exit
cp "$made" "$library"
"""


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables with which a benchmark compiles nothing that another one has compiled."""
    if not shutil.which("g++"):
        return {}
    script = tmp_path_factory.mktemp("compiler") / "g++"
    script.write_text(COMPILER)
    script.chmod(0o755)
    return {"CXX": str(script)}


def test_every_benchmark_is_run_here() -> None:
    elsewhere = {"common", "gather", "model", "pools", "reader", "saver"}
    assert {path.stem for path in (ROOT / "benchmarks").glob("*.py")} - elsewhere == set(SMALL)


@pytest.mark.in_parts
@pytest.mark.parametrize("name", SMALL)
def test_it_runs(name: str, compiler: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), *SMALL[name]]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | compiler, capture_output=True, text=True, timeout=600)

    assert done.returncode == 0, done.stderr
    assert "ratio" in done.stdout
    assert list(tmp_path.iterdir()) == []  # nothing is written unasked


@pytest.mark.in_parts
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("apply", "--runtime", "nonsense"), 1, "there is no runtime 'nonsense'"),
        (("apply", "--runtime", "sim", "--rounds", "0"), 2, "--rounds: 0 is not 1 or more"),
        (("apply", "--runtime", "sim", "--counts", "x"), 2, "--counts: invalid"),
        (("apply", "--runtime", "sim", "--json", "no/such/file"), 2, "there is no folder no/such"),
        (("gather", "--runtime", "sim"), 0, "not measured: "),
        (("model", "--runtime", "sim"), 0, "not measured: "),
        (("pools",), 0, "not measured: "),
        (("llama", "--runtime", "sim", "--ranks", "1"), 0, "not measured: the devices are too small"),
    ],
)
def test_what_cannot_be_measured_is_reported_in_a_sentence(
    arguments: tuple[str, ...], code: int, said: str, tmp_path: Path
) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / f"{arguments[0]}.py"), *arguments[1:]]
    small = {"HIPSIM_PROFILE": f"device.0.memory={2**30}\ndevice.0.vmm=1\n"}
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | small, capture_output=True, text=True, timeout=600)

    assert done.returncode == code, done.stderr
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.in_parts
@pytest.mark.parametrize("given", ["", "env {CXX}", "hipcc"])
def test_any_compiler_makes_the_yardstick(given: str, compiler: dict[str, str]) -> None:
    """CXX may be empty or several words; on a machine with nothing but ROCm it is hipcc, which links ROCm by itself."""
    given = given.format(**{"CXX": "g++", **compiler})
    if given and not shutil.which(given.split()[-1]):
        pytest.skip(f"needs {given}")
    command = [sys.executable, str(ROOT / "benchmarks" / "apply.py"), *SMALL["apply"]]
    done = subprocess.run(command, env=os.environ | {"CXX": given}, capture_output=True, text=True, timeout=600)

    assert done.returncode == 0, done.stderr
    assert "ratio" in done.stdout


@pytest.mark.parametrize("name", ["alternatives", "apply"])
def test_devices_that_do_not_reach_one_another_are_no_reason_to_fail(
    name: str, compiler: dict[str, str], tmp_path: Path
) -> None:
    apart = compiler | {"HIPSIM_PROFILE": sim_profile(load_machine("sim-2-unlinked"))}
    command = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), *SMALL[name]]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | apart, capture_output=True, text=True, timeout=600)

    assert done.returncode == 0, done.stderr
