"""That the library under test is AMD's, unmodified, and that the stand-in below it does what is asked of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hipplan.machines.discover import discover
from hipplan.machines.runtimes import choose
from tests.amd.libraries import FOLDER
from tests.hardware.machine import MIB, Machine, pattern


@pytest.fixture
def machine(release: str) -> Machine:
    return Machine(choose())


def test_the_library_is_amd_s_of_this_release(machine: Machine, release: str) -> None:
    assert machine.chosen.kind == "amd"
    assert f"{machine.runtime.version // 10**7}.{machine.runtime.version // 10**5 % 100}" == release
    mapped = Path("/proc/self/maps").read_text()
    assert os.environ["HIPPLAN_RUNTIME"] in mapped
    assert "libhsa-runtime64.so.1" in mapped


def test_data_comes_back_through_every_device(machine: Machine) -> None:
    data = pattern(3 * MIB + 5, "alive")
    for device in range(machine.count):
        with machine.scratch(device, len(data)) as own:
            machine.write_by(device, own, data)
            assert machine.read_by(device, own, len(data)) == data


def test_memory_is_counted(machine: Machine) -> None:
    before = machine.runtime.memory_info(0)[0]
    with machine.scratch(0, 64 * MIB):
        assert before - machine.runtime.memory_info(0)[0] >= 64 * MIB
    assert machine.runtime.memory_info(0)[0] == before


def test_the_host_is_the_profile_s_and_what_this_machine_cannot_back_is_refused(release: str, tmp_path: Path) -> None:
    """AMD's library would take the buffer; the driver would refuse it in the middle of the change."""
    measured = discover(choose())
    assert measured.host_memory == 64 << 30
    assert measured.limits.backed_memory is not None
    plan, settings = tmp_path / "plan.yaml", os.environ | {"KFDSIM_MEMORY_LIMIT": str(1 << 30)}
    command = [sys.executable, "-m", "hipplan", "apply", str(plan), "--once"]
    outcomes = []
    for size in ("512MiB", "2GiB"):
        plan.write_text(f"hipplan: 1\nbuffers:\n  staging: {{kind: pinned, size: {size}}}\n")
        outcomes.append(subprocess.run(command, env=settings, capture_output=True, text=True))
    assert [ran.returncode for ran in outcomes] == [0, 3], outcomes
    assert "the plan needs 2GiB of host memory, this machine itself has 1GiB" in outcomes[1].stderr


def test_a_library_without_its_compiler_is_refused_with_the_reason(release: str, tmp_path: Path) -> None:
    """HIP then has no devices, and says no more."""
    for path in (FOLDER / "lib" / "common").iterdir():
        if "comgr" not in path.name:
            (tmp_path / path.name).symlink_to(path)
    command = [sys.executable, "-m", "hipplan", "sim", "--library", os.environ["HIPPLAN_RUNTIME"], "--", "true"]
    ran = subprocess.run(command, env=os.environ | {"LD_LIBRARY_PATH": str(tmp_path)}, capture_output=True, text=True)

    assert ran.returncode == 3
    assert "error 100): libamd_comgr, with which it compiles its own kernels, is missing" in ran.stderr
    assert "hint: install ROCm's libamd_comgr" in ran.stderr


def test_another_machine_inside_this_one(release: str) -> None:
    count = "import ctypes as c, sys; n = c.c_int(); c.CDLL(sys.argv[1]).hipGetDeviceCount(c.byref(n)); print(n.value)"
    library = os.environ["HIPPLAN_RUNTIME"]
    command = [sys.executable, "-m", "hipplan", "sim", "--library", library, "--machine", "mi250x-8", "--"]
    ran = subprocess.run([*command, sys.executable, "-c", count, library], capture_output=True, text=True)

    assert ran.stdout == "8\n", ran.stderr


COPY_FROM_NOWHERE = """
import ctypes, os
hip = ctypes.CDLL(os.environ["HIPPLAN_RUNTIME"])
own = ctypes.c_void_p()
assert hip.hipMalloc(ctypes.byref(own), ctypes.c_size_t(8192)) == 0
reserved, size = ctypes.c_void_p(), ctypes.c_size_t(2 << 20)
assert hip.hipMemAddressReserve(ctypes.byref(reserved), size, ctypes.c_size_t(0), None, ctypes.c_ulonglong(0)) == 0
handle, prop = ctypes.c_void_p(), (ctypes.c_int * 8)(1, 0, 1, 0)
assert hip.hipMemCreate(ctypes.byref(handle), size, prop, ctypes.c_ulonglong(0)) == 0
assert hip.hipMemMap(reserved, size, ctypes.c_size_t(0), handle, ctypes.c_ulonglong(0)) == 0
hip.hipMemcpy(own, reserved, ctypes.c_size_t(8192), 3)  # no device has access to it
hip.hipDeviceSynchronize()
print("faults:", ctypes.CDLL(None).kfdsim_page_faults())
"""


@pytest.mark.parametrize("on_fault", ["abort", "count"])
def test_a_page_fault_of_a_gpu_ends_the_process_or_is_counted(release: str, on_fault: str) -> None:
    environment = os.environ | {"KFDSIM_ON_FAULT": on_fault, "KFDSIM_LOG": "/dev/stderr"}
    ran = subprocess.run([sys.executable, "-c", COPY_FROM_NOWHERE], env=environment, capture_output=True, text=True)
    assert "Memory access fault by GPU 0" in ran.stderr
    if on_fault == "abort":
        assert ran.returncode == -signal.SIGABRT
    else:
        assert ran.returncode == 0
        assert int(ran.stdout.rpartition(":")[2]) > 0


def test_a_forked_child_may_close_everything(release: str, machine: Machine) -> None:
    """Its driver is its own: the parent's goes on."""
    child = subprocess.run([sys.executable, "-c", "print('child')"], close_fds=True, capture_output=True, text=True)
    assert child.stdout == "child\n"
    test_data_comes_back_through_every_device(machine)
