"""The devices of a profile by the numbers that AMD's driver gives them.

for gpu in numbered(load_machine("mi300x-8")): print(gpu.node, gpu.bus_id)
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hipplan.errors import Diagnostic, MachineError
from hipplan.machines.machine import Machine, MachineDevice

PCIE, XGMI = 2, 11  # HSA_IOLINKTYPE_*
FIRST_RENDER_NODE = 128
_DEVICE_IDS = {"gfx906": 0x66A1, "gfx908": 0x738C, "gfx90a": 0x740F, "gfx942": 0x74A1, "gfx950": 0x75A3}
_ANY_DEVICE = 0x74A1
_MI300A = 0x74A0
_MAX_GPUS = 64
"""A table of rights has as many bits, and the kernel as many render nodes."""


@dataclass(frozen=True)
class Gpu:
    """A device of the profile, with its node number."""

    index: int
    node: int
    host_node: int
    device: MachineDevice
    version: int
    """gfx_target_version: 90402 is gfx942."""
    memory: int

    @property
    def bus(self) -> tuple[int, int]:
        """PCI domain, and bus, device and function in one number."""
        if self.device.pci is None:
            return 0, (self.index + 1) << 8
        domain, bus, slot, function = (int(part, 16) for part in re.split("[:.]", self.device.pci))
        return domain, bus << 8 | slot << 3 | function

    @property
    def bus_id(self) -> str:
        """Its PCI address as the kernel writes it."""
        domain, location = self.bus
        return f"{domain:04x}:{location >> 8:02x}:{location >> 3 & 31:02x}.{location & 7}"

    @property
    def render_node(self) -> int:
        return FIRST_RENDER_NODE + self.index

    @property
    def device_id(self) -> int:
        arch = (self.device.arch or "").partition(":")[0]
        return _MI300A if arch == "gfx942" and self.device.integrated else _DEVICE_IDS.get(arch, _ANY_DEVICE)

    @property
    def link_to_host(self) -> int:
        return XGMI if self.device.integrated else PCIE

    @property
    def dies(self) -> int:
        """How many dies compute for it: one in CPX mode."""
        units = {"gfx942": 38, "gfx950": 32}.get((self.device.arch or "").partition(":")[0], 0)
        return max(1, (self.device.multiprocessors or 0) // units) if units else 1

    @property
    def unique_id(self) -> int:
        """The number whose hexadecimal digits HIP shows as the device's UUID."""
        digits = re.sub("^GPU-|-", "", self.device.uuid or "")
        if len(digits) == 32:  # HIP's 16 bytes are those digits, as text
            shown = bytes.fromhex(digits).decode("latin-1")
            digits = shown if re.fullmatch("[0-9a-fA-F]{16}", shown) else digits[:16]
        return int(digits[:16], 16) if digits else 2**60 + self.index + 1


def host_nodes(machine: Machine) -> int:
    """How many NUMA nodes its host has: their numbers come before those of the GPUs."""
    return 1 + max((device.numa_node or 0 for device in machine.devices), default=0)


def numbered(machine: Machine) -> list[Gpu]:
    """Its GPUs. Raises MachineError (HP407) for a machine without AMD GPUs, or with too many unknown figures."""
    gpus = [_numbered(machine, index, device, host_nodes(machine)) for index, device in enumerate(machine.devices)]
    if not 0 < len(gpus) <= _MAX_GPUS:
        raise _refused(machine, f"it has {len(gpus)} devices, and the driver's stand-in takes 1 to {_MAX_GPUS}")
    return gpus


def _numbered(machine: Machine, index: int, device: MachineDevice, hosts: int) -> Gpu:
    version = re.fullmatch("gfx([0-9]{1,2})([0-9a-f])([0-9a-f])", (device.arch or "").partition(":")[0])
    if version is None:
        raise _refused(machine, f"device {index} ({device.name}) has no AMD target, such as gfx942, as its arch")
    if device.memory is None:
        raise _refused(machine, f"the memory size of device {index} ({device.name}) is unknown")
    major, minor, stepping = int(version[1]), int(version[2], 16), int(version[3], 16)
    number = major * 10000 + minor * 100 + stepping
    return Gpu(index, hosts + index, device.numa_node or 0, device, number, device.memory)


def _refused(machine: Machine, why: str) -> MachineError:
    hint = "take a profile of AMD's GPUs, such as mi300x-8; `hipplan machine list` shows them"
    return MachineError(
        Diagnostic("HP407", f"the machine {machine.name} cannot be simulated for AMD's library", why=why, hint=hint)
    )
