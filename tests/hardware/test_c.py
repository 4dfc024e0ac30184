"""Programs in C attach to a holder's memory beside Python, from other namespaces too: the same addresses and bytes.

STREAM of examples/ runs as an experiment where there is a compiler for the runtime's kernels (nvcc or hipcc).
"""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan.cli.main import run
from hipplan.experiment import results
from hipplan.holders import requests
from hipplan.machines.family import family_of
from tests.c.programs import Program, build, by_name
from tests.conftest import ROOT
from tests.hardware.machine import MIB, Machine
from tests.hardware.test_holders import Up, up
from tests.pauses import wait_until

__all__ = ["up"]

PLAN: dict[str, Any] = {
    "hipplan": 1,
    "devices": {"gpu": {"count": 1}},
    "regions": {
        "model": {"device": "gpu.0", "chunk": 2 * MIB, "tensors": {"a": {"dtype": "u8", "shape": [3 * MIB]}}},
        "cache": {"device": "gpu.0", "attached": "rw", "tensors": {"k": {"dtype": "u8", "shape": [2 * MIB]}}},
    },
    "contents": {"model.a": {"value": 7}, "cache.k": {"value": 0}},
}
ELSEWHERE = ["unshare", "--mount", "--pid", "--net", "--fork", "--mount-proc"]
"""Begins a command in mount, process and network namespaces of its own."""
IN_PYTHON = """
import hipplan, json, sys
with hipplan.attach("held") as layout:
    print(json.dumps([[hex(layout[n].address), layout.read(n).tobytes().hex()[:8]] for n in ("model.a", "cache.k")]))
    sys.stdout.flush()
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("program"))


@pytest.fixture
def library(machine: Machine) -> Iterator[str]:
    """The path of the HIP library that programs use, which on 6.4 keep a descriptor of what they have imported."""
    path = machine.runtime.path
    if family_of(path) != "sim" and hasattr(ctypes.CDLL(path), "hipsim_configure"):
        pytest.skip("C programs know the simulator by another name, too, and the holder takes it for AMD's library")
    yield path


def sum_of(byte: int, size: int) -> int:
    """As program.c adds up bytes."""
    total = 0
    for _ in range(size):
        total = (total * 31 + byte) & (2**64 - 1)
    return total


def test_c_and_python_in_three_places_at_once(machine: Machine, up: Up, path: Path, library: str) -> None:
    may_not = subprocess.run([*ELSEWHERE, "true"], capture_output=True, text=True, check=False)
    if may_not.returncode:
        pytest.skip(f"namespaces: {may_not.stderr.strip()}")
    machine.new_descriptors = True  # AMD's 6.4 keeps one of each allocation that it has imported
    up(PLAN)
    script = [*ELSEWHERE, sys.executable, "-c", IN_PYTHON]
    with (
        Program(path, LIBRARY=library) as here,
        Program(path, before=ELSEWHERE, LIBRARY=library) as there,
        hipplan.attach("held") as layout,
        subprocess.Popen(script, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as python,
    ):
        assert python.stdout is not None
        addresses = {name: layout[name].address for name in ("model.a", "cache.k")}
        assert json.loads(python.stdout.readline()) == [
            [hex(addresses["model.a"]), "07070707"],
            [hex(addresses["cache.k"]), "00000000"],
        ]
        for program in (here, there):
            program.attach("held")
            listed = by_name(program.do("list"))
            assert {name: int(listed[name][2], 16) for name in addresses} == addresses
            assert (listed["model.a"][6], listed["cache.k"][6]) == ("0", "1")
            assert program.do("read", "model.a")[2] == f"0 {sum_of(7, 3 * MIB)}"
        assert there.do("write", "cache.k")[2].split()[0] == "0"
        assert here.do("read", "cache.k")[2] == f"0 {sum_of(0x5A, 2 * MIB)}"
        assert set(layout.read("cache.k").tobytes()) == {0x5A}
        assert len(requests.status("held")["attached"]) == 4
        for program in (here, there):
            assert program.do("lost") == ["no"]
            assert program.text("detach") == (0, "")
        python.communicate("")
        assert python.returncode == 0
        assert not layout.drift()
    wait_until(lambda: not requests.status("held")["attached"], "the end of those attached")


def test_a_program_forks_and_attaches_again(machine: Machine, up: Up, path: Path, library: str) -> None:
    up(PLAN)
    with Program(path, LIBRARY=library) as program:
        for _ in range(5):
            program.attach("held")
            assert program.do("read", "model.a")[2] == f"0 {sum_of(7, 3 * MIB)}"
            found, _, attached, *_ = program.do("fork", "held")
            assert (found, attached) == ("458", "407")
            assert program.text("detach") == (0, "")
    wait_until(lambda: not requests.status("held")["attached"], "the end of those attached")


def language_of(machine: Machine) -> str:
    """CMake's name for the kernels of a runtime."""
    if machine.chosen.kind == "cuda" and shutil.which("nvcc"):
        return "CUDA"
    if machine.wanted == "amd" and shutil.which("hipcc"):  # a library named by its path is one without a GPU
        return "HIP"
    pytest.skip("needs a GPU, and nvcc or hipcc")


def test_stream_of_the_examples_runs_on_a_plan_s_memory(
    machine: Machine, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    language = language_of(machine)
    monkeypatch.setenv("HIPPLAN_SOCKETS", str(tmp_path / "sockets"))
    assert run(["config", "--cmake-dir"]) == 0
    there = capfd.readouterr().out.strip()
    example = shutil.copytree(ROOT / "examples" / "stream", tmp_path / "stream")
    for command in (
        ["cmake", "-S", example, "-B", example / "build", f"-Dhipplan_DIR={there}", f"-DGPU={language}"],
        ["cmake", "--build", example / "build"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    file, measured = example / "stream.experiment.yaml", tmp_path / "results.jsonl"
    assert run(["experiment", "run", str(file), "--repeat=1", "-qo", str(measured)]) == 0
    lines = results.read(str(measured))
    assert len(lines) == 4
    for line in lines:
        assert line["metrics"].keys() == {"copy", "scale", "add", "triad"}
        print(line["metrics"])
