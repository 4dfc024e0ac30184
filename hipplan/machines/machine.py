"""What a machine has, as its profile says or a runtime reports. Facts with their sources, no wishes.

    machine.devices[0].memory               # bytes; None if unknown
    machine.can_access(0, 1)                # may device 0 reach device 1?
    sim_profile(machine)                    # the same for the simulator, as key=value lines

An unknown figure is None and is listed in `unknown`; preflight skips the rules that need it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from itertools import permutations
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator
from typing_extensions import Self

from hipplan.language.base import Offset, PlanModel, Size, refuse
from hipplan.notebooks import InNotebooks
from hipplan.units import PAGE

LinkType = Literal["xgmi", "pcie", "nvlink", "hypertransport", "qpi", "infiniband", "unknown"]

OfHost = Literal["memory", "pages"]
"""Figures of the host that are measured where they are needed: limits of its memory; its huge pages and NUMA nodes."""

FALLBACK_GRANULARITY = 2 * 2**20
"""The assumption where a granularity is unknown: 2 MiB is a multiple of every known one."""


def _granule(bytes_: int) -> int:
    if bytes_ < PAGE or bytes_ & (bytes_ - 1):
        why = f"a granularity is a power of two, at least {PAGE} bytes"
        raise refuse("HP105", f"a granularity cannot be {bytes_} bytes", why=why, hint="use 4KiB or 2MiB")
    return bytes_


Granule = Annotated[Size, AfterValidator(_granule)]
"""What sizes are a multiple of. Unit: bytes."""

_SIMULATED_LINKS = ("xgmi", "pcie", "nvlink")


class MachineDevice(PlanModel):
    """One HIP device."""

    name: Annotated[str, Field(pattern=r"^[^\x00-\x1f]+$", max_length=256)]
    """What the runtime calls it, as "AMD Instinct MI300X"."""

    arch: Annotated[str, Field(pattern=r"^[^\x00-\x1f]*$", max_length=256)] | None = None
    """Instruction set, as gfx942; sm_90 for NVIDIA. Source: hipDeviceProp_t.gcnArchName."""

    uuid: Annotated[str, Field(pattern=r"^(GPU-)?[0-9A-Fa-f-]{16,36}$")] | None = None
    """Its identity. A profile of a kind of machine has none. Source: hipDeviceGetUuid."""

    pci: Annotated[str, Field(pattern=r"^[0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]$")] | None = None
    """Where it sits. A profile of a kind of machine has none. Source: hipDeviceGetPCIBusId."""

    numa_node: Annotated[int, Field(ge=0, le=1023)] | None = None
    """The NUMA node of the host that it is next to. Source: /sys/bus/pci/devices."""

    memory: Size | None = None
    """Device memory. Unit: bytes. Source: hipDeviceTotalMem."""

    in_use: Offset = 0
    """What was not free when it was measured, or what is known to be taken. Unit: bytes. Source: hipMemGetInfo."""

    multiprocessors: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    """Compute units. Source: hipDeviceAttributeMultiprocessorCount."""

    vmm: bool | None = None
    """Virtual memory management. Source: hipDeviceAttributeVirtualMemoryManagementSupported."""

    managed: bool | None = None
    """hipMallocManaged. Source: hipDeviceAttributeManagedMemory."""

    concurrent_managed: bool | None = None
    """Managed memory used by host and device at once. Source: hipDeviceAttributeConcurrentManagedAccess."""

    xnack: bool | None = None
    """Page faults on the device are on. Source: hipDeviceAttributePageableMemoryAccess."""

    host_visible: bool | None = None
    """The host may touch device memory through its address. Source: hipDeviceProp_t.isLargeBar, integrated devices."""

    integrated: bool | None = None
    """Shares its memory with the host. Source: hipDeviceAttributeIntegrated."""

    granularity_minimum: Granule | None = None
    """What the size of an allocation must be a multiple of. Unit: bytes. Source: hipMemGetAllocationGranularity."""

    granularity_recommended: Granule | None = None
    """What it better is a multiple of. Unit: bytes. Source: hipMemGetAllocationGranularity."""

    shareable_posix_fd: bool | None = None
    """Allocations can be exported as file descriptors (HIP 6.2 and later). Source: hipMemExportToShareableHandle."""

    rdma: bool | None = None
    """Network cards can reach memory of allocations (HIP 7.13 and later). Source:
    hipDeviceAttributeGPUDirectRDMAWithHipVMM."""


class Link(PlanModel):
    """One device can reach the memory of another. Directed: each direction has its own entry."""

    source: Annotated[int, Field(ge=0)]
    """The ordinal of the device that reaches out."""

    target: Annotated[int, Field(ge=0)]
    """The ordinal of the device whose memory is reached."""

    type: LinkType = "unknown"
    """Over what. Source: hipExtGetLinkTypeAndHopCount."""

    hops: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    """How many links lie between. Source: hipExtGetLinkTypeAndHopCount."""


class Mesh(PlanModel):
    """A group of devices each of which can reach each other one, in both directions."""

    devices: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=2, max_length=256)]
    """Their ordinals."""

    type: LinkType = "unknown"
    """Over what. Source: hipExtGetLinkTypeAndHopCount."""

    hops: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    """How many links lie between. Source: hipExtGetLinkTypeAndHopCount."""


HugePageSize = Literal["2MiB", "1GiB"]
HUGE_PAGE_SIZES: tuple[HugePageSize, ...] = ("2MiB", "1GiB")
HugePages = dict[HugePageSize, Annotated[int, Field(ge=0, lt=2**63)]]
"""Size -> how many huge pages of it can be had."""


class NumaNode(PlanModel):
    """A NUMA node of the host whose memory this process may use."""

    node: Annotated[int, Field(ge=0, le=1023)]
    """Its number. Source: /sys/devices/system/node, Mems_allowed_list."""

    huge_pages: HugePages = {}
    """How many huge pages of each size it can give. Source: /sys/devices/system/node/node*/hugepages."""

    simulated: bool = False
    """It is of a profile: this host does not have it, and no memory is bound to it."""


class Limits(PlanModel):
    """What the operating system allows a process."""

    open_files: Annotated[int, Field(ge=1)] | None = None
    """Open file descriptors, hard limit; AMD takes one per allocation. Source: getrlimit(RLIMIT_NOFILE)."""

    mappings: Annotated[int, Field(ge=1, lt=2**64)] | None = None
    """Memory mappings. Source: /proc/sys/vm/max_map_count."""

    host_memory: Size | None = None
    """Memory of the host that the control groups of the process allow. Unit: bytes. Source: memory.max."""

    pinned_memory: Size | None = None
    """Memory of the host that AMD's driver pins at most, for all processes together. Unit: bytes. Source: Linux,
    amdgpu_amdkfd_gpuvm.c."""

    backed_memory: Size | None = None
    """Memory of the host that this machine can back, where a process without a GPU finds a larger one. Unit: bytes.
    Source: kfdsim_backing_limit."""

    huge_pages: HugePages = {}
    """How many huge pages of each size the process can have. Source: /sys/kernel/mm/hugepages, hugetlb.*.max."""


class SourceNote(PlanModel):
    """Where a figure comes from."""

    figure: str
    """The figure, as devices.memory."""

    source: str
    """Title and address of a public document, or how it was measured."""


class Machine(PlanModel, InNotebooks):
    """What one machine, or one kind of machine, has."""

    name: Annotated[str, Field(max_length=256)]
    """What reports call it."""

    description: str = ""
    """For people."""

    hip_version: Annotated[str, Field(pattern=r"^[0-9]{1,9}(\.[0-9]{1,9}){1,2}$")] | None = None
    """The HIP runtime, as "7.2.53211". Source: hipRuntimeGetVersion."""

    runtime: Literal["amd", "cuda", "sim"] = "amd"
    """Which runtime drives such a machine."""

    host_memory: Size | None = None
    """Memory of the host. Unit: bytes. Source: sysconf(_SC_PHYS_PAGES); without a GPU, the profile of that machine."""

    host_granularity: Granule | None = None
    """What the size of an allocation in host memory must be a multiple of. Unit: bytes. Source:
    hipMemGetAllocationGranularity."""

    numa_nodes: Annotated[list[NumaNode], Field(max_length=1024)] = []
    """The NUMA nodes of the host. None: they are not known."""

    devices: Annotated[list[MachineDevice], Field(max_length=1024)]
    """In the order of HIP's ordinals."""

    links: Annotated[list[Link], Field(max_length=65_536)] = []
    """Who can reach whom, pair by pair. A pair that neither links nor meshes name cannot."""

    meshes: Annotated[list[Mesh], Field(max_length=64)] = []
    """Groups in which everyone reaches everyone."""

    limits: Limits = Field(default_factory=Limits)
    """What the operating system allows."""

    quirks: Annotated[list[Annotated[str, Field(pattern=r"^[a-z_]{1,64}$")]], Field(max_length=100)] = []
    """Defects of HIP releases that the simulator has on this machine, such as map_failure_hidden; nothing else reads
    them. Source: docs/simulator.md."""

    sources: Annotated[list[SourceNote], Field(max_length=1000)] = []
    """Where each figure comes from."""

    unknown: Annotated[list[str], Field(max_length=1000)] = []
    """Unknown figures, by name."""

    @property
    def version(self) -> tuple[int, ...]:
        """hip_version as numbers; empty if it is not known."""
        return _numbers(self.hip_version or "")

    def with_in_use(self, in_use: Mapping[int, int]) -> Machine:
        """The machine with other memory in use on these devices, by ordinal, in bytes; the same machine if none
        differs."""
        differs = {at: size for at, size in in_use.items() if self.devices[at].in_use != size}
        if not differs:
            return self
        devices = [*self.devices]
        for at, size in differs.items():
            devices[at] = devices[at].model_copy(update={"in_use": size})
        return self.model_copy(update={"devices": devices})

    @model_validator(mode="after")
    def _links_exist(self) -> Self:
        count = len(self.devices)
        for noun, groups in (("links", [(link.source, link.target) for link in self.links]),
                             ("meshes", [mesh.devices for mesh in self.meshes])):  # fmt: skip
            for group in groups:
                if max(group) >= count or len(set(group)) < len(group):
                    shown = ", ".join(map(str, group))
                    why = f"the machine has {count} devices, counted from 0, and no device links to itself"
                    raise refuse("HP110", f"there is no link between {shown}", at=noun, why=why)
        return self

    @cached_property
    def _linked(self) -> dict[tuple[int, int], Link]:
        return {(link.source, link.target): link for link in self.links}

    @cached_property
    def _meshed(self) -> list[tuple[frozenset[int], Mesh]]:
        """The meshes; later ones come first and win. Pairs are looked up, not listed: there can be millions."""
        return [(frozenset(mesh.devices), mesh) for mesh in reversed(self.meshes)]

    def link(self, source: int, target: int) -> Link | None:
        """The link from one device to another; None if there is none."""
        if (linked := self._linked.get((source, target))) is not None or source == target:
            return linked
        for devices, mesh in self._meshed:
            if source in devices and target in devices:
                return Link(source=source, target=target, type=mesh.type, hops=mesh.hops)
        return None

    def reachable(self) -> Iterator[tuple[int, int, Link]]:
        """(source, target, link) of each pair of devices where one can reach the other's memory, in order."""
        for source, target in permutations(range(len(self.devices)), 2):
            if (link := self.link(source, target)) is not None:
                yield source, target, link

    def can_access(self, source: int, target: int) -> bool:
        """Whether device `source` can reach the memory of `target`. A device always reaches its own."""
        return source == target or self.link(source, target) is not None


