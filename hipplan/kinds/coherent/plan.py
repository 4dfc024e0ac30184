"""Memory of one device that others see at once (hipExtMallocWithFlags), as a plan has it."""

from typing import Literal

from hipplan.kinds.plan import BufferPlan
from hipplan.language.base import Size


class CoherentBuffer(BufferPlan):
    """Memory of one device whose bytes other devices and the host see while a kernel writes them: for flags and queues
    between kernels (hipExtMallocWithFlags). Ordinary device memory is coherent only between kernels."""

    on_host = False
    for_peers = True

    kind: Literal["coherent"]
    """coherent."""

    device: str | None = None
    """The memory's device. Default: the first device of the plan.

    Errors: HP201 no such device.
    Source: hipExtMallocWithFlags, called with this device current.
    """

    size: Size
    """The size in bytes.

    Errors: HP013 not a size; HP105 zero.
    Source: hipExtMallocWithFlags(sizeBytes).
    """

    uncached: bool = False
    """Bypasses the device's caches. Default: they keep coherent with what others read and write.

    Errors: HP309 on CUDA, which has no cache control.
    Source: hipDeviceMallocUncached, hipDeviceMallocFinegrained.
    """
