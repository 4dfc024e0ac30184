"""Provenance: what a machine made of files is read as, and why the rest is null."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hipplan.machines import provenance
from hipplan.machines.elf import build_id
from hipplan.machines.machine import Machine, MachineDevice
from hipplan.machines.place import System
from hipplan.machines.provenance import repository
from hipplan.machines.provenance.reading import FactReading

PCI = "0000:c1:00.0"


def machine(runtime: str) -> Machine:
    device = MachineDevice(name="GPU", uuid="GPU-0123456789abcdef", pci=PCI, memory=100, in_use=7, vmm=True)
    return Machine(name="m", hip_version="7.2.0", runtime=runtime, devices=[device])


def made(root: Path, files: dict[str, object]) -> System:
    for path, text in files.items():
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    return System(root, {"HSA_XNACK": "1", "HOME": "/root", "HIP_PATH": "/opt/rocm"}, {})


def test_the_files_of_amds_driver_are_read(tmp_path: Path) -> None:
    device = f"/sys/bus/pci/devices/{PCI}"
    place = made(tmp_path, {
        f"{device}/hwmon/hwmon3/freq1_input": 2100 * 10**6, f"{device}/hwmon/hwmon3/power1_cap": 750 * 10**6,
        f"{device}/hwmon/hwmon3/temp1_input": 41000, f"{device}/fw_version/mec_fw_version": "0x0000004d",
        f"{device}/vbios_version": "113-M3000100-102",
        "/sys/devices/system/node/node1/distance": "32 10", "/sys/devices/system/node/node1/cpulist": "4-7",
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance",
        "/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "powersave",
        "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
        "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": 8,
        "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": 5,
    })  # fmt: skip
    facts = provenance.collect(None, machine("amd"), place=place)
    (gpu,) = facts["gpus"]

    assert gpu["sensors"] == {
        "clock_mhz": 2100, "power_limit_w": 750, "temperature_c": 41,
        "firmware": {"mec_fw_version": "0x0000004d", "vbios": "113-M3000100-102"},
    }  # fmt: skip
    assert (gpu["memory_in_use"], gpu["pci"], gpu["uuid"]) == (7, PCI, "GPU-0123456789abcdef")
    assert facts["numa"] == [{"node": 1, "processors": "4-7", "distances": [32, 10]}]
    assert facts["governors"] == ["performance", "powersave"]
    assert facts["huge_pages"] == {"transparent": "madvise", "2048kB": {"kept": 8, "free": 5}}
    assert facts["environment"] == {"HIP_PATH": "/opt/rocm", "HSA_XNACK": "1"}


def test_what_cannot_be_read_is_null_with_a_reason(tmp_path: Path) -> None:
    facts = provenance.collect(None, machine("amd"), place=System(tmp_path, {}, {}))
    null = {key for key, value in facts.items() if value is None}

    assert null == {"runtime", "system", "governors", "numa", "numa_balancing", "huge_pages"} | (
        {"folder"} if facts["folder"] is None else set()
    )
    assert null | {"gpus.0.sensors"} == facts["unread"].keys()
    assert facts["unread"]["gpus.0.sensors"] == "the driver shows none"


def test_without_nvidias_package_the_sensors_are_null(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    facts = provenance.collect(None, machine("cuda"), place=System(tmp_path, {}, {}))

    assert facts["gpus"][0]["sensors"] is None
    assert facts["unread"]["gpus.0.sensors"].startswith("ModuleNotFoundError: ")


def test_nvml_is_asked_by_the_address_of_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the package, because this machine has no NVML: its functions, and one that the driver refuses."""
    nvml: Any = ModuleType("pynvml")
    nvml.NVMLError = type("NVMLError", (Exception,), {})
    nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_MEM, nvml.NVML_TEMPERATURE_GPU = 1, 2, 0
    shut = []

    def refused(_: object) -> int:
        raise nvml.NVMLError("Not Supported")

    nvml.nvmlInit = lambda: None
    nvml.nvmlShutdown = lambda: shut.append(1)
    nvml.nvmlDeviceGetHandleByPciBusId = lambda pci: {PCI.encode(): "handle"}[pci]
    nvml.nvmlDeviceGetClockInfo = lambda handle, which: {1: 1980, 2: 3201}[which]
    nvml.nvmlDeviceGetPowerManagementLimit = refused
    nvml.nvmlDeviceGetTemperature = lambda handle, which: 33
    nvml.nvmlDeviceGetVbiosVersion = lambda handle: "96.00"
    monkeypatch.setitem(sys.modules, "pynvml", nvml)

    (gpu,) = provenance.collect(None, machine("cuda"), place=System(tmp_path, {}, {}))["gpus"]
    assert gpu["sensors"] == {
        "clock_mhz": 1980, "memory_clock_mhz": 3201, "power_limit_w": None, "temperature_c": 33,
        "firmware": {"vbios": "96.00"}, "unread": {"power_limit_w": "Not Supported"},
    }  # fmt: skip
    assert shut


def test_amds_library_over_the_stand_in_is_not_taken_for_a_gpu(tmp_path: Path) -> None:
    runtime = {"path": "/opt/rocm/lib/libamdhip64.so.7", "version": "7.2", "driver_version": "7.2"}
    kinds = [
        provenance.collect(runtime, machine("amd"), place=System(tmp_path, environ, {}))["runtime"]["kind"]
        for environ in ({}, {"KFDSIM_MACHINE": "x"})
    ]

    assert kinds == ["amd", "amd without a GPU"]


def test_anonymous_names_nobody(tmp_path: Path) -> None:
    runtime = {"path": "/home/alice/rocm/lib/libamdhip64.so.7", "version": "7.2", "driver_version": "7.2"}
    place = made(tmp_path, {})
    open_facts = provenance.collect(runtime, machine("amd"), place=place)
    facts = provenance.collect(runtime, machine("amd"), anonymous=True, place=place)

    assert open_facts["runtime"]["path"] == runtime["path"] and open_facts["host"]
    assert facts["runtime"]["path"] == "libamdhip64.so.7"
    assert (facts["unread"]["host"], facts["unread"]["folder"]) == ("anonymous", "anonymous")
    assert (facts["host"], facts["folder"], facts["gpus"][0]["uuid"]) == (None, None, None)
    assert facts["environment"] == {"HIP_PATH": "(a path)", "HSA_XNACK": "1"}


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_working_folders_commit_and_whether_it_is_clean(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
        return subprocess.run(
            ["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    assert repository.state(lambda: str(tmp_path), FactReading()) is None
    git("init", "-q")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-qm", "first")
    (tmp_path / "results").write_text("x")
    assert repository.state(lambda: str(tmp_path), FactReading()) == {"commit": git("rev-parse", "HEAD"), "clean": True}
    (tmp_path / "a").write_text("2")
    state = repository.state(lambda: str(tmp_path), FactReading())
    assert state is not None and not state["clean"]


def test_the_build_id_is_that_of_the_linker(tmp_path: Path) -> None:
    source, library = tmp_path / "a.c", tmp_path / "a.so"
    source.write_text("int f;\n")
    subprocess.run(["cc", "-shared", "-Wl,--build-id=0x0123456789abcdef", "-o", library, source], check=True)

    assert build_id(str(library)) == "0123456789abcdef"
    library.write_bytes(library.read_bytes()[:100])
    assert build_id(str(library)) is None
    assert build_id(str(tmp_path / "none")) is None