@cache
def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split("."))) if version else ()


def sim_profile(machine: Machine) -> str:
    """The profile as the simulator reads it: one key=value a line, figures that are not known left out.

    Links of unknown or unsupported types become PCIe links. Unknown granularities become compile()'s assumption, so
    that a plan has the same size in the simulator as in a preview.
    """
    lines = [f"hip_version={machine.hip_version}"] if machine.hip_version else []
    lines += [f"host_memory={machine.host_memory}"] if machine.host_memory else []
    lines += [f"numa_nodes={1 + max(known.node for known in machine.numa_nodes)}"] if machine.numa_nodes else []
    for ordinal, device in enumerate(machine.devices):
        for key, value in device:
            if value is None and key.startswith("granularity"):
                value = FALLBACK_GRANULARITY
            if value is None or key in ("concurrent_managed", "shareable_posix_fd", "rdma", "numa_node"):
                continue
            shown = value.removeprefix("GPU-").replace("-", "").rjust(32, "0") if key == "uuid" else value
            lines.append(f"device.{ordinal}.{key}={int(shown) if isinstance(shown, bool) else shown}")
    for source, target, link in machine.reachable():
        kind = link.type if link.type in _SIMULATED_LINKS else "pcie"
        lines.append(f"link.{source}.{target}={kind},{1 if link.hops is None else link.hops}")
    lines.append(f"limit.mappings={machine.limits.mappings or 0}")
    lines += [f"quirk.{quirk}=1" for quirk in machine.quirks]
    return "\n".join(lines) + "\n"
