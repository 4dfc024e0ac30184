"""Virtual memory management: allocations without address, reservations without memory, mappings between them."""

from typing import Annotated, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from hipplan.language.base import Alignment, Count, Offset, OfRank, PlanModel, Size, Steps, refuse

Right = Literal["none", "r", "rw"]
Access = dict[str, Right]
"""Device name (or family.*, or host) -> what it may do: none, r (read) or rw (read and write)."""

Attached = Literal["r", "rw"]
"""What processes that attach to a holder may do at most."""


class Allocation(PlanModel):
    """Physical memory on one device, with no address yet (hipMemCreate)."""

    device: str | None = None
    """The memory's device, or `host` (HIP 7.1 and later). Default: the first device of the plan.

    Errors: HP201 no such device.
    Source: hipMemAllocationProp.location.
    """

    numa_node: Annotated[int, Field(ge=0, le=1023)] | None = None
    """With `device: host`, the NUMA node of the memory (HIP 7.15, which is ROCm 10.0, and later, and NVIDIA). Default:
    the host chooses.

    Errors: HP107 on a GPU; HP309 this release cannot do it; HP316 this process cannot use the node.
    Source: hipMemAllocationProp.location (hipMemLocationTypeHostNuma).
    """

    size: Size
    """The size in bytes, such as 4194304 or 4MiB. It is rounded up to the granularity; preview shows the padding.

    Errors: HP013 not a size; HP105 zero.
    Source: hipMemCreate(size).
    """

    count: Count | None = None
    """How many to make, named name.0, name.1, ... Default: one, without a number.

    Errors: HP105 less than 1; HP023 too many objects in the plan.
    Source: ours.
    """

    granularity: Literal["minimum", "recommended"] = "recommended"
    """The granularity for rounding the size. `recommended` lets the GPU use large pages; `minimum` wastes least.

    Source: hipMemGetAllocationGranularity(option).
    """

    type: Literal["pinned", "uncached"] = "pinned"
    """`pinned` is ordinary device memory; `uncached` bypasses the caches (HIP 7.0.2 and later).

    Source: hipMemAllocationProp.type.
    """

    shareable: Literal["none", "posix_fd"] = "none"
    """`posix_fd` lets the allocation be exported to another process as a file descriptor: docs/sharing.md.

    Source: hipMemAllocationProp.requestedHandleTypes, hipMemExportToShareableHandle.
    """

    rdma: bool = False
    """true lets network cards read and write it (GPUDirect RDMA): docs/rdma.md.

    Errors: HP107 of host memory, or with bind; HP309 this device or release cannot.
    Source: hipMemAllocationProp.allocFlags.gpuDirectRDMACapable.
    """

    bind: str | None = None
    """Imports the memory instead of creating it. The caller of apply passes a file descriptor under this name.

    Errors: HP107 without shareable: posix_fd, or with count.
    Source: hipMemImportFromShareableHandle.
    """

    rank: OfRank | None = None
    """The rank that makes it: a number, or `first_of_node`. Default: every rank makes its own.

    Errors: HP107 in a plan without ranks:.
    Source: ours.
    """

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.numa_node is not None and self.device != "host":
            why = "a GPU's memory has no NUMA node of its own"
            raise refuse("HP107", "numa_node is for device: host", at="numa_node", why=why, hint="add device: host")
        if self.rdma and (self.device == "host" or self.bind is not None):
            where = "host memory" if self.device == "host" else "memory that another process made"
            raise refuse("HP107", f"rdma is not for {where}", at="rdma", hint="leave rdma out")
        if self.bind is not None and self.shareable == "none":
            summary = "an imported allocation needs shareable"
            raise refuse("HP107", summary, at="bind", hint="add shareable: posix_fd")
        if self.bind is not None and self.count is not None:
            hint = "use each: with a different bind for each"
            raise refuse("HP107", "one descriptor cannot become several allocations", at="count", hint=hint)
        return self


