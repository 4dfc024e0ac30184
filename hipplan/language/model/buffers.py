"""Buffers: one call gives address and memory. Device, pinned, registered and managed."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from hipplan.kinds.plan import BufferPlan, ByteRange, Move, Note, Use, Where
from hipplan.language.base import FilePath, PlanModel, Size, Steps, refuse, written
from hipplan.language.latest import Latest
from hipplan.language.model.managed import Advice, AttachTo, Prefetch
from hipplan.units import PAGE, full_size, round_up


class Anonymous(PlanModel):
    """Memory that hipplan maps itself for a registered buffer (mmap, anonymous)."""

    size: Size
    """The size in bytes.

    Source: mmap(length).
    """

    numa_node: Annotated[int, Field(ge=0, le=1023)] | None = None
    """The NUMA node of the memory, read back page by page. Default: the kernel chooses.

    Errors: HP107 together with numa; HP316 this process cannot use the node.
    Source: mbind(MPOL_BIND), move_pages.
    """

    numa: Literal["near"] | None = None
    """`near`: the NUMA node of the buffer's device.

    Errors: HP107 together with numa_node; HP316 this process cannot use the node. HP256, a warning: the device's node
    is unknown.
    Source: mbind(MPOL_BIND), move_pages.
    """

    huge_pages: Literal["none", "transparent", "2MiB", "1GiB"] = "none"
    """`transparent` requests huge pages if available; 2MiB and 1GiB take reserved huge pages.

    Errors: HP315 too few of them are free.
    Source: madvise(MADV_HUGEPAGE), mmap(MAP_HUGETLB).
    """

    @model_validator(mode="after")
    def _one_node(self) -> Self:
        if self.numa is not None and self.numa_node is not None:
            raise refuse("HP107", "numa and numa_node both choose a node", at="numa", hint="keep one")
        return self


class RegisteredBuffer(BufferPlan):
    """Existing host memory, pinned for the devices (hipHostRegister). Needs exactly one of file, bind and anonymous."""

    kind: Literal["registered"]
    """registered."""

    file: FilePath | None = None
    """The path of a file to map, relative to the plan. The mapping is private unless read_only is true.

    Source: mmap(fd).
    """

    bind: str | None = None
    """The name under which the caller of apply passes its own memory: a contiguous object with the buffer protocol. It
    cannot be moved or resized while it is registered, and can be registered only once.

    Errors: HP405 nothing is passed, or it does not fit; HP107 with count, or in two buffers.
    Source: hipHostRegister(hostPtr).
    """

    anonymous: Anonymous | None = None
    """New memory, optionally on a NUMA node or with huge pages.

    Source: mmap(MAP_ANONYMOUS).
    """

    size: Size | None = None
    """How many bytes of the file or of the caller's memory. Default: all.

    Errors: HP107 together with anonymous, which has its own.
    Source: hipHostRegister(sizeBytes).
    """

    device: str | None = None
    """The device that is current during the call. Default: the first device of the plan.

    Errors: HP201 no such device.
    Source: hipSetDevice before hipHostRegister.
    """

    portable: bool = False
    """Pins the memory for all devices. (AMD always does.)

    Source: hipHostRegisterPortable.
    """

    mapped: bool = False
    """Gives devices an address for it; the report shows the device pointer.

    Source: hipHostRegisterMapped, hipHostGetDevicePointer.
    """

    read_only: bool = False
    """Devices only read it; a file is then mapped shared and read-only.

    Source: hipHostRegisterReadOnly.
    """

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if not written(self, ("file", "bind", "anonymous"), "choose where the memory comes from"):
            hint = "add file:, bind: or anonymous:"
            raise refuse("HP107", "registered memory needs a source", hint=hint)
        if self.anonymous is not None and self.size is not None:
            raise refuse("HP107", "anonymous already has the size", at="size", hint="remove size")
        if self.bind is not None and self.count is not None:
            hint = "use each: with a different bind for each"
            raise refuse("HP107", "the same memory cannot be registered as several buffers", at="count", hint=hint)
        return self

    def bound(self) -> str:
        return self.bind or ""

    def planned_size(self) -> int:
        return (self.anonymous.size if self.anonymous else self.size) or 0

    def pages(self) -> tuple[Any, Where]:
        return self.anonymous, ("anonymous",)


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
