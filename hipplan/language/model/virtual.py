"""Virtual memory management: allocations without address, reservations without memory, mappings between them."""

from typing import Annotated, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from hipplan.language.model.base import Alignment, Count, Offset, PlanModel, Size, Steps, refuse
from hipplan.language.model.ranks import OfRank

Right = Literal["none", "r", "rw"]
Access = dict[str, Right]
"""Device name (or family.*, or host) -> what it may do: none, r (read) or rw (read and write)."""


class Allocation(PlanModel):
    """Physical memory on one device, with no address yet (hipMemCreate)."""

    device: str | None = None
    """Where the memory is: a device of the plan, or `host` (HIP 7.1 and later). Left out: the first device
    of the plan.

    Errors: HP201 no such device.
    Source: hipMemAllocationProp.location.
    """

    numa_node: Annotated[int, Field(ge=0, le=1023)] | None = None
    """With `device: host`, the NUMA node whose memory it is (HIP 7.15, which is ROCm 10.0, and later, and
    NVIDIA). Left out: the host's own choice.

    Errors: HP107 on a GPU; HP309 this release cannot.
    Source: hipMemAllocationProp.location (hipMemLocationTypeHostNuma).
    """

    size: Size
    """How much. Unit: bytes, as 4194304 or 4MiB. Rounded up to the granularity; preview shows the padding.

    Errors: HP013 not a size; HP105 zero.
    Source: hipMemCreate(size).
    """

    count: Count | None = None
    """Make this many, named name.0, name.1, ... Left out: one, without a number.

    Errors: HP105 less than 1; HP023 too many objects in the plan.
    Source: ours.
    """

    granularity: Literal["minimum", "recommended"] = "recommended"
    """What the size is rounded up to. `recommended` lets the GPU use large pages, `minimum` wastes least.

    Source: hipMemGetAllocationGranularity(option).
    """

    type: Literal["pinned", "uncached"] = "pinned"
    """`pinned` is ordinary device memory; `uncached` bypasses caches (HIP 7.0.2 and later).

    Source: hipMemAllocationProp.type.
    """

    shareable: Literal["none", "posix_fd"] = "none"
    """`posix_fd` lets the allocation be exported to another process as a file descriptor: docs/sharing.md.

    Source: hipMemAllocationProp.requestedHandleTypes, hipMemExportToShareableHandle.
    """

    bind: str | None = None
    """Import instead of create: the name under which the caller of apply passes a file descriptor.

    Errors: HP107 without shareable: posix_fd, or with count.
    Source: hipMemImportFromShareableHandle.
    """

    rank: OfRank | None = None
    """Who makes it: a rank by its number, or `first_of_node`. Left out: every rank makes its own.

    Errors: HP107 in a plan without ranks:.
    Source: ours.
    """

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.numa_node is not None and self.device != "host":
            why = "a GPU's memory has no NUMA node of its own"
            raise refuse("HP107", "numa_node is for device: host", at="numa_node", why=why, hint="add device: host")
        if self.bind is not None and self.shareable == "none":
            summary = "an imported allocation needs shareable"
            raise refuse("HP107", summary, at="bind", hint="add shareable: posix_fd")
        if self.bind is not None and self.count is not None:
            hint = "use each: with a different bind for each"
            raise refuse("HP107", "one descriptor cannot become several allocations", at="count", hint=hint)
        return self


class Mapping(PlanModel):
    """One allocation placed in a reservation (hipMemMap). Without access nobody can use it, not even its own device."""

    allocation: str
    """Which allocation, or `name.*` for all of a counted one, in order, back to back.

    Errors: HP202 no such allocation.
    Source: hipMemMap(handle).
    """

    at: Offset | None = None
    """Where the mapping starts in its reservation. Unit: bytes. Left out: right behind the mapping before it.

    Errors: HP205 overlaps another mapping; HP206 runs past the end.
    Source: hipMemMap(ptr).
    """

    size: Size | None = None
    """How much of the allocation is mapped, from its first byte on. Unit: bytes. Left out: all of it.

    Errors: HP207 more than the allocation has.
    Source: hipMemMap(size). The offset into the allocation is 0 in every HIP release, so there is no field
    for it.
    """

    access: Access | None = None
    """Who may use this mapping. Left out: what the reservation says.

    Errors: HP201 no such device; HP104 not none, r or rw.
    Source: hipMemSetAccess.
    """


class Reservation(PlanModel):
    """A range of virtual addresses, nothing behind it yet (hipMemAddressReserve)."""

    size: Size | None = None
    """How much address space. Unit: bytes. Left out: up to the end of the last mapping.

    Errors: HP107 neither size nor mappings.
    Source: hipMemAddressReserve(size).
    """

    alignment: Alignment | None = None
    """The address is a multiple of this. Unit: bytes, a power of two. Left out: what the runtime gives.

    Errors: HP105 not a power of two.
    Source: hipMemAddressReserve(alignment); HIP 6.x to 10.x check but ignore it, so hipplan reserves more
    and aligns.
    """

    address: Annotated[int, Field(ge=1, lt=2**64)] | None = None
    """The address wanted, a hint unless address_policy says exact.

    Source: hipMemAddressReserve(addr).
    """

    address_policy: Literal["prefer", "exact"] = "prefer"
    """`prefer`: HIP may place the range elsewhere. `exact`: any other address is a failed apply.

    Errors: HP107 exact without address.
    Source: ours; HIP itself only knows the hint.
    """

    access: Access = {}
    """Who may use each mapping that does not say so itself. A device that is not named has no access.

    Errors: HP201 no such device; HP104 not none, r or rw.
    Source: hipMemSetAccess, per mapping and device.
    """

    seal: bool = False
    """Nobody may write what it maps once its contents are in: rw becomes r, for all, read back. layout.unseal() opens
    it again.

    Errors: HP257 a warning: nothing fills it.
    Source: hipMemSetAccess.
    """

    mappings: Steps[Mapping] = []
    """What is placed in the range, in order of calls.

    Source: hipMemMap.
    """

    rank: OfRank | None = None
    """Who makes it: a rank by its number, or `first_of_node`. Left out: every rank makes its own.

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