class Mapping(PlanModel):
    """One allocation placed in a reservation (hipMemMap). Without access no device can use it, not even the one that
    holds it."""

    allocation: str
    """The allocation, or `name.*` for all members of a counted one, in order and without gaps.

    Errors: HP202 no such allocation.
    Source: hipMemMap(handle).
    """

    at: Offset | None = None
    """The offset of the mapping in its reservation, in bytes. Default: the end of the previous mapping.

    Errors: HP205 overlaps another mapping; HP206 past the end of the reservation.
    Source: hipMemMap(ptr).
    """

    size: Size | None = None
    """How many bytes of the allocation are mapped, from its first byte on. Default: all.

    Errors: HP207 more than the allocation has.
    Source: hipMemMap(size). HIP requires offset 0 into the allocation in every release, so there is no key for it.
    """

    access: Access | None = None
    """The access of each device to this mapping. Default: that of the reservation.

    Errors: HP201 no such device; HP104 not none, r or rw.
    Source: hipMemSetAccess.
    """

    attached: Attached | None = None
    """What processes that attach to a holder may do with this mapping. Default: that of the reservation.

    Errors: HP255, a warning: no device may write it.
    Source: hipMemSetAccess, in each process that attaches.
    """


class Reservation(PlanModel):
    """A range of virtual addresses, without memory until something is mapped (hipMemAddressReserve)."""

    size: Size | None = None
    """The size of the address range in bytes. Default: up to the end of the last mapping.

    Errors: HP107 neither size nor mappings; HP105 more addresses than a process has.
    Source: hipMemAddressReserve(size).
    """

    alignment: Alignment | None = None
    """The alignment of the address in bytes, a power of two. Default: the runtime's.

    Errors: HP105 not a power of two.
    Source: hipMemAddressReserve(alignment); HIP 6.x to 10.x check it but ignore it, so hipplan reserves more and aligns
    the address itself.
    """

    address: Annotated[int, Field(ge=1, lt=2**64)] | None = None
    """The requested address. hipplan asks the driver for it until it is had, or cannot be had.

    Source: hipMemAddressReserve(addr), a hint.
    """

    address_policy: Literal["prefer", "exact"] = "prefer"
    """What happens if the address cannot be had. `prefer`: HIP places the range elsewhere. `exact`: the apply fails.

    Errors: HP107 exact without address.
    Source: ours; HIP only has the hint.
    """

    access: Access = {}
    """The access of mappings without their own `access`. Devices that are not named have none.

    Errors: HP201 no such device; HP104 not none, r or rw.
    Source: hipMemSetAccess, per mapping and device.
    """

    seal: bool = False
    """Makes its mappings read-only after their contents are loaded: rw becomes r for every device, and hipplan reads
    that back. layout.unseal() makes them writable again.

    Errors: HP257, a warning: it has no contents.
    Source: hipMemSetAccess.
    """

    attached: Attached = "r"
    """What processes that attach to a holder may do with its mappings: `r` reads; `rw` also writes, by the devices that
    have rw in `access` (docs/holders.md). It has no effect on an apply.

    Errors: HP255, a warning: no device may write it.
    Source: hipMemSetAccess, in each process that attaches.
    """

    mappings: Steps[Mapping] = []
    """The mappings in the range, in the order of the calls.

    Source: hipMemMap.
    """

    rank: OfRank | None = None
    """The rank that makes it: a number, or `first_of_node`. Default: every rank makes its own.

    Errors: HP107 in a plan without ranks:.
    Source: ours.
    """

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.size is None and not self.mappings:
            raise refuse("HP107", "a reservation needs a size or mappings", hint="add size: 1GiB")
        if self.address_policy == "exact" and self.address is None:
            raise refuse(
                "HP107",
                "an exact address policy needs an address",
                at="address_policy",
                hint="add address: 0x...",
            )
        return self
