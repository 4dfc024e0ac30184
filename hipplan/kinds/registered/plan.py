"""Existing host memory that is registered (hipHostRegister), as a plan has it."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from hipplan.kinds.plan import BufferPlan, Where
from hipplan.language.base import FilePath, PlanModel, Size, refuse, written


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
