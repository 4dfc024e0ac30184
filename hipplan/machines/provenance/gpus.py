"""The GPUs: what they are, what they run at, and how warm they are.

AMD's kernel driver shows clocks, power and temperature in files (hwmon) and its firmware's versions; for NVIDIA's the
package nvidia-ml-py (pynvml) asks NVML. Sources: Linux, Documentation/gpu/amdgpu/thermal.rst; NVML API reference.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from hipplan.machines.machine import Machine, MachineDevice
from hipplan.machines.place import System
from hipplan.machines.provenance.reading import FactReading

Sensors = dict[str, Any]
_NO_SENSORS = "the driver shows none"


def facts(machine: Machine | None, place: System, reading: FactReading) -> list[dict[str, Any]] | None:
    """Returns the facts about each device of the machine. memory_in_use: bytes, before the memory was made; None: no
    plan's device."""
    if machine is None:
        reading.reasons["gpus"] = "no machine was measured"
        return None
    sensors: dict[str, Callable[[MachineDevice, System], Sensors]] = {"amd": _amd, "cuda": _nvml}
    read = sensors.get(str(machine.runtime))
    shown = []
    for ordinal, device in enumerate(machine.devices):
        key = f"gpus.{ordinal}.sensors"
        if read is None:
            reading.reasons[key] = "the simulator has none"
        shown.append({
            "model": device.name,
            "arch": device.arch,
            "uuid": device.uuid,
            "pci": device.pci,
            "numa_node": device.numa_node,
            "memory": device.memory,
            "memory_in_use": device.in_use if device.memory else None,
            "sensors": None if read is None else reading.fact(key, lambda: read(device, place), _NO_SENSORS),  # noqa: B023
        })  # fmt: skip
    return shown


def _amd(device: MachineDevice, place: System) -> Sensors:
    folder = f"/sys/bus/pci/devices/{device.pci}"
    sensors: Sensors = {}
    for hwmon in place.matches(f"{folder}/hwmon", "hwmon*")[:1]:
        path = f"{folder}/hwmon/{hwmon.name}"
        figures = {
            "clock_mhz": (f"{path}/freq1_input", 10**6),
            "memory_clock_mhz": (f"{path}/freq2_input", 10**6),
            "power_limit_w": (f"{path}/power1_cap", 10**6),
            "temperature_c": (f"{path}/temp1_input", 10**3),
        }
        for figure, (file, scale) in figures.items():
            if (number := place.number(file)) is not None:
                sensors[figure] = number / scale
    firmware = {
        file.name: place.text(f"{folder}/fw_version/{file.name}") for file in place.matches(f"{folder}/fw_version", "*")
    }
    if vbios := place.text(f"{folder}/vbios_version"):
        firmware["vbios"] = vbios
    return {**sensors, **({"firmware": firmware} if firmware else {})}


def _nvml(device: MachineDevice, place: System) -> Sensors:
    """Raises ImportError without the package, and NVML's errors."""
    nvml = importlib.import_module("pynvml")
    nvml.nvmlInit()
    try:
        handle = nvml.nvmlDeviceGetHandleByPciBusId(str(device.pci).encode())
        figures: dict[str, Callable[[], Any]] = {
            "clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "memory_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
            "power_limit_w": lambda: nvml.nvmlDeviceGetPowerManagementLimit(handle) / 1000,
            "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            "firmware": lambda: {"vbios": nvml.nvmlDeviceGetVbiosVersion(handle)},
        }
        sensors: Sensors = {}
        for figure, read in figures.items():
            try:
                sensors[figure] = read()
            except nvml.NVMLError as error:  # a virtual machine may show some and not others
                sensors[figure] = None
                sensors.setdefault("unread", {})[figure] = str(error)
        return sensors
    finally:
        nvml.nvmlShutdown()
