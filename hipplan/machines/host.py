"""What the host gives to this process: memory, huge pages and NUMA nodes, as the kernel and control groups say."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from hipplan.machines.machine import HugePages, HugePageSize, NumaNode
from hipplan.machines.place import System
from hipplan.units import parse_size

_NODES = "/sys/devices/system/node"
_GROUPS = "/sys/fs/cgroup"
_NAMES: dict[HugePageSize, tuple[str, str]] = {
    "2MiB": ("hugepages-2048kB", "hugetlb.2MB"),
    "1GiB": ("hugepages-1048576kB", "hugetlb.1GB"),
}
"""Size -> the names of the kernel's folder, and of files of control groups."""
_LARGE_RESERVE = 3 << 29
"""Bytes that AMD's driver leaves to the host on a large machine."""


def memory_available(place: System | None = None) -> int | None:
    """Bytes of host memory that this process may still take; None where the kernel does not say. Swap is left out."""
    place = place or System.here()
    limits = [*_available_of_machine(place), *_available_of_groups(place)]
    return min(limits) if limits else None


def _available_of_machine(place: System) -> Iterator[int]:
    for line in place.text("/proc/meminfo").splitlines():
        key, _, value = line.partition(":")
        if key == "MemAvailable" and value.split()[:1] and value.split()[0].isdecimal():
            yield int(value.split()[0]) << 10


def _available_of_groups(place: System) -> Iterator[int]:
    """What each group has left; file pages that can go count as free."""
    for group in _groups(place):
        limit, used = place.number(f"{group}/memory.max"), place.number(f"{group}/memory.current")
        if limit is not None and used is not None:
            statistics = dict(line.split() for line in place.text(f"{group}/memory.stat").splitlines())
            yield max(0, limit - used + int(statistics.get("inactive_file", 0)))


def _groups(place: System) -> Iterator[str]:
    """The folders of the control groups (cgroup v2) that this process is in, the innermost first."""
    own = re.search(r"^0::(.*)$", place.text("/proc/self/cgroup"), re.M)
    group = PurePosixPath(own[1] if own else "/")
    for folder in (group, *group.parents):
        yield f"{_GROUPS}/{str(folder).lstrip('/')}".rstrip("/")


def memory_allowed(place: System) -> int | None:
    """Bytes of host memory that the control groups of this process allow; None: they set no limit."""
    limits = [limit for group in _groups(place) if (limit := place.number(f"{group}/memory.max")) is not None]
    return min(limits) if limits else None


def memory_pinned(place: System) -> int | None:
    """Bytes of host memory that AMD's driver pins for all processes together; None: no limit, or no such driver.

    The driver refuses more. Its share differs by release: this is the largest. RLIMIT_MEMLOCK counts for neither AMD's
    nor NVIDIA's driver. Source: Linux, drivers/gpu/drm/amd/amdgpu/amdgpu_amdkfd_gpuvm.c, max_system_mem_limit.
    """
    if place.text("/sys/module/amdgpu/parameters/no_system_mem_limit") not in ("N", "0"):
        return None
    total = memory_total()
    return max(total - total // 64 - _LARGE_RESERVE, total - total // 16)


def memory_total() -> int:
    """Bytes of memory of the host."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def huge_pages(place: System) -> HugePages:
    """How many huge pages of each size this process can still have; empty where the kernel has none."""
    pages: HugePages = {}
    if not place.path("/sys/kernel/mm/hugepages").exists():
        return pages
    for size, (folder, _) in _NAMES.items():
        path = f"/sys/kernel/mm/hugepages/{folder}"
        unreserved = _count(place, f"{path}/free_hugepages") - _count(place, f"{path}/resv_hugepages")
        pages[size] = min([max(0, unreserved) + _surplus(place, size), *_left_by_groups(place, size)])
    return pages


def _surplus(place: System, size: HugePageSize) -> int:
    """The huge pages that the kernel may make when they are asked for."""
    path = f"/sys/kernel/mm/hugepages/{_NAMES[size][0]}"
    return max(0, _count(place, f"{path}/nr_overcommit_hugepages") - _count(place, f"{path}/surplus_hugepages"))


def _left_by_groups(place: System, size: HugePageSize) -> Iterator[int]:
    """The huge pages that each control group has left."""
    name, page_bytes = _NAMES[size][1], parse_size(size)
    for group in _groups(place):
        for limit, used in ((f"{name}.max", f"{name}.current"), (f"{name}.rsvd.max", f"{name}.rsvd.current")):
            if (most := place.number(f"{group}/{limit}")) is not None:
                yield max(0, most - _count(place, f"{group}/{used}")) // page_bytes


def numa_nodes(place: System) -> list[NumaNode]:
    """The nodes whose memory this process may use; none where the kernel does not say."""
    allowed = re.search(r"^Mems_allowed_list:\s*(\S+)", place.text("/proc/self/status"), re.M)
    nodes = numbers_in(place.text(f"{_NODES}/has_memory"))
    if allowed:
        nodes &= numbers_in(allowed[1])
    return [NumaNode(node=node, huge_pages=_huge_pages_of_node(place, node)) for node in sorted(nodes)]


def _huge_pages_of_node(place: System, node: int) -> HugePages:
    path = f"{_NODES}/node{node}/hugepages"
    return {
        size: _count(place, f"{path}/{folder}/free_hugepages") + _surplus(place, size)
        for size, (folder, _) in _NAMES.items()
        if place.path(path).exists()
    }


def numbers_in(text: str) -> set[int]:
    """The numbers in a list of the kernel, such as 0-3,8."""
    numbers: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            numbers |= set(range(int(first), min(int(last or first), 2**16) + 1))
    return numbers


def _count(place: System, path: str) -> int:
    return place.number(path) or 0
