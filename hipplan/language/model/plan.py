"""The document itself."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from hipplan.kinds.allocation.plan import Allocation
from hipplan.kinds.peer.plan import PeerLink
from hipplan.kinds.plans import Buffer
from hipplan.kinds.reservation.plan import Reservation
from hipplan.kinds.stream.plan import Stream
from hipplan.language.base import MemoryName, Name, PlanModel, Steps, refuse
from hipplan.language.expression import Scalar
from hipplan.language.model.contents import Content
from hipplan.language.model.devices import DeviceSelector, Requires
from hipplan.language.model.ranks import Ranks
from hipplan.language.model.regions import Region
from hipplan.plain import shown


def _version(value: Any) -> Any:
    if value.__class__ is not int or value != 1:  # to Python, and so to pydantic, true equals 1
        written = f'"{value[:40]}"' if isinstance(value, str) else shown(value)
        raise refuse("HP108", f"this hipplan reads version 1 of plans, not {written}", hint="write hipplan: 1")
    return value


Version = Annotated[Literal[1], BeforeValidator(_version)]
Peers = Annotated[
    Annotated[Literal["all"], Tag("all")] | Annotated[Steps[PeerLink], Tag("links")],
    Discriminator(lambda value: "all" if isinstance(value, str) else "links"),
]


class Plan(PlanModel):
    """A GPU memory layout: what is allocated, at which addresses, and which devices may use it."""

    hipplan: Version
    """The version of the plan language: 1.

    Errors: HP108 another version.
    """

    name: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    """The plan's name in reports. Default: the name of the file."""

    description: Annotated[str, Field(max_length=10_000)] | None = None
    """Free text for readers of the plan."""

    vars: dict[str, Scalar | list[Scalar]] = {}
    """Names for values or lists of values, used as $(name) anywhere below; --var name=value overrides, and
    --var name=a,b a list.

    Errors: HP021 an undefined name; HP210 --var with an undeclared one.
    """

    ranks: Ranks | None = None
    """Makes this a plan for several processes: docs/ranks.md. Default: one process."""

    requires: Requires = Field(default_factory=Requires)
    """Requirements on the runtime and the devices."""

    devices: dict[Name, DeviceSelector] = {}
    """The GPUs, by name. Default: gpu.0, gpu.1, ... by ordinal, as many as the plan uses."""

    peers: Peers = []
    """The devices that may access each other's buffers: `all`, or a list of directed links.

    Source: hipDeviceEnablePeerAccess.
    """

    allocations: dict[Name, Allocation] = {}
    """Physical memory by name.

    Source: hipMemCreate.
    """

    reservations: dict[Name, Reservation] = {}
    """Address ranges by name, with their mappings.

    Source: hipMemAddressReserve, hipMemMap, hipMemSetAccess.
    """

    streams: dict[Name, Stream] = {}
    """Streams by name.

    Source: hipStreamCreateWithFlags.
    """

    buffers: dict[Name, Buffer] = {}
    """Memory that comes with its address, by name.

    Source: hipMalloc, hipExtMallocWithFlags, hipHostMalloc, hipHostRegister, hipMallocManaged.
    """

    regions: dict[Name, Region] = {}
    """Regions by name: address ranges with memory and tensors.

    Source: hipMemAddressReserve, hipMemCreate, hipMemMap, hipMemSetAccess.
    """

    contents: dict[MemoryName, Content] = {}
    """The bytes to load, by the name of a buffer, a region or a tensor, or range[0] for the first mapping of the
    reservation `range`. hipplan loads them in this order.

    Errors: HP213 no such object.
    Source: hipMemsetAsync, hipMemcpyAsync, hipMemcpyPeerAsync.
    """
