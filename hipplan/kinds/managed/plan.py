"""Managed memory (hipMallocManaged), as a plan has it."""

from collections.abc import Iterator
from typing import Literal

from pydantic import model_validator
from typing_extensions import Self

from hipplan.kinds.plan import BufferPlan, ByteRange, Move, Note, Use, Where
from hipplan.language.base import PlanModel, Size, Steps, refuse
from hipplan.language.latest import Latest
from hipplan.units import PAGE, full_size, round_up


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


class ManagedBuffer(BufferPlan):
    """Memory that host and devices share at one address; it moves by advice, prefetch and first use
    (hipMallocManaged)."""

    has_lines = True
    located = (("advice", "*", "device"), ("prefetch", "*", "to"))
    streamed = (("prefetch", "*", "stream"), ("attach_to", "stream"))

    kind: Literal["managed"]
    """managed."""

    size: Size
    """The size in bytes.

    Errors: HP013 not a size; HP105 zero.
    Source: hipMallocManaged(size).
    """

    device: str | None = None
    """The device that is current during the call, which HIP records as owner. Default: the first device of the plan.

    Errors: HP201 no such device.
    Source: hipSetDevice before hipMallocManaged.
    """

    attach: Literal["global", "host"] = "global"
    """`global`: any stream of any device may use it; `host`: none until it is attached.

    Source: hipMallocManaged(flags).
    """

    attach_to: AttachTo | None = None
    """The stream that it is attached to.

    Source: hipStreamAttachMemAsync.
    """

    advice: Steps[Advice] = []
    """The advice, in order.

    Errors: HP260, a warning: bytes get two preferred locations.
    Source: hipMemAdvise.
    """

    prefetch: Steps[Prefetch] = []
    """The prefetches after the advice, in order.

    Errors: HP259, a warning: more is prefetched to a device than it has room for.
    Source: hipMemPrefetchAsync.
    """

    def uses(self) -> Iterator[Use]:
        for index, advice in enumerate(self.advice):
            yield Use(("advice", index), "device", advice.device, part=advice.range)
        for index, prefetch in enumerate(self.prefetch):
            yield Use(("prefetch", index), "to", prefetch.to, prefetch.stream, prefetch.range)
        if self.attach_to is not None:
            yield Use(("attach_to",), stream=self.attach_to.stream)

    def moves(self) -> Iterator[Move]:
        last: Latest[tuple[str, Where]] = Latest()
        for index, prefetch in enumerate(self.prefetch):
            part = prefetch.range or ByteRange()
            end = self.size if part.size is None else part.at + part.size
            last.set(part.at, end, (prefetch.to, ("prefetch", index)))
        return (Move(to, end - start, where) for start, end, (to, where) in last)

    def notes(self, name: str) -> Iterator[Note]:
        for index, before, now in self._replaced_locations():
            size = full_size(sum(end - start for start, end, _ in before))
            summary = f"{now} replaces {before[0][2]} as the preferred location of {size} of '{name}'"
            why = "the same bytes have one preferred location: the last one that the plan gives them"
            yield Note("HP260", summary, ("advice", index), why, "remove one, or give them other ranges")

    def _replaced_locations(self) -> Iterator[tuple[int, list[tuple[int, int, str]], str]]:
        """(number of an advice, the ranges that prefer another location before it, its location)."""
        preferred: Latest[str] = Latest()
        for index, advice in enumerate(self.advice):
            if advice.advise in ("preferred_location", "unset_preferred_location"):
                part = advice.range or ByteRange()
                end = self.size if part.size is None else part.at + part.size
                location = advice.device or ""
                replaced = preferred.set(part.at // PAGE * PAGE, round_up(end, PAGE), location)
                others = [range_ for range_ in replaced if location and range_[2] not in ("", location)]
                if others:
                    yield index, others, location
