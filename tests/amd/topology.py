"""A machine with GPUs as the amdgpu driver describes it in sysfs: python -m tests.amd.topology FOLDER [LINKED]"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

GIB = 2**30
PCIE, XGMI = 2, 11  # HSA_IOLINKTYPE_*


@dataclass(frozen=True)
class Gpu:
    gfx: int
    """gfx_target_version: 90402 is gfx942."""
    device_id: int
    location: int
    """Bus, device and function."""
    domain: int
    memory: int
    simds: int
    links: tuple[int, ...] = ()
    """The GPUs that it reaches over xGMI."""


def _mi300x(location: int, links: tuple[int, ...]) -> Gpu:
    return Gpu(90402, 0x74A1, location, 0, 192 * GIB, 1216, links)


TWO_LINKED_AND_ONE_APART = (
    _mi300x(0x0C00, (1,)),
    _mi300x(0x2200, (0,)),
    Gpu(90010, 0x740F, 0xC101, 1, 64 * GIB, 416),
)


def all_linked(count: int) -> tuple[Gpu, ...]:
    return tuple(_mi300x(0x0C00 + 0x1600 * i, tuple(j for j in range(count) if j != i)) for i in range(count))


def write(folder: Path, gpus: Sequence[Gpu]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "generation_id").write_text("2\n")
    _properties(folder / "system_properties", platform_oem=0, platform_id=0, platform_rev=0)
    _host(folder / "nodes" / "0", gpus)
    for index, gpu in enumerate(gpus):
        _gpu(folder / "nodes" / str(index + 1), index, gpu)


def _properties(path: Path, **values: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{name} {value}\n" for name, value in values.items()))


def _host(node: Path, gpus: Sequence[Gpu]) -> None:
    node.mkdir(parents=True)
    (node / "gpu_id").write_text("0\n")
    (node / "name").write_text("\n")
    _properties(node / "properties", cpu_cores_count=os.cpu_count() or 1, simd_count=0, mem_banks_count=1,
                caches_count=0, io_links_count=len(gpus), p2p_links_count=0, max_engine_clk_ccompute=2400)  # fmt: skip
    _properties(node / "mem_banks" / "0" / "properties",
                heap_type=0, size_in_bytes=64 * GIB, flags=0, width=64, mem_clk_max=3200)  # fmt: skip
    for index in range(len(gpus)):
        _link(node, index, 0, index + 1, PCIE)


def _gpu(node: Path, index: int, gpu: Gpu) -> None:
    number = index + 1
    node.mkdir(parents=True)
    (node / "gpu_id").write_text(f"{10000 + 111 * number}\n")
    (node / "name").write_text("ip discovery\n")
    doorbells_of_8_bytes, watch_points, sram_ecc = 2 << 12, 1 << 3, 1 << 20 | 1 << 26
    coherent_host_access, svm = 1 << 22, 1 << 27
    first_simd = 2**31 + 4096 * (index + 1)
    _properties(
        node / "properties", cpu_cores_count=0, simd_count=gpu.simds, mem_banks_count=1, caches_count=3,
        io_links_count=1 + len(gpu.links), p2p_links_count=0, cpu_core_id_base=0, simd_id_base=first_simd,
        max_waves_per_simd=8, lds_size_in_kb=64, gds_size_in_kb=0, num_gws=64, wave_front_size=64, array_count=32,
        simd_arrays_per_engine=1, cu_per_simd_array=10, simd_per_cu=4, max_slots_scratch_cu=32,
        gfx_target_version=gpu.gfx, vendor_id=0x1002, device_id=gpu.device_id, location_id=gpu.location,
        domain=gpu.domain, drm_render_minor=128 + index, hive_id=0x1234 if gpu.links else 0, num_sdma_engines=2,
        num_sdma_xgmi_engines=6, num_sdma_queues_per_engine=8, num_cp_queues=24, max_engine_clk_fcompute=2100,
        local_mem_size=0, fw_version=166, debug_prop=0, sdma_fw_version=22, unique_id=2**60 + number, num_xcc=1,
        capability=doorbells_of_8_bytes | watch_points | sram_ecc | coherent_host_access | svm,
        max_engine_clk_ccompute=2400,
    )  # fmt: skip
    _properties(node / "mem_banks" / "0" / "properties",
                heap_type=1, size_in_bytes=gpu.memory, flags=0, width=8192, mem_clk_max=1300)  # fmt: skip
    for cache, (level, kilobytes, line) in enumerate([(1, 32, 128), (2, 4096, 128), (3, 262144, 64)]):
        path = node / "caches" / str(cache) / "properties"
        _properties(path, processor_id_low=first_simd, level=level, size=kilobytes, cache_line_size=line,
                    cache_lines_per_tag=1, association=16, latency=0, type=9)  # fmt: skip
        path.write_text(path.read_text() + "sibling_map 1\n")
    _link(node, 0, number, 0, PCIE)
    for link, peer in enumerate(gpu.links):
        _link(node, link + 1, number, peer + 1, XGMI)


def _link(node: Path, index: int, here: int, there: int, kind: int) -> None:
    fast = kind == XGMI
    _properties(
        node / "io_links" / str(index) / "properties", type=kind, version_major=0, version_minor=0, node_from=here,
        node_to=there, weight=15 if fast else 20, min_latency=0, max_latency=0,
        min_bandwidth=64000 if fast else 312, max_bandwidth=64000, recommended_transfer_size=0,
        recommended_sdma_engine_id_mask=0, flags=1,
    )  # fmt: skip


if __name__ == "__main__":
    write(Path(sys.argv[1]), all_linked(int(sys.argv[2])) if len(sys.argv) > 2 else TWO_LINKED_AND_ONE_APART)
