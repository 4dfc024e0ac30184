"""Memory of one device (hipMalloc), as a plan has it."""

from typing import Literal

from pydantic import model_validator
from typing_extensions import Self

from hipplan.kinds.plan import BufferPlan
from hipplan.language.base import FILL, OpenSize, SizeOrShare, refuse


class DeviceBuffer(BufferPlan):
    """Memory of one device with an address (hipMalloc)."""

    on_host = False
    for_peers = True

    kind: Literal["device"]
    """device."""

    device: str | None = None
    """The memory's device. Default: the first device of the plan.

    Errors: HP201 no such device.
    Source: hipMalloc, called with this device current.
    """

    size: OpenSize
    """The size in bytes; or, of the device's memory, a percentage or `fill`, all that is left: docs/regions.md.

    Errors: HP013 not a size; HP105 zero; HP107 two fill one device; HP301 nothing is left.
    Source: hipMalloc(size).
    """

    reserve: SizeOrShare | None = None
    """With `size: fill`, the memory to leave free on the device: bytes, or a percentage of the device's memory.
    Default: none.

    Errors: HP107 without size: fill.
    Source: ours.
    """

    @model_validator(mode="after")
    def _reserve_beside_fill(self) -> Self:
        if self.reserve is not None and self.size != FILL:
            why = "it is the memory that size: fill leaves free"
            raise refuse("HP107", "reserve needs size: fill", at="reserve", why=why, hint="remove reserve")
        return self
