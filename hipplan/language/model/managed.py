"""What is done with managed memory: ranges, advice, prefetches, attachment to a stream."""

from typing import Literal

from pydantic import model_validator
from typing_extensions import Self

from hipplan.kinds.plan import ByteRange
from hipplan.language.base import PlanModel, refuse


class Advice(PlanModel):
    """Announces how a range of managed memory will be used (hipMemAdvise). Advice never moves data."""

    advise: Literal[
        "read_mostly",
        "unset_read_mostly",
        "preferred_location",
        "unset_preferred_location",
        "accessed_by",
        "unset_accessed_by",
        "coarse_grain",
        "unset_coarse_grain",
    ]
    """One of HIP's eight advice values.

    Source: hipMemAdvise(advice).
    """

    device: str | None = None
    """The device of the advice, or `host`. Only preferred_location and accessed_by take one.

    Errors: HP201 no such device; HP211 missing although needed, or given although HIP ignores it.
    Source: hipMemAdvise(device).
    """

    range: ByteRange | None = None
    """The part of the buffer. Default: all. HIP rounds it outward to pages of 4096 bytes.

    Errors: HP208 past the end of the buffer.
    Source: hipMemAdvise(dev_ptr, count).
    """

    @model_validator(mode="after")
    def _device_where_needed(self) -> Self:
        needed = self.advise in ("preferred_location", "accessed_by", "unset_accessed_by")
        if needed and self.device is None:
            raise refuse(
                "HP211",
                f"{self.advise} needs a device",
                at="advise",
                hint="add device: gpu.0, or device: host",
            )
        if not needed and self.device is not None:
            raise refuse(
                "HP211",
                f"{self.advise} takes no device",
                at="device",
                why="HIP ignores it there",
                hint="remove device",
            )
        return self


class Prefetch(PlanModel):
    """Moves a range of managed memory before it is used (hipMemPrefetchAsync). The apply waits for it."""

    to: str
    """The target: a device of the plan, or `host`.

    Errors: HP201 no such device.
    Source: hipMemPrefetchAsync(device).
    """

    stream: str | None = None
    """The stream of the plan to use. Default: the null stream of the target device; for the host, of the plan's first
    device.

    Errors: HP203 no such stream.
    Source: hipMemPrefetchAsync(stream).
    """

    range: ByteRange | None = None
    """The part of the buffer. Default: all.

    Errors: HP208 past the end of the buffer.
    Source: hipMemPrefetchAsync(dev_ptr, count).
    """


class AttachTo(PlanModel):
    """Attaches a managed buffer to a stream (hipStreamAttachMemAsync). On AMD, HIP accepts this and ignores it."""

    stream: str
    """The stream of the plan.

    Errors: HP203 no such stream.
    Source: hipStreamAttachMemAsync(stream).
    """

    mode: Literal["global", "host", "single"] = "single"
    """`single`: only work of this stream uses the buffer; `global`: any; `host`: no device.

    Source: hipStreamAttachMemAsync(flags).
    """
