"""Writes a machine profile as files of the amdgpu driver in sysfs, which AMD's libraries read.

    write(folder, load_machine("mi300x-8"))    # folder/topology/nodes/0 ...

Figures that are not in a profile come from the kind of GPU; they do not influence memory.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from hipplan.errors import Diagnostic, MachineError
from hipplan.machines.machine import Machine, MachineDevice

_PCIE, _XGMI = 2, 11  # HSA_IOLINKTYPE_*
_DEVICE_IDS = {"gfx906": 0x66A1, "gfx908": 0x738C, "gfx90a": 0x740F, "gfx942": 0x74A1, "gfx950": 0x75A3}
_ANY_DEVICE = 0x74A1
_MI300A = 0x74A0
_COMPUTE_UNITS = 104
_SIMDS = 4
"""SIMDs of a compute unit."""
_ARRAYS = 32
_FIRST_RENDER_NODE = 128
_NAME = "profile"
"""The file with the name of the profile."""
_MAX_GPUS = 64
"""A table of rights has as many bits, and the kernel as many render nodes."""


@dataclass(frozen=True)
class _Gpu:
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
    def device_id(self) -> int:
        arch = (self.device.arch or "").partition(":")[0]
        return _MI300A if arch == "gfx942" and self.device.integrated else _DEVICE_IDS.get(arch, _ANY_DEVICE)

    @property
    def link_to_host(self) -> int:
        return _XGMI if self.device.integrated else _PCIE

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


def write(folder: Path, machine: Machine) -> None:
    """Write the files. Raises MachineError (HP407) for a machine without AMD GPUs, or with too many unknown figures."""
    hosts = 1 + max((device.numa_node or 0 for device in machine.devices), default=0)
    gpus = [_gpu(machine, index, device, hosts) for index, device in enumerate(machine.devices)]
    if not 0 < len(gpus) <= _MAX_GPUS:
        raise _refused(machine, f"it has {len(gpus)} devices, and the driver's stand-in takes 1 to {_MAX_GPUS}")
    topology = folder / "topology"
    _properties(topology / "system_properties", platform_oem=0, platform_id=0, platform_rev=0)
    (topology / "generation_id").write_text("2\n")
    for host in range(hosts):
        _write_host(topology / "nodes" / str(host), host, hosts, machine, gpus)
    for gpu in gpus:
        _write_gpu(topology / "nodes" / str(gpu.node), gpu, machine, gpus)
    (folder / _NAME).write_text(machine.name, "utf-8")
    (folder / "module").mkdir()
    (folder / "module" / "initstate").write_text("live\n")
    _properties(folder / "driver", xnack=int(any(device.xnack for device in machine.devices)))


def name_here() -> str:
    """The name of the machine that this process finds instead of its own; empty if it finds its own."""
    folder = os.environ.get("KFDSIM_MACHINE")
    try:
        return f"{Path(folder, _NAME).read_text('utf-8', 'replace')} without a GPU" if folder else ""
    except OSError:
        return ""


def _refused(machine: Machine, why: str) -> MachineError:
    hint = "take a profile of AMD's GPUs, such as mi300x-8; `hipplan machine list` shows them"
    return MachineError(
        Diagnostic("HP407", f"the machine {machine.name} cannot be simulated for AMD's library", why=why, hint=hint)
    )


def _gpu(machine: Machine, index: int, device: MachineDevice, hosts: int) -> _Gpu:
    version = re.fullmatch("gfx([0-9]{1,2})([0-9a-f])([0-9a-f])", (device.arch or "").partition(":")[0])
    if version is None:
        raise _refused(machine, f"device {index} ({device.name}) has no AMD target, such as gfx942, as its arch")
    if device.memory is None:
        raise _refused(machine, f"the memory size of device {index} ({device.name}) is unknown")
    major, minor, stepping = int(version[1]), int(version[2], 16), int(version[3], 16)
    number = major * 10000 + minor * 100 + stepping
    return _Gpu(index, hosts + index, device.numa_node or 0, device, number, device.memory)


def _properties(path: Path, **values: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{name} {value}\n" for name, value in values.items()))


def _node(path: Path, gpu_id: int, name: str) -> None:
    path.mkdir(parents=True)
    (path / "gpu_id").write_text(f"{gpu_id}\n")
    (path / "name").write_text(f"{name}\n")


def _write_host(path: Path, host: int, hosts: int, machine: Machine, gpus: list[_Gpu]) -> None:
    near = [gpu for gpu in gpus if gpu.host_node == host]
    memory = machine.host_memory or _likely_host_memory(gpus)
    _node(path, 0, "")
    _properties(
        path / "properties", cpu_cores_count=max(1, (os.cpu_count() or 1) // hosts), simd_count=0, mem_banks_count=1,
        caches_count=0, io_links_count=len(near), p2p_links_count=0, max_engine_clk_ccompute=2400,
    )  # fmt: skip
    _properties(path / "mem_banks" / "0" / "properties",
                heap_type=0, size_in_bytes=memory // hosts, flags=0, width=64, mem_clk_max=3200)  # fmt: skip
    for link, gpu in enumerate(near):
        _link(path / "io_links" / str(link), host, gpu.node, gpu.link_to_host)


def _likely_host_memory(gpus: list[_Gpu]) -> int:
    """For a profile that does not say: AMD's HIP makes no allocation larger than the host's memory."""
    here = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    shared = sum(gpu.memory for gpu in gpus if gpu.device.integrated)  # APUs share the host's memory
    return shared or max(here, sum(gpu.memory for gpu in gpus))


def _write_gpu(path: Path, gpu: _Gpu, machine: Machine, gpus: list[_Gpu]) -> None:
    links = {other.node: machine.link(gpu.index, other.index) for other in gpus}
    fast = [node for node, link in links.items() if link is not None and link.type != "pcie"]
    slow = [node for node, link in links.items() if link is not None and link.type == "pcie"]
    units = gpu.device.multiprocessors or _COMPUTE_UNITS
    domain, location = gpu.bus
    doorbells_of_8_bytes, watch_points, sram_ecc = 2 << 12, 1 << 3, 1 << 20 | 1 << 26
    asic_revision, svm, coherent_host_access = 1 << 22, 1 << 27, int(gpu.device.integrated or 0) << 28
    first_simd = 2**31 + 4096 * (gpu.index + 1)
    _node(path, 10000 + 111 * (gpu.index + 1), "ip discovery")
    (path / "marketing_name").write_text(f"{gpu.device.name}\n")
    _properties(path / "driver", integrated=int(gpu.device.integrated or 0))
    _properties(
        path / "properties", cpu_cores_count=0, simd_count=units * _SIMDS, mem_banks_count=1, caches_count=3,
        io_links_count=1 + len(fast), p2p_links_count=len(slow), cpu_core_id_base=0, simd_id_base=first_simd,
        max_waves_per_simd=8, lds_size_in_kb=64, gds_size_in_kb=0, num_gws=64, wave_front_size=64, array_count=_ARRAYS,
        simd_arrays_per_engine=1, cu_per_simd_array=-(-units // _ARRAYS), simd_per_cu=_SIMDS, max_slots_scratch_cu=32,
        gfx_target_version=gpu.version, vendor_id=0x1002, location_id=location, domain=domain,
        device_id=gpu.device_id,
        drm_render_minor=_FIRST_RENDER_NODE + gpu.index, hive_id=0x1234 if fast else 0, num_sdma_engines=2,
        num_sdma_xgmi_engines=6, num_sdma_queues_per_engine=8, num_cp_queues=24, max_engine_clk_fcompute=2100,
        local_mem_size=0, fw_version=166, debug_prop=0, sdma_fw_version=22, unique_id=gpu.unique_id, num_xcc=gpu.dies,
        capability=doorbells_of_8_bytes | watch_points | sram_ecc | asic_revision | svm | coherent_host_access,
        max_engine_clk_ccompute=2400,
    )  # fmt: skip
    _properties(path / "mem_banks" / "0" / "properties",
                heap_type=1, size_in_bytes=gpu.memory, flags=0, width=8192, mem_clk_max=1300)  # fmt: skip
    for cache, (level, kilobytes, line) in enumerate([(1, 32, 128), (2, 4096, 128), (3, 262144, 64)]):
        at = path / "caches" / str(cache) / "properties"
        _properties(at, processor_id_low=first_simd, level=level, size=kilobytes, cache_line_size=line,
                    cache_lines_per_tag=1, association=16, latency=0, type=9)  # fmt: skip
        at.write_text(at.read_text() + "sibling_map 1\n")
    for number, (there, kind) in enumerate([(gpu.host_node, gpu.link_to_host), *((node, _XGMI) for node in fast)]):
        _link(path / "io_links" / str(number), gpu.node, there, kind)
    for number, there in enumerate(slow):
        _link(path / "p2p_links" / str(number), gpu.node, there, _PCIE)


def _link(path: Path, here: int, there: int, kind: int) -> None:
    fast = kind == _XGMI
    _properties(
        path / "properties", type=kind, version_major=0, version_minor=0, node_from=here, node_to=there,
        weight=15 if fast else 20, min_latency=0, max_latency=0, min_bandwidth=64000 if fast else 312,
        max_bandwidth=64000, recommended_transfer_size=0, recommended_sdma_engine_id_mask=0, flags=1,
    )  # fmt: skip
