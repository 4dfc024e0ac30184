"""A Plan's concrete objects: counts and patterns spread, names resolved, arithmetic checked.

`resolve(plan, span)` is pure and knows no machine. What it returns refers only to things that exist.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from hipplan.model import Allocation, Buffer, Content, DeviceSelector, Region, Reservation

Path = tuple[Hashable, ...]
HOST = "host"


class ResolvedDevice(NamedTuple):
    """A device by its name in the plan. `ordinal` is None if uuid, pci or current chooses it on the
    machine."""

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
    """Physical memory: its size stands in `spec.size`, its location in `device` (a device name, or host)."""

    name: str
    spec: Allocation
    device: str
    path: Path


class ResolvedMapping(NamedTuple):
    """One allocation at one place of a reservation."""

    name: str
    """The reservation's name and a number: model[0]."""

    allocation: str
    at: int
    """Bytes from the start of the reservation, counted with the sizes asked for, before any rounding."""

    follows: bool
    """True if the plan gives no place: it begins where the mapping before it ends, after rounding."""

    size: int
    """Bytes asked for: of the mapping, or of the whole allocation."""

    whole: bool
    """True if all of the allocation is mapped, padding included."""

    access: dict[str, str]
    """Device name (or host) -> r or rw, or none where it was said; who is not named has none."""

    path: Path


class ResolvedReservation(NamedTuple):
    name: str
    spec: Reservation
    mappings: tuple[ResolvedMapping, ...]
    path: Path


class ResolvedStream(NamedTuple):
    name: str
    device: str
    path: Path


class ResolvedBuffer(NamedTuple):
    """`device` is where a device buffer is; for the other kinds the device that is current during the
    call."""

    name: str
    spec: Buffer
    device: str
    path: Path


class ResolvedRegion(NamedTuple):
    """A region; the compiler makes allocations, a reservation and mappings of it, whose size the machine decides."""

    name: str
    spec: Region
    devices: tuple[str, ...]
    """Who holds its memory, in order."""
    access: dict[str, str]
    path: Path


@dataclass(frozen=True, slots=True)
class ResolvedContent:
    """What one buffer, region, tensor or mapping holds."""

    name: str
    spec: Content
    path: Path


@dataclass(frozen=True, slots=True)
class Objects:
    """Everything a plan makes, by concrete name, in the order written."""

    devices: dict[str, ResolvedDevice]
    peers: tuple[ResolvedPeer, ...]
    allocations: dict[str, ResolvedAllocation]
    reservations: dict[str, ResolvedReservation]
    streams: dict[str, ResolvedStream]
    buffers: dict[str, ResolvedBuffer]
    regions: dict[str, ResolvedRegion]
    contents: tuple[ResolvedContent, ...] = ()
