"""The devices that may view a piece of memory: plan names -> DLPack devices.

DLPack's device types: 1 CPU, 2 CUDA, 3 CUDA host, 10 ROCm, 11 ROCm host, 13 CUDA managed. ROCm's managed memory has
no type: it is viewed as a device's or the CPU's.
"""

from __future__ import annotations

from typing import NamedTuple

from hipplan.kinds.lives import lies
from hipplan.language.host import HOST, is_host
from hipplan.machines.family import Family
from hipplan.program.program import Program
from hipplan.program.resources import Resource
from hipplan.program.steps import RANK_SIGN

CPU = (1, 0)


class ViewPlace(NamedTuple):
    """A place from which memory can be viewed."""

    who: str
    """A device of the plan, or `host`."""
    dl_device: tuple[int, int]
    read_only: bool


def places_of(resource: Resource, program: Program, family: Family) -> dict[str, ViewPlace]:
    """Places by name, the default first; empty for objects without memory of their own, or without access."""
    cuda = family == "cuda"
    gpu = 2 if cuda else 10
    read_only = resource.read_only

    def device(name: str, *, right: str = "rw") -> ViewPlace:
        return ViewPlace(name, (gpu, program.devices[name]), right == "r" or read_only)

    cpu = ViewPlace(HOST, CPU, read_only)
    if resource.kind in ("mapping", "region", "tensor"):
        return _of_mapping(resource, program, gpu, simulated=family == "sim")
    match lies(resource.kind):
        case "device":
            out = {resource.device: device(resource.device)}
            return out | ({HOST: cpu} if resource.device in program.host_visible else {})
        case "host":
            return {HOST: cpu, "pinned": ViewPlace(HOST, (3 if cuda else 11, 0), read_only)}
        case "anywhere":
            out = {name: device(name) for name in (resource.device, *program.devices)}
            managed = {"managed": ViewPlace(resource.device, (13, 0), read_only)} if cuda else {}
            return out | {HOST: cpu} | managed
    return {}


def _of_mapping(resource: Resource, program: Program, gpu: int, *, simulated: bool) -> dict[str, ViewPlace]:
    """First the device that has the memory, or the region's GPU while it is on the host, if it has access and belongs
    to this rank; the host last."""
    rights = dict(resource.access)
    placed = program.regions.get(resource.inside or resource.name)
    owners = placed.region.gpus if placed is not None and is_host(resource.device) else (resource.device,)
    names = [name for name in dict.fromkeys((*owners, *rights)) if name in rights and name != HOST]
    names.sort(key=lambda name: RANK_SIGN in name)
    out = {name: ViewPlace(name, (gpu, program.devices[name]), rights[name] == "r") for name in names}
    if HOST in rights:
        out[HOST] = ViewPlace(HOST, CPU, rights[HOST] == "r")
    elif out and simulated and program.host_visible.issuperset(dict(resource.bytes_by_device) or (resource.device,)):
        # On a real device the host needs rights of its own on mapped memory, however visible the rest is.
        out[HOST] = ViewPlace(HOST, CPU, all(place.read_only for place in out.values()))
    return out
