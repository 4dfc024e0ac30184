"""Runs AMD's own libraries on a machine without a GPU: a preloaded library stands in for the driver.

    code = without_gpu.run(["./my_program"], Path("/opt/rocm/lib/libamdhip64.so.7"), load_machine("mi300x-8"))

libamdhip64 and its dependencies are the user's own, unchanged; libkfdsim.so answers in place of /dev/kfd, libdrm_amdgpu
and the GPUs, as described by a machine profile.
"""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from hipplan.errors import Diagnostic, RuntimeUnavailable
from hipplan.machines import topology
from hipplan.machines.launcher import launch
from hipplan.machines.machine import Machine
from hipplan.machines.simulator import package_folder

DRIVER = "libkfdsim.so"
NOTICE = (
    "AMD's library runs on this machine without a GPU: kernels of your own are not run, managed memory does not "
    "move, and no time is a GPU's"
)
"""Notices for the user, printed once."""

_X86_64 = (2, 62)
"""ELF's class and machine."""


def driver_path() -> Path:
    """The stand-in: KFDSIM_LIBRARY if that is set, else the one built with hipplan. Raises FileNotFoundError."""
    given = os.environ.get("KFDSIM_LIBRARY")
    path = Path(given) if given else package_folder() / DRIVER
    if given and not path.is_file():
        raise FileNotFoundError(f"KFDSIM_LIBRARY names no file: {given}")
    if not path.is_file():
        why = "it is built on Linux for x86-64, where there is a C++ compiler"
        raise FileNotFoundError(f"this hipplan has no stand-in for AMD's driver ({DRIVER}): {why}")
    return path.resolve()


def environment(library: Path, folder: Path) -> dict[str, str]:
    """The environment in which a process uses `library` on the machine that topology.write() wrote to `folder`."""
    searched, preloaded = (os.environ.get(name) for name in ("LD_LIBRARY_PATH", "LD_PRELOAD"))
    driver = str(driver_path())
    return {
        "LD_LIBRARY_PATH": f"{library.parent}:{searched}" if searched else str(library.parent),
        "LD_PRELOAD": f"{preloaded}:{driver}" if preloaded else driver,  # a sanitizer must be the first
        "KFDSIM_MACHINE": str(folder),
        "HSA_ENABLE_DEBUG": "0",
        "HIPPLAN_RUNTIME": str(library),
    }


def check(library: Path, machine: Machine, rules: str | None = None) -> None:
    """Check that the library starts on that machine, in a process of its own.

    rules: for KFDSIM_FAIL. Raises RuntimeUnavailable with the reason why the library cannot be used, MachineError for
    a machine without AMD GPUs, ValueError for invalid rules.
    """
    try:
        driver_path()
    except FileNotFoundError as error:
        raise RuntimeUnavailable(Diagnostic("HP407", str(error))) from None
    if why := _no_library(library):
        raise _refused(library, why)
    with tempfile.TemporaryDirectory(prefix="kfdsim-") as folder:
        topology.write(Path(folder), machine)
        settings = os.environ | environment(library, Path(folder)) | {"KFDSIM_ON_FAULT": "count"}
        for name in ("KFDSIM_FAIL", "KFDSIM_LEDGER_AT_EXIT", "KFDSIM_LOG", "AMD_LOG_LEVEL", "HIP_VISIBLE_DEVICES"):
            settings.pop(name, None)  # these are for the program, not for this check
        probe = [sys.executable, "-I", "-S", "-c", _PROBE, str(library), rules or ""]
        ran = subprocess.run(probe, env=settings, capture_output=True, text=True, errors="replace")
    if ran.returncode == _WRONG_RULES:
        raise ValueError(ran.stdout.strip())
    if ran.returncode:
        raise _refused(library, _why(ran.stdout.strip() or _last_line(ran.stderr), ran.returncode))


def run(command: Sequence[str], library: Path, machine: Machine, variables: Mapping[str, str] | None = None) -> int:
    """Runs a program on AMD's library without a GPU; its exit code, as of launcher.launch(). See check()."""

    def settings(folder: Path) -> dict[str, str]:
        topology.write(folder, machine)
        return {**environment(library, folder), **(variables or {})}

    return launch(command, settings, "kfdsim-")


_WRONG_RULES = 40
_PROBE = f"""
import ctypes, sys
driver = ctypes.CDLL(None)
driver.kfdsim_last_message.restype = ctypes.c_char_p
if driver.kfdsim_fail(sys.argv[2].encode()):
    print(driver.kfdsim_last_message().decode())
    sys.exit({_WRONG_RULES})
driver.kfdsim_fail(None)
try:
    hip = ctypes.CDLL(sys.argv[1])
except OSError as error:
    sys.exit(print(error) or 41)
if hasattr(hip, "hipsim_ledger"):
    sys.exit(print("it is hipplan's simulator, not AMD's library: leave --library out") or 42)
if not hasattr(hip, "hipGetDeviceCount") or "libhsa-runtime64" not in open("/proc/self/maps").read():
    sys.exit(print("it is not AMD's HIP library") or 42)
count, version = ctypes.c_int(), ctypes.c_int()
code = hip.hipGetDeviceCount(ctypes.byref(count))
if code or not count.value:
    hip.hipRuntimeGetVersion(ctypes.byref(version))
    release = f"{{version.value // 10**7}}.{{version.value // 10**5 % 100}}"
    missing = "libamd_comgr" not in open("/proc/self/maps").read()
    why = ": libamd_comgr, with which it compiles its own kernels, is missing" if missing else ""
    sys.exit(print(f"it finds {{count.value}} devices there (HIP {{release}}, error {{code}}){{why}}") or 43)
"""
"""The script that starts the library and prints any error."""


def _no_library(path: Path) -> str:
    """Why a file cannot be a library for this machine; empty if it may be one."""
    try:
        with path.open("rb") as file:
            head = file.read(20)
    except OSError as error:
        return error.strerror or str(error)
    if head[:4] != b"\x7fELF" or len(head) < 20:
        return "it is not a shared library"
    if (head[4], struct.unpack_from("<H", head, 18)[0]) != _X86_64:
        return "it is for another kind of processor than x86-64"
    return ""


def _why(message: str, code: int) -> str:
    if too_old := re.search(r"(\S+): version [`']([A-Z]+)_([0-9.]+)' not found", message):
        return f"it needs {too_old[2]} {too_old[3]} or later, which {too_old[1]} of this machine does not have"
    if code < 0:
        return f"it ended with signal {-code} when it started" + (f": {message}" if message else "")
    return message or f"it ended with exit code {code} when it started"


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]


def _refused(library: Path, why: str) -> RuntimeUnavailable:
    hint = "name ROCm's own library, such as /opt/rocm/lib/libamdhip64.so.7 of ROCm 6.4 or later"
    if why.endswith("is missing"):
        hint = "install ROCm's libamd_comgr, or put its folder into LD_LIBRARY_PATH"
    if why.startswith("it needs "):
        hint = "run it on a system that this library was built for, such as a container with this ROCm"
    return RuntimeUnavailable(Diagnostic("HP407", f"{library} cannot be run without a GPU", why=why, hint=hint))
