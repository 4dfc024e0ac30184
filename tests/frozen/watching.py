"""The simulator that also writes what calls are given by pointer: built from watched.cpp when it is first needed."""

from __future__ import annotations

import atexit
import ctypes
import os
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from tests.conftest import ROOT

NAME = "libhipsim_watched.so"
GIVEN = {
    "hipMemCreate": "prop",
    "hipMemGetAllocationGranularity": "prop",
    "hipMemSetAccess": "desc",
    "hipMemGetAccess": "location",
}
"""Call -> the pointer whose content is written, a line for each call that reaches the simulator."""


@cache
def library() -> Path:
    """Of this process. Raises FileNotFoundError without a C++ compiler."""
    from hipplan.machines import simulator

    real = simulator.library_path()
    compiler = shlex.split(os.environ.get("CXX", "")) or [shutil.which("g++") or shutil.which("c++") or ""]
    if not compiler[0]:
        raise FileNotFoundError("no C++ compiler was found (set CXX)")
    folder = tempfile.mkdtemp(prefix="hipplan-watched-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made = Path(folder, NAME)
    command = [*compiler, "-std=c++20", "-O1", "-shared", "-fPIC", f"-I{ROOT / 'cpp'}", "-x", "c++",
               str(Path(__file__).with_name("watched.cpp")), "-x", "none", "-o", str(made),
               "-Wl,--no-as-needed", str(real), f"-Wl,-rpath,{real.parent}", "-ldl"]  # fmt: skip
    subprocess.run(command, check=True)
    return made


def watch(file: Path | None) -> None:
    """Appends to this file from now on; None stops."""
    _opened().watched_to(os.fsencode(file) if file else b"")


@cache
def _opened() -> ctypes.CDLL:
    return ctypes.CDLL(str(library()))
