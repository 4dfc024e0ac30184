"""A Plan's concrete objects: counts and patterns spread, names resolved, arithmetic checked.

`resolve(plan, span)` is pure and knows no machine. What it returns refers only to things that exist.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from hipplan.language.counted import LineNames
from hipplan.language.host import HOST, is_host
from hipplan.language.lines import ByLine
from hipplan.language.model import (
    OWNER,
    Allocation,
    Attached,
    Content,
    DeviceSelector,
    Region,
    Reservation,
)

if TYPE_CHECKING:
    from hipplan.kinds.plans import Buffer  # attaching reads no plan

Path = tuple[Hashable, ...]


class ResolvedDevice(NamedTuple):
    """A device by its name in the plan. `ordinal` is None if uuid, pci or current chooses it on the machine."""

    name: str
    selector: DeviceSelector
    ordinal: int | None
    path: Path


def bare_uuid(uuid: str) -> str:
    """A device's UUID in one spelling, for comparing."""
    return uuid.removeprefix("GPU-").replace("-", "").lower()


class ResolvedPeer(NamedTuple):
    """`device` may reach buffers of `peer`."""

    device: str
    peer: str
    path: Path


class ResolvedAllocation(NamedTuple):
    """Physical memory: its size is `spec.size`, its location `device` (a device name, or host). All allocations of one
    line of the plan share one instance."""

    spec: Allocation
    device: str
    path: Path


class AllocationLine(NamedTuple):
    """A line of the plan: an allocation, or those that `count` makes."""

    memory: ResolvedAllocation
    names: LineNames

    def member(self, _: str) -> ResolvedAllocation:
        """The allocation with this name."""
        return self.memory


AllocationsByName: TypeAlias = ByLine[AllocationLine, ResolvedAllocation]


@dataclass(slots=True)
class ResolvedMapping:
    """One allocation at one place of a reservation."""

    name: str
    """The reservation's name and a number: model[0]."""

    allocation: str
    at: int
    """Bytes from the start of the reservation, counted with the requested sizes, before any rounding."""

    follows: bool
    """True if the plan gives no place: it begins where the mapping before it ends, after rounding."""

    size: int
    """Requested bytes: of the mapping, or of the whole allocation."""

    whole: bool
    """True if all of the allocation is mapped, padding included."""

    access: dict[str, str]
    """Device name (or host) -> r, rw, or none if written so. Devices that are not in it have no access."""

    path: Path

    attached: Attached = "r"
    """What attached processes may do: r or rw."""


class MappingLine(NamedTuple):
    """A mapping; or those of what `count` makes, each of which begins where the one before it ends."""

    first: ResolvedMapping
    memory: LineNames
    """The allocations."""
    number: int = 0
    """Of the first mapping in its reservation."""

    @property
    def end(self) -> int:
        """Bytes from the start of the reservation, counted with the requested sizes."""
        return self.first.at + len(self.memory) * self.first.size

    def members(self) -> Iterator[ResolvedMapping]:
        """All of them."""
        yield self.first
        if len(self.memory) > 1:
            of, size = self.first.name.rpartition("[")[0], self.first.size
            for more, memory in enumerate(self.memory[1:], 1):
                name, at = f"{of}[{self.number + more}]", self.first.at + more * size
                yield replace(self.first, name=name, allocation=memory, at=at, follows=True)


class ResolvedReservation(NamedTuple):
    name: str
    spec: Reservation
    lines: tuple[MappingLine, ...]
    path: Path

    @property
    def mappings(self) -> tuple[ResolvedMapping, ...]:
        """All mappings, in order."""
        return tuple(chain.from_iterable(line.members() for line in self.lines))

    def firsts(self) -> Iterator[ResolvedMapping]:
        """The first mapping of each line of the plan. The others have the same size, access and path."""
        path: Path = ()
        for line in self.lines:
            if line.first.path is not path:
                path = line.first.path
                yield line.first


class ResolvedStream(NamedTuple):
    name: str
    device: str
    path: Path


class ResolvedBuffer(NamedTuple):
    """`device` is where a device buffer is; for the other kinds the device that is current during the call."""

    name: str
    spec: Buffer
    device: str
    path: Path


class BufferLine(NamedTuple):
    """A line of the plan: a buffer, or those that `count` makes, which differ in their names."""

    first: ResolvedBuffer
    names: LineNames

    def member(self, name: str) -> ResolvedBuffer:
        """The buffer with this name."""
        return self.first._replace(name=name)

    def members(self) -> Iterator[ResolvedBuffer]:
        """All of them."""
        return map(self.member, self.names)


BuffersByName: TypeAlias = ByLine[BufferLine, ResolvedBuffer]


