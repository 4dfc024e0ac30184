"""Page-locked host memory (hipHostMalloc), as a plan has it."""

from typing import Literal

from pydantic import model_validator
from typing_extensions import Self

from hipplan.kinds.plan import BufferPlan
from hipplan.language.base import Size, refuse


class PinnedBuffer(BufferPlan):
    """Host memory that devices access directly (hipHostMalloc)."""

    kind: Literal["pinned"]
    """pinned."""

    size: Size
    """The size in bytes.

    Errors: HP013 not a size; HP105 zero.
    Source: hipHostMalloc(size).
    """

    device: str | None = None
    """The device that is current during the call. Default: the first device of the plan.

    Errors: HP201 no such device.
    Source: hipSetDevice before hipHostMalloc.
    """

    portable: bool = False
    """Pins the memory for all devices, not only the current one. (AMD always does.)

    Source: hipHostMallocPortable.
    """

    mapped: bool = False
    """Gives devices an address for it; the report shows the device pointer.

    Source: hipHostMallocMapped, hipHostGetDevicePointer.
    """

    write_combined: bool = False
    """Makes host writes fast and host reads slow. AMD ignores it.

    Source: hipHostMallocWriteCombined.
    """

    coherent: bool | None = None
    """true: fine-grained, coherent between host and device while a kernel runs; false: coarse-grained, faster.
    Default: HIP chooses.

    Source: hipHostMallocCoherent, hipHostMallocNonCoherent.
    """

    uncached: bool = False
    """Bypasses the caches (HIP 7.0 and later).

    Errors: HP107 together with coherent.
    Source: hipHostMallocUncached.
    """

    numa_user: bool = False
    """Follows the caller's NUMA policy (set_mempolicy, numactl) instead of the device's nearest node.

    Source: hipHostMallocNumaUser.
    """

    numa: Literal["near"] | None = None
    """`near`: on the NUMA node of the buffer's device, read back page by page. Default: the runtime chooses; AMD's
    takes the nearest node.

    Errors: HP107 together with numa_user; HP316 this process cannot use the node. HP256, a warning: the device's node
    is unknown.
    Source: set_mempolicy(MPOL_PREFERRED) before hipHostMalloc, move_pages.
    """

    @model_validator(mode="after")
    def _one_node_and_coherency(self) -> Self:
        if self.numa is not None and self.numa_user:
            why = "numa_user follows the caller's NUMA policy, which may choose another node"
            raise refuse("HP107", "numa and numa_user exclude each other", at="numa", why=why, hint="keep one")
        if self.uncached and self.coherent is not None:
            raise refuse(
                "HP107",
                "uncached and coherent exclude each other",
                at="coherent",
                why="hipHostMalloc returns hipErrorInvalidValue",
                hint="keep one",
            )
        return self
