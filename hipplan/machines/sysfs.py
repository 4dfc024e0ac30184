"""Writes GPUs as the kernel shows them outside of the topology: PCI devices, DRM cards, the module.

These are the files that rocm-smi, amd-smi and libdrm look for. What nothing here knows has no file: temperatures,
clocks, power, how busy a GPU is, and how much of its memory all processes use. The tools show "N/A" then.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path

from hipplan.machines.gpus import Gpu

_VENDOR = 0x1002
_DRM_MAJOR = 226
_ACCELERATOR, _DISPLAY = 0x120000, 0x038000  # classes of PCI devices
_ACCELERATORS = ("gfx942", "gfx950")
_ANSWERED = ("/dev/dri", "/proc/modules", "/sys/bus/pci/drivers/amdgpu", "/sys/class/drm", "/sys/class/kfd",
             "/sys/devices/virtual/kfd", "/sys/module/amdgpu")  # fmt: skip
"""What this machine may have too, and a program must not see."""


def write(folder: Path, gpus: Sequence[Gpu]) -> None:
    """Write the files, under their own paths, and `paths`, which lists what the folder answers for."""
    _text(folder / "sys/module/amdgpu/initstate", "live\n")
    _text(folder / "proc/modules", _modules())
    (folder / "sys/class/kfd/kfd/proc").mkdir(parents=True)  # no process is known to use a GPU
    _link(folder / "sys/class/kfd/kfd/topology", folder / "sys/devices/virtual/kfd/kfd/topology")
    _text(folder / "sys/class/drm/version", "drm 1.1.0 20060810\n")
    (folder / "sys/bus/pci/drivers/amdgpu").mkdir(parents=True)
    (folder / "dev/dri").mkdir(parents=True)
    answered = [*_ANSWERED]
    for gpu in gpus:
        answered += _write_gpu(folder, gpu)
    _text(folder / "paths", "".join(f"{path}\n" for path in dict.fromkeys(answered)))


def _write_gpu(folder: Path, gpu: Gpu) -> list[str]:
    """The paths that are this GPU's own."""
    bus = gpu.bus_id.rpartition(":")[0]
    path = f"/sys/devices/pci{bus}/{gpu.bus_id}"
    device = folder / path[1:]
    device.mkdir(parents=True, exist_ok=True)  # partitions of a GPU share it
    kind = _ACCELERATOR if (gpu.device.arch or "").partition(":")[0] in _ACCELERATORS else _DISPLAY
    for name, text in {
        "vendor": f"{_VENDOR:#06x}", "device": f"{gpu.device_id:#06x}", "subsystem_vendor": f"{_VENDOR:#06x}",
        "subsystem_device": f"{gpu.device_id:#06x}", "revision": "0x00", "class": f"{kind:#08x}",
        "numa_node": f"{gpu.host_node}", "unique_id": f"{gpu.unique_id:016x}", "product_name": gpu.device.name,
        "mem_info_vram_total": f"{gpu.memory}", "mem_info_vis_vram_total": f"{gpu.memory}",
        "uevent": f"DRIVER=amdgpu\nPCI_CLASS={kind:X}\nPCI_ID={_VENDOR:X}:{gpu.device_id:X}\n"
                  f"PCI_SUBSYS_ID={_VENDOR:X}:{gpu.device_id:X}\nPCI_SLOT_NAME={gpu.bus_id}",
    }.items():  # fmt: skip
        _text(device / name, f"{text}\n")
    (device / "config").write_bytes(
        struct.pack("<HHHHBBH32xHH208x", _VENDOR, gpu.device_id, 6, 0x10, 0, 0, kind >> 8, _VENDOR, gpu.device_id)
    )
    _link(device / "driver", folder / "sys/bus/pci/drivers/amdgpu")
    _link(device / "subsystem", folder / "sys/bus/pci")
    numbers = []
    for minor, name in ((gpu.index, f"card{gpu.index}"), (gpu.render_node, f"renderD{gpu.render_node}")):
        node = device / "drm" / name
        _text(node / "dev", f"{_DRM_MAJOR}:{minor}\n")
        _text(node / "uevent", f"MAJOR={_DRM_MAJOR}\nMINOR={minor}\nDEVNAME=dri/{name}\nDEVTYPE=drm_minor\n")
        _link(node / "device", device)
        numbers.append(f"/sys/dev/char/{_DRM_MAJOR}:{minor}")
        _link(folder / numbers[-1][1:], node)
        _link(folder / "sys/class/drm" / name, node)
        _text(folder / "dev/dri" / name, "")
    for bus_folder in ("devices", "drivers/amdgpu"):
        _link(folder / "sys/bus/pci" / bus_folder / gpu.bus_id, device)
    return [path, f"/sys/bus/pci/devices/{gpu.bus_id}", *numbers]


def _modules() -> str:
    """This kernel's modules, and the driver."""
    try:
        lines = Path("/proc/modules").read_text("utf-8", "replace").splitlines(keepends=True)
    except OSError:
        lines = []
    others = [line for line in lines if not line.startswith("amdgpu ")]
    return "".join(["amdgpu 20000000 0 - Live 0x0000000000000000\n", *others])


def _text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def _link(path: Path, target: Path) -> None:
    """A link as the kernel makes it: relative, so that it leads to the same place from wherever the folder is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_symlink():
        path.symlink_to(os.path.relpath(target, path.parent))
