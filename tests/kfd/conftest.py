"""These tests drive the stand-in for AMD's driver by its ioctls, in processes of their own; no library of AMD's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hipplan.machines import topology, without_gpu
from hipplan.machines.machine import Machine
from hipplan.machines.profiles import load_machine

from ..conftest import ROOT

Program = Callable[..., "subprocess.CompletedProcess[str]"]

HEAD = "import ctypes, errno, os, sys\nfrom tests.kfd.client import *\n"


def preload() -> str:
    """The stand-in, behind the sanitizer that this Python runs with, if there is one."""
    try:
        driver = str(without_gpu.driver_path())
    except FileNotFoundError as why:
        pytest.skip(str(why))
    return f"{os.environ['LD_PRELOAD']}:{driver}" if "LD_PRELOAD" in os.environ else driver


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[str | Machine], Path]:
    """A folder that describes a machine."""

    def made(machine: str | Machine) -> Path:
        path = tmp_path / "machine"
        topology.write(path, load_machine(machine))
        return path

    return made


@pytest.fixture
def program(folder: Callable[[str | Machine], Path]) -> Program:
    """Runs Python on the stand-in: its outcome. machine: a profile; others become variables of the environment."""
    made: dict[str, Path] = {}

    def run(
        source: str, machine: str = "sim-2", check: bool = True, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        settings = os.environ | {"LD_PRELOAD": preload(), "PYTHONPATH": str(ROOT)} | variables
        settings["KFDSIM_MACHINE"] = str(made.setdefault(machine, made.get(machine) or folder(machine)))
        ran = subprocess.run([sys.executable, "-c", HEAD + source], env=settings, capture_output=True, text=True)
        assert not check or ran.returncode == 0, ran.stderr
        return ran

    return run
