"""A Plan's concrete objects: counts and patterns spread, names resolved, arithmetic checked.

`resolve(plan, span)` is pure and knows no machine. What it returns refers only to things that exist.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from hipplan.language.counted import LineNames
from hipplan.language.host import HOST, is_host
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


class ResolvedReservation(NamedTuple):
    name: str
    spec: Reservation
    mappings: tuple[ResolvedMapping, ...]
    path: Path

    def lines(self) -> Iterator[ResolvedMapping]:
        """The first mapping of each line of the plan. The others have the same size, access and path."""
        path: Path = ()
        for mapping in self.mappings:
            if mapping.path is not path:
                path = mapping.path
                yield mapping


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

    def members(self) -> Iterator[ResolvedBuffer]:
        """All of them."""
        return (self.first._replace(name=name) for name in self.names)


class BuffersByName(Mapping[str, ResolvedBuffer]):
    """The buffers of a plan. Those of a line with `count` are made when they are asked for."""

    def __init__(self, lines: Iterable[BufferLine] = ()) -> None:
        self.lines = tuple(lines)
        self._by_name: dict[str, ResolvedBuffer] = {}
        self._counted: dict[str, BufferLine] = {}
        for line in self.lines:
            if isinstance(line.names, list):
                self._by_name.update(dict.fromkeys(line.names, line.first))
            else:
                self._counted[line.names.of] = line

    def __getitem__(self, name: str) -> ResolvedBuffer:
        if (first := self._by_name.get(name)) is not None:
            return first._replace(name=name)
        line = self._counted[name.rpartition(".")[0]]
        if name not in line.names:
            raise KeyError(name)
        return line.first._replace(name=name)

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(line.names for line in self.lines)

    def __len__(self) -> int:
        return sum(len(line.names) for line in self.lines)


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
    allocations: dict[str, ResolvedAllocation]
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

    allocations = {
        name: allocation for name, allocation in objects.allocations.items() if good(allocation.path, allocation.device)
    }
    reservations = {}
    for name, reservation in objects.reservations.items():
        if good(reservation.path):
            mappings = [mapping for mapping in reservation.mappings if mapping.allocation in allocations]
            mappings = [replace(mapping, access=known(mapping.access)) for mapping in mappings]
            reservations[name] = reservation._replace(mappings=tuple(mappings))
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
