"""Memory without an address (hipMemCreate), as a model."""

from typing import Annotated, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from hipplan.language.base import Count, OfRank, PlanModel, Size, refuse


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
