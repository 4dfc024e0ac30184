"""Buffers: one call gives address and memory. Device, pinned, registered and managed."""

from collections.abc import Iterator
from typing import Literal

from hipplan.kinds.plan import BufferPlan, ByteRange, Move, Note, Use, Where
from hipplan.language.base import Size, Steps
from hipplan.language.latest import Latest
from hipplan.language.model.managed import Advice, AttachTo, Prefetch
from hipplan.units import PAGE, full_size, round_up


class ManagedBuffer(BufferPlan):
    """Memory that host and devices share at one address; it moves by advice, prefetch and first use
    (hipMallocManaged)."""

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
