"""Findings about the devices that a driver reported."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import combinations

from hipplan.machines.doctor import releases
from hipplan.machines.doctor.report import Finding
from hipplan.machines.host import numbers_in
from hipplan.machines.machine import Machine
from hipplan.machines.place import System

_HIDING = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
_FEW = 6
"""At most so many pairs are named."""


def examined(place: System, machine: Machine) -> Iterator[Finding]:
    yield from releases.examined(machine.runtime, machine.version)
    yield from _abilities(machine)
    yield from _links(machine)
    yield from _nodes(place, machine)
    if machine.runtime == "amd":
        yield from _hidden(place, machine)


def _abilities(machine: Machine) -> Iterator[Finding]:
    amd = machine.runtime == "amd"
    for ordinal, device in enumerate(machine.devices):
        who = f"device {ordinal} ({device.name})"
        if not device.vmm:
            why = "reservations and regions are refused on it (HP304)"
            do = "use a newer kernel and driver" if amd else "use bare metal, or a vGPU profile with unified memory"
            yield Finding("warning", "device.vmm", f"{who} has no virtual memory management", do, why)
        if amd and device.host_visible is False:
            why = "peers reach no more of it than its small window"
            do = "switch on Resizable BAR and Above 4G Decoding in the firmware"
            yield Finding("warning", "device.large_bar", f"the host does not see all memory of {who}", do, why)
    if amd and any(device.xnack is False and device.managed for device in machine.devices):
        summary = "XNACK is off: managed memory does not migrate when a GPU touches it, and malloc is not the GPU's"
        do = "set HSA_XNACK=1 on MI200 and MI300 for plans that need it; prefetches work without"
        yield Finding("note", "device.xnack", summary, do)
    if any(device.managed is False for device in machine.devices):
        do = "leave managed buffers out of plans for it (HP305), or use a newer kernel"
        yield Finding("note", "device.managed", "there is no managed memory (hipMallocManaged)", do)


def _links(machine: Machine) -> Iterator[Finding]:
    pairs = list(combinations(range(len(machine.devices)), 2))
    apart = [(a, b) for a, b in pairs if not (machine.can_access(a, b) and machine.can_access(b, a))]
    if apart:
        shown = ", ".join(f"{a} and {b}" for a, b in apart[:_FEW]) + (", ..." if len(apart) > _FEW else "")
        why = "a peer link or a right between them is refused (HP306, HP307), and copies go through the host"
        do = "plan for groups that are linked; or look for PCI access control (ACS), an IOMMU, or a virtual machine"
        summary = f"{len(apart)} of {len(pairs)} pairs of devices are not linked: {shown}"
        yield Finding("warning", "peers.apart", summary, do, why)
    kinds = {link.type for _, _, link in machine.reachable()}
    if "pcie" in kinds and kinds & {"xgmi", "nvlink"}:
        do = "keep what is exchanged often on devices that are linked directly: `hipplan machine` shows which"
        yield Finding("note", "peers.mixed", "some devices are linked directly, others over PCIe", do)


def _nodes(place: System, machine: Machine) -> Iterator[Finding]:
    nodes = place.matches("/sys/devices/system/node", "node[0-9]*")
    if len(nodes) < 2:
        return
    lost = [ordinal for ordinal, device in enumerate(machine.devices) if device.numa_node is None]
    if lost:
        summary = f"the NUMA node is unknown for device {', '.join(map(str, lost))}"
        do = "name the node with `numa_node` in a plan; `numa: near` does nothing there (HP256)"
        yield Finding("note", "numa.unknown", summary, do)
    here = _nodes_of_this_process(place)
    for node in sorted({device.numa_node for device in machine.devices if device.numa_node is not None} - here):
        near = [str(n) for n, device in enumerate(machine.devices) if device.numa_node == node]
        summary = f"this process may run on no processor of NUMA node {node}, which device {', '.join(near)} is next to"
        do = f"start it there for copies at full speed: numactl --cpunodebind={node}"
        yield Finding("note", "numa.far", summary, do)


def _nodes_of_this_process(place: System) -> set[int]:
    mine = os.sched_getaffinity(0)
    visible = set()
    for folder in place.matches("/sys/devices/system/node", "node[0-9]*"):
        number = folder.name.removeprefix("node")
        text = place.text(f"/sys/devices/system/node/{folder.name}/cpulist")
        if number.isdecimal() and mine & numbers_in(text):
            visible.add(int(number))
    return visible


def _hidden(place: System, machine: Machine) -> Iterator[Finding]:
    files = place.matches("/sys/class/kfd/kfd/topology/nodes", "*/properties")
    known = sum(_simds(place, file.parent.name) > 0 for file in files)
    if known > len(machine.devices) and not any(place.environ.get(variable) for variable in _HIDING):
        summary = f"the kernel knows {known} GPUs, the runtime {len(machine.devices)}"
        do = "give the container all of /dev/dri and /dev/kfd, and look at dmesg"
        yield Finding("warning", "device.missing", summary, do)


def _simds(place: System, node: str) -> int:
    """The SIMDs of a GPU; 0 for a processor."""
    text = place.text(f"/sys/class/kfd/kfd/topology/nodes/{node}/properties")
    simds = next((line.split()[1:] for line in text.splitlines() if line.startswith("simd_count ")), [])
    return int(simds[0]) if simds and simds[0].isdecimal() else 0
