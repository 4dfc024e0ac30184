"""The kernel: drivers and device files, limits of a process, NUMA nodes."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from typing import Any

from hipplan.machines import drivers, host
from hipplan.machines.doctor.report import Finding
from hipplan.machines.place import System
from hipplan.units import short_size

AMD, NVIDIA = "0x1002", "0x10de"
_VENDORS = {AMD: "AMD", NVIDIA: "NVIDIA"}
_GPU_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")
"""PCI: VGA, 3D, display, accelerator."""
_FEW_FILES = 16_384
_FEW_MAPPINGS = 262_144


def facts(place: System) -> dict[str, Any]:
    nodes = [path.name for path in place.matches("/sys/devices/system/node", "node[0-9]*")]
    usable = host.numa_nodes(place)
    return {
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "processors": len(os.sched_getaffinity(0)),
        "memory": host.memory_total(),
        "memory_allowed": host.memory_allowed(place),
        "memory_pinned": host.memory_pinned(place),
        "numa_nodes": len(nodes),
        "numa_nodes_usable": [known.node for known in usable],
        "huge_pages": host.huge_pages(place),
        "huge_pages_of_nodes": {known.node: known.huge_pages for known in usable},
        "drivers": {
            name: version
            for name, family in (("amd", "amd"), ("nvidia", "cuda"))
            if (version := drivers.version_of(place, family))
        },
        "gpus_on_the_bus": {_VENDORS[vendor]: count for vendor, count in on_the_bus(place).items()},
        "limits": {name: {"soft": soft, "hard": hard} for name, (soft, hard) in place.limits.items()},
        "max_map_count": place.number("/proc/sys/vm/max_map_count"),
    }


def on_the_bus(place: System) -> dict[str, int]:
    """Vendor -> GPUs that PCI shows."""
    groups: dict[str, int] = {}
    for device in place.matches("/sys/bus/pci/devices", "*"):
        vendor = place.text(f"/sys/bus/pci/devices/{device.name}/vendor")
        kind = place.text(f"/sys/bus/pci/devices/{device.name}/class")
        if vendor in _VENDORS and kind.startswith(_GPU_CLASSES):
            groups[vendor] = groups.get(vendor, 0) + 1
    return groups


def examined(place: System) -> Iterator[Finding]:
    yield from _drivers(place)
    yield from _limits(place)
    yield from _memory(place)


def _drivers(place: System) -> Iterator[Finding]:
    bus = on_the_bus(place)
    for vendor, family, package in ((AMD, "amd", "amdgpu"), (NVIDIA, "nvidia", "NVIDIA's")):
        if bus.get(vendor) and not drivers.version_of(place, "amd" if vendor == AMD else "cuda"):
            count = bus[vendor]
            summary = (
                f"{count} GPU{'s' if count > 1 else ''} of {_VENDORS[vendor]}, and no driver of the kernel's for it"
            )
            yield Finding("error", f"driver.{family}", summary, f"install the driver ({package}), or load its module")
    for family in ("amd", "cuda"):
        for obstacle in drivers.obstacles(place, family):
            yield Finding("error", obstacle.topic, obstacle.summary, obstacle.do)


def _limits(place: System) -> Iterator[Finding]:
    _, files = place.limits.get("open_files", (None, None))
    if files is not None and files < _FEW_FILES:
        why = "on AMD each allocation holds a descriptor; larger plans are refused (HP308)"
        do = f"raise the hard limit to {_FEW_FILES} or more: /etc/security/limits.conf, LimitNOFILE= or --ulimit nofile"
        yield Finding("warning", "limits.open_files", f"this process may open {files} files at most", do, why)
    mappings = place.number("/proc/sys/vm/max_map_count")
    if mappings is not None and mappings < _FEW_MAPPINGS:
        why = "each piece of memory that is mapped for the host or a GPU may take one or more"
        do = f"sysctl -w vm.max_map_count={4 * _FEW_MAPPINGS}, for plans of tens of thousands of mappings"
        yield Finding("note", "limits.mappings", f"this process may have {mappings} mappings", do, why)
    locked, _ = place.limits.get("locked_memory", (None, None))
    if locked is not None:
        why = "network cards register memory under this limit; pinned memory of HIP and CUDA does not count"
        do = "raise it where memory is registered with a network: `ulimit -l unlimited`, or --ulimit memlock=-1"
        summary = f"this process may lock {short_size(locked)} of memory"
        yield Finding("note", "limits.locked_memory", summary, do, why)
    addresses, _ = place.limits.get("addresses", (None, None))
    if addresses is not None:
        why = "drivers reserve addresses for all memory of host and GPUs, and do not start without"
        summary = f"addresses are limited to {short_size(addresses)} (ulimit -v)"
        yield Finding("warning", "limits.addresses", summary, "raise it: `ulimit -v unlimited`", why)
    size, _ = place.limits.get("file_size", (None, None))
    if size is not None:
        why = "layout.save and the memory of the simulator are files"
        summary = f"files are limited to {short_size(size)} (ulimit -f)"
        yield Finding("note", "limits.file_size", summary, "raise it: `ulimit -f unlimited`", why)


def _memory(place: System) -> Iterator[Finding]:
    amd = drivers.version_of(place, "amd") or on_the_bus(place).get(AMD)
    if place.number("/proc/sys/kernel/numa_balancing") and amd:
        why = "the kernel takes pages away from where they are to see who uses them, and GPUs wait for them"
        do = "sysctl -w kernel.numa_balancing=0"
        yield Finding("warning", "numa.balancing", "automatic NUMA balancing is on", do, why)
    if place.number("/proc/sys/vm/overcommit_memory") == 2:
        why = "addresses that are only reserved count as memory then"
        do = "sysctl -w vm.overcommit_memory=0, where reservations of large plans are refused"
        yield Finding("note", "memory.overcommit", "the kernel does not overcommit memory", do, why)
    cgroup = host.memory_allowed(place)
    if cgroup is not None and cgroup < host.memory_total():
        why = "pinned memory counts; plans that need more are refused (HP303)"
        summary = f"the control group of this process may use {short_size(cgroup)} of the host's memory"
        yield Finding("note", "memory.cgroup", summary, "keep pinned memory and page cache below it, or raise it", why)
