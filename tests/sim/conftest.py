"""A simulator of one's own for each test of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ..conformance.hip import Hip
from ..conformance.sim import TWO_DEVICES, Simulator, library_path

ROOT = Path(__file__).parents[2]

os.environ.setdefault("HIPSIM_LOG", "none")

Script = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def _copy(tmp_path_factory: pytest.TempPathFactory) -> Hip:
    """A copy of the library is a simulator of its own, apart from the one that hipplan's tests use."""
    return Hip(shutil.copy(library_path(), str(tmp_path_factory.mktemp("sim"))))


@pytest.fixture
def hip(_copy: Hip) -> Iterator[Hip]:
    """HIP 7.2 on three devices; nothing may be alive afterwards."""
    simulator = Simulator(_copy)
    simulator.configure(f"hip_version=7.2.53211\n{TWO_DEVICES}")
    yield _copy
    simulator.fail()
    left = simulator.alive()
    simulator.undo_everything(_copy)
    assert left == {}


@pytest.fixture
def simulator(hip: Hip) -> Simulator:
    return Simulator(hip)


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Runs Python source in a process of its own, with `hip` and `simulator` at hand."""
    header = (
        "import os, sys, ctypes\n"
        "from ctypes import *\n"
        "from tests.conformance.hip import *\n"
        "from tests.conformance.sim import Simulator, library_path\n"
        "hip = Hip(library_path())\n"
        "simulator = Simulator(hip)\n"
    )

    def run(source: str, **variables: str) -> subprocess.CompletedProcess[str]:
        file = tmp_path / "script.py"
        file.write_text(header + source)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "HIPSIM_LIBRARY": library_path(), **variables}
        return subprocess.run([sys.executable, str(file)], env=environment, capture_output=True, text=True, timeout=600)

    return run