class ResolvedRegion(NamedTuple):
    """A region. The compiler makes allocations, a reservation and mappings of it, with sizes that fit the machine."""

    name: str
    spec: Region
    devices: tuple[str, ...]
    """The devices that hold its memory, in order. Parts of it may have moved to others (PlacedRegion.devices)."""
    access: dict[str, str]
    """The access of a mapping: what each device may do with other devices' memory."""
    path: Path
    of_gpus: tuple[str, ...] = ()
    """The GPUs that own its memory, if all of it is on the host."""

    @property
    def gpus(self) -> tuple[str, ...]:
        """Its GPUs: they own memory of it that is on the host."""
        return self.of_gpus or tuple(device for device in self.devices if not is_host(device))

    @property
    def places(self) -> tuple[str, ...]:
        """Its devices, and the host where it overflows there."""
        return self.devices if self.spec.overflow is None else (*self.devices, self.spec.overflow)

    @property
    def differs(self) -> bool:
        """Whether the access depends on the device that holds the memory."""
        return OWNER in (self.spec.access or {})

    @property
    def follows_owner(self) -> bool:
        """Whether a device that gets the memory gets the access of the one that had it."""
        return self.differs or self.spec.access is None

    def own(self, holder: str) -> str:
        """What a device may do with the memory that it holds."""
        if is_host(holder):
            return self._access_on_host()[HOST]
        written = self.spec.access or {}
        return written.get(holder, written[OWNER]) if OWNER in written else self.access.get(holder, "none")

    def access_to(self, holder: str) -> dict[str, str]:
        """Who may use the memory that this device holds; it may be one that memory has moved to."""
        if is_host(holder):
            return self._access_on_host()
        if self.spec.access is None and holder not in self.devices:
            return {**(self.access if len(self.devices) > 1 else {}), holder: "rw"}
        if HOST in self.access and any(map(is_host, self.devices)):  # what it may do with the part on the host
            access = {who: right for who, right in self.access.items() if who != HOST}
            return {**access, holder: self.own(holder)} if self.differs else access
        return {**self.access, holder: self.own(holder)} if self.differs else self.access

    def _access_on_host(self) -> dict[str, str]:
        """Who may use memory of the host: as if each of its GPUs held it, and the host as much as the GPU that may do
        most, unless the plan says what the host may."""
        given = dict(self.access)
        if self.spec.access is None:
            given |= dict.fromkeys(self.gpus, "rw")
        elif self.differs:
            given |= {gpu: self.own(gpu) for gpu in self.gpus}
        if HOST not in given:
            given[HOST] = next((right for right in ("rw", "r") if right in given.values()), "none")
        return given


@dataclass(frozen=True, slots=True)
class Objects:
    """Everything a plan makes, by concrete name, in the order written."""

    devices: dict[str, ResolvedDevice]
    peers: tuple[ResolvedPeer, ...]
    allocations: AllocationsByName
    reservations: dict[str, ResolvedReservation]
    streams: dict[str, ResolvedStream]
    buffers: BuffersByName
    regions: dict[str, ResolvedRegion]
    contents: dict[str, Content] = field(default_factory=dict)
    mapped_by_others: dict[str, ResolvedRegion] = field(default_factory=dict)
    """Regions with `map:`, made by any rank, with the devices of this rank."""


def sound(objects: Objects, devices: Container[str], wrong: Container[Path] = frozenset()) -> Objects:
    """The objects of a plan with errors that can still be checked: all but wrong ones and those that need them.

    devices: the known names. wrong: (noun, name) of objects with an error of their own.
    """

    def good(path: Path, *on: str) -> bool:
        return path[:2] not in wrong and all(is_host(device) or device in devices for device in on)

    def known(access: dict[str, str]) -> dict[str, str]:
        return {device: right for device, right in access.items() if good((), device)}

    allocations = AllocationsByName(
        line for line in objects.allocations.lines if good(line.memory.path, line.memory.device)
    )
    reservations = {}
    for name, reservation in objects.reservations.items():
        if good(reservation.path):
            mapped = [line for line in reservation.lines if line.first.allocation in allocations]
            mapped = [line._replace(first=replace(line.first, access=known(line.first.access))) for line in mapped]
            reservations[name] = reservation._replace(lines=tuple(mapped))
    streams = {name: stream for name, stream in objects.streams.items() if good(stream.path, stream.device)}

    def has_what_it_uses(buffer: ResolvedBuffer) -> bool:
        uses = [*buffer.spec.uses()]
        named = [use.device for use in uses if use.device]
        return all(use.stream is None or use.stream in streams for use in uses) and good(buffer.path, *named)

    def is_sound(buffer: ResolvedBuffer) -> bool:
        return good(buffer.path, buffer.device) and (not buffer.spec.has_lines or has_what_it_uses(buffer))

    buffers = BuffersByName(line for line in objects.buffers.lines if is_sound(line.first))
    regions = {
        name: region._replace(access=known(region.access))
        for name, region in objects.regions.items()
        if good(region.path, *region.devices)
    }
    filled = {
        *buffers,
        *regions,
        *(mapping.name for reservation in reservations.values() for mapping in reservation.mappings),
    }
    filled |= {f"{name}.{short}" for name, region in regions.items() for short in region.spec.tensors}
    return Objects(
        {name: device for name, device in objects.devices.items() if name in devices},
        tuple(peer for peer in objects.peers if good(peer.path, peer.device, peer.peer)),
        allocations,
        reservations,
        streams,
        buffers,
        regions,
        {
            name: content
            for name, content in objects.contents.items()
            if good(("contents", name)) and filled.issuperset({name, content.copy_of or name})
        },
    )
