"""Writes a machine profile as files of AMD's driver, which AMD's libraries and tools read, into a folder.

    write(folder, load_machine("mi300x-8"))    # folder/sys/class/kfd/kfd/topology/nodes/0 ...

Figures that are not in a profile come from the kind of GPU; they do not influence memory.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from hipplan.machines import sysfs
from hipplan.machines.gpus import PCIE, XGMI, Gpu, host_nodes, numbered
from hipplan.machines.machine import Machine

_COMPUTE_UNITS = 104
_SIMDS = 4
"""SIMDs of a compute unit."""
_ARRAYS = 32
_NAME = "profile"
"""The file with the name of the profile."""
_TOPOLOGY = Path("sys/devices/virtual/kfd/kfd/topology")
NODES = _TOPOLOGY / "nodes"
"""Where in the folder are the nodes: hosts, then GPUs."""
_BANK = "mem_banks/0/properties"
"""Where in a node's folder its memory is described."""
_HEAP_OF_HOST = 0
_HEAP_OF_GPU = 1


def write(folder: Path, machine: Machine) -> None:
    """Write the files. Raises MachineError (HP407) for a machine without AMD GPUs, or with too many unknown figures."""
    hosts, gpus = host_nodes(machine), numbered(machine)
    _properties(folder / _TOPOLOGY / "system_properties", platform_oem=0, platform_id=0, platform_rev=0)
    (folder / _TOPOLOGY / "generation_id").write_text("2\n")
    for host in range(hosts):
        _write_host(folder / NODES / str(host), host, hosts, machine, gpus)
    for gpu in gpus:
        _write_gpu(folder / NODES / str(gpu.node), gpu, machine, gpus)
    sysfs.write(folder, gpus)
    (folder / _NAME).write_text(machine.name, "utf-8")
    _properties(folder / "driver", xnack=int(any(device.xnack for device in machine.devices)))


@dataclass(frozen=True)
class Host:
    """A host of a profile, in a process that runs without a GPU."""

    memory: int
    """Bytes."""
    backed_memory: int
    """How many of these bytes this machine can back."""
    nodes: list[int]
    """Its NUMA nodes."""


def host_here() -> Host | None:
    """The host that this process finds instead of its own machine; None if it finds its own."""
    folder = os.environ.get("KFDSIM_MACHINE")
    if not folder:
        return None
    import ctypes  # takes milliseconds, which most processes need not spend

    driver = ctypes.CDLL(None)
    if not hasattr(driver, "kfdsim_backing_limit"):  # the variable alone, without the stand-in
        return None
    driver.kfdsim_backing_limit.restype = ctypes.c_uint64
    banks = sorted(Path(folder, NODES).glob(f"*/{_BANK}"))
    sizes = [_number_of("size_in_bytes", bank) for bank in banks if _number_of("heap_type", bank) == _HEAP_OF_HOST]
    return Host(sum(sizes), driver.kfdsim_backing_limit(), list(range(len(sizes))))


def name_here() -> str:
    """The name of the machine that this process finds instead of its own; empty if it finds its own."""
    folder = os.environ.get("KFDSIM_MACHINE")
    try:
        return f"{Path(folder, _NAME).read_text('utf-8', 'replace')} without a GPU" if folder else ""
    except OSError:
        return ""


def _number_of(name: str, path: Path) -> int:
    return next(int(line.split()[1]) for line in path.read_text().splitlines() if line.startswith(f"{name} "))


def _properties(path: Path, **values: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{name} {value}\n" for name, value in values.items()))


def _node(path: Path, gpu_id: int, name: str) -> None:
    path.mkdir(parents=True)
    (path / "gpu_id").write_text(f"{gpu_id}\n")
    (path / "name").write_text(f"{name}\n")


def _write_host(path: Path, host: int, hosts: int, machine: Machine, gpus: list[Gpu]) -> None:
    near = [gpu for gpu in gpus if gpu.host_node == host]
    memory = machine.host_memory or _likely_host_memory(gpus)
    _node(path, 0, "")
    _properties(
        path / "properties", cpu_cores_count=max(1, (os.cpu_count() or 1) // hosts), simd_count=0, mem_banks_count=1,
        caches_count=0, io_links_count=len(near), p2p_links_count=0, max_engine_clk_ccompute=2400,
    )  # fmt: skip
    bank = {"size_in_bytes": memory // hosts, "flags": 0, "width": 64, "mem_clk_max": 3200}
    _properties(path / _BANK, heap_type=_HEAP_OF_HOST, **bank)
    for link, gpu in enumerate(near):
        _link(path / "io_links" / str(link), host, gpu.node, gpu.link_to_host)


def _likely_host_memory(gpus: list[Gpu]) -> int:
    """Guesses for a profile that does not say: AMD's HIP makes no allocation larger than the host's memory."""
    here = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    shared = sum(gpu.memory for gpu in gpus if gpu.device.integrated)  # APUs share the host's memory
    return shared or max(here, sum(gpu.memory for gpu in gpus))


def _write_gpu(path: Path, gpu: Gpu, machine: Machine, gpus: list[Gpu]) -> None:
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
        drm_render_minor=gpu.render_node, hive_id=0x1234 if fast else 0, num_sdma_engines=2,
        num_sdma_xgmi_engines=6, num_sdma_queues_per_engine=8, num_cp_queues=24, max_engine_clk_fcompute=2100,
        local_mem_size=0, fw_version=166, debug_prop=0, sdma_fw_version=22, unique_id=gpu.unique_id, num_xcc=gpu.dies,
        capability=doorbells_of_8_bytes | watch_points | sram_ecc | asic_revision | svm | coherent_host_access,
        max_engine_clk_ccompute=2400,
    )  # fmt: skip
    bank = {"size_in_bytes": gpu.memory, "flags": 0, "width": 8192, "mem_clk_max": 1300}
    _properties(path / _BANK, heap_type=_HEAP_OF_GPU, **bank)
    for cache, (level, kilobytes, line) in enumerate([(1, 32, 128), (2, 4096, 128), (3, 262144, 64)]):
        at = path / "caches" / str(cache) / "properties"
        _properties(at, processor_id_low=first_simd, level=level, size=kilobytes, cache_line_size=line,
                    cache_lines_per_tag=1, association=16, latency=0, type=9)  # fmt: skip
        at.write_text(at.read_text() + "sibling_map 1\n")
    for number, (there, kind) in enumerate([(gpu.host_node, gpu.link_to_host), *((node, XGMI) for node in fast)]):
        _link(path / "io_links" / str(number), gpu.node, there, kind)
    for number, there in enumerate(slow):
        _link(path / "p2p_links" / str(number), gpu.node, there, PCIE)


def _link(path: Path, here: int, there: int, kind: int) -> None:
    fast = kind == XGMI
    _properties(
        path / "properties", type=kind, version_major=0, version_minor=0, node_from=here, node_to=there,
        weight=15 if fast else 20, min_latency=0, max_latency=0, min_bandwidth=64000 if fast else 312,
        max_bandwidth=64000, recommended_transfer_size=0, recommended_sdma_engine_id_mask=0, flags=1,
    )  # fmt: skip
