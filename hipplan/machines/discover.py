"""Measures this machine's profile through a runtime."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, cast, get_args

from hipplan import _core
from hipplan.errors import Diagnostic, RuntimeUnavailable, printable
from hipplan.machines import host, topology
from hipplan.machines.machine import Limits, Link, LinkType, Machine, MachineDevice, NumaNode, OfHost, SourceNote
from hipplan.machines.place import System
from hipplan.machines.runtimes import Chosen
from hipplan.units import version_text


def discover(
    chosen: Chosen,
    wanted: Callable[[Machine], Container[int]] | None = None,
    of_host: Sequence[OfHost] = ("memory", "pages"),
) -> Machine:
    """The machine, as the runtime reports it. Raises RuntimeUnavailable (HP407) if a query fails.

    wanted: chooses devices, from the machine without these figures, whose memory and granularity are queried; None:
    all. To report free memory, CUDA makes a context, which takes hundreds of MB of the device.
    of_host: which figures of the host are read, from files that take longer than all queries of a driver: limits of its
    memory, and its huge pages and NUMA nodes.
    """
    runtime = chosen.runtime
    with _driver_errors():
        count = runtime.device_count()
        devices = [_device(chosen, ordinal) for ordinal in range(count)]
        links = [
            _link(runtime, a, b) for a in range(count) for b in range(count) if a != b and runtime.can_access_peer(a, b)
        ]
        machine = _machine(chosen, devices, links)
        chosen_ones = range(count) if wanted is None else wanted(machine)
        measured = [
            _with_memory(runtime, ordinal, device) if ordinal in chosen_ones else device
            for ordinal, device in enumerate(devices)
        ]
        return machine.model_copy(update={"devices": measured, **_of_host(chosen, machine.limits, of_host)})


def current_device(runtime: _core.Runtime) -> int:
    """The current device of the calling thread. Raises RuntimeUnavailable (HP407) if the query fails."""
    with _driver_errors():
        return runtime.current_device()


@contextmanager
def _driver_errors() -> Iterator[None]:
    try:
        yield
    except _core.HipError as error:
        raise RuntimeUnavailable(
            Diagnostic("HP407", f"the runtime cannot describe this machine: {error.name}", why=str(error))
        ) from error


def _of_host(chosen: Chosen, limits: Limits, of_host: Sequence[OfHost]) -> dict[str, Any]:
    """Limits and NUMA nodes of the host. The nodes of a simulated machine are those of its profile, if it has any."""
    if not of_host:
        return {}
    place, without_gpu = System.here(), topology.host_here()
    update: dict[str, Any] = {}
    nodes: list[NumaNode] = []
    if "memory" in of_host and chosen.kind != "sim":  # simulated memory takes none until it is written to
        pinned = host.memory_pinned(place) if chosen.kind == "amd" else None
        update |= {"host_memory": host.memory_allowed(place), "pinned_memory": pinned}
        update["backed_memory"] = without_gpu.backed_memory if without_gpu else None
    if "pages" in of_host:
        nodes, update["huge_pages"] = host.numa_nodes(place), host.huge_pages(place)
        simulated = without_gpu.nodes if without_gpu else []
        if chosen.machine is not None:
            simulated = [known.node for known in chosen.machine.numa_nodes]
        if simulated:
            here = {known.node: known for known in nodes}
            nodes = [here.get(node) or NumaNode(node=node, simulated=True) for node in simulated]
    return {"limits": limits.model_copy(update=update), "numa_nodes": nodes}


def _machine(chosen: Chosen, devices: list[MachineDevice], links: list[Link]) -> Machine:
    runtime, simulated, without_gpu = chosen.runtime, chosen.machine, topology.host_here()
    own_memory = without_gpu.memory if without_gpu else host.memory_total()
    return Machine(
        name=simulated.name if simulated else topology.name_here() or os.uname().nodename,
        hip_version=version_text(runtime.version),
        runtime=chosen.kind,
        host_memory=simulated.host_memory if simulated else own_memory,
        host_granularity=_host_granularity(runtime) if any(device.vmm for device in devices) else None,
        devices=devices,
        links=links,
        limits=Limits(open_files=_open_files(), mappings=_number_in("/proc/sys/vm/max_map_count")),
        sources=[SourceNote(figure="all", source=f"measured through {printable(runtime.path)}")],
    )


def _device(chosen: Chosen, ordinal: int) -> MachineDevice:
    runtime, simulated = chosen.runtime, chosen.machine
    pci = runtime.pci_bus_id(ordinal).lower()
    known = simulated.devices[ordinal : ordinal + 1] if simulated else []

    def flag(attribute: str) -> bool | None:
        value = runtime.device_attribute(ordinal, attribute)
        return None if value is None else bool(value)

    return MachineDevice(
        name=runtime.device_name(ordinal),
        arch=runtime.device_arch(ordinal) or None,
        uuid=uuid_text(runtime.device_uuid(ordinal)),
        pci=pci or None,
        numa_node=next((device.numa_node for device in known), None) if chosen.kind == "sim" else _numa_node(pci),
        multiprocessors=runtime.device_attribute(ordinal, "multiprocessors") or None,
        vmm=flag("vmm") or False,  # a runtime without this attribute does not support it
        managed=flag("managed"),
        concurrent_managed=flag("concurrent_managed"),
        rdma=flag("rdma") or False,  # as with vmm
        xnack=flag("xnack"),
        host_visible=bool(flag("large_bar") or flag("integrated")),
        integrated=flag("integrated"),
    )


def _numa_node(pci: str) -> int | None:
    """None if the kernel does not know it, as in a virtual machine without nodes."""
    node = _number_in(f"/sys/bus/pci/devices/{pci}/numa_node")
    return node if node is not None and node >= 0 else None


@cache
def _number_in(path: str) -> int | None:
    """A constant number in a file of the kernel. Cached: reading it takes longer than all driver calls together."""
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None


def _with_memory(runtime: _core.Runtime, ordinal: int, device: MachineDevice) -> MachineDevice:
    free, total = runtime.memory_info(ordinal)
    measured = {"memory": total, "in_use": total - free}
    if device.vmm:
        properties = _core.AllocationProperties(ordinal)
        measured["granularity_minimum"] = runtime.granularity(properties, False)
        measured["granularity_recommended"] = runtime.granularity(properties, True)
    return device.model_copy(update=measured)


def uuid_text(raw: bytes) -> str | None:
    """AMD's sixteen bytes are hexadecimal text, NVIDIA's are raw."""
    if not raw.strip(b"\0"):
        return None
    try:
        text = raw.decode("ascii")
        int(text, 16)
    except ValueError:
        text = raw.hex()
    return f"GPU-{text}"


def _link(runtime: _core.Runtime, source: int, target: int) -> Link:
    kind, hops = runtime.link(source, target) or ("unknown", None)
    known = cast("LinkType", kind) if kind in get_args(LinkType) else "unknown"
    return Link(source=source, target=target, type=known, hops=hops)


def _host_granularity(runtime: _core.Runtime) -> int | None:
    """None before HIP 7.2, which has no allocations in host memory."""
    try:
        return runtime.granularity(_core.AllocationProperties(0, location="host"), False)
    except _core.HipError:
        return None


def _open_files() -> int | None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return None if hard == resource.RLIM_INFINITY else hard
