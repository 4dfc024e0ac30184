"""Steps: one state-changing driver call each, as plain data that acts through the `Live` it is given.

A step either happened or did not. The native journal records what it made within the call, so no step
needs an undo of its own: roll back and teardown are the journal in reverse.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hipplan.errors import Span
from hipplan.units import format_size

if TYPE_CHECKING:
    from hipplan.live import Live

RIGHTS = {"none": 0, "r": 1, "rw": 3}
"""A right of the plan -> hipMemAccessFlags."""

CPU_ORDINAL = -1
"""The ordinal that stands for the CPU: hipCpuDeviceId."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What every step has: the plan's name for the object, and the place in the plan that asked for it."""

    call: ClassVar[str]
    """The HIP function this step calls."""

    name: str
    origin: Span | None = None

    def describe(self) -> str:
        """One line for people, without the name."""
        raise NotImplementedError

    def do(self, live: Live) -> None:
        """Makes the driver call. Raises HipError, and then has changed nothing."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class EnablePeer(Step):
    call = "hipDeviceEnablePeerAccess"
    device: int
    peer: int

    def describe(self) -> str:
        return f"device {self.device} may reach device {self.peer}"

    def do(self, live: Live) -> None:
        live.add(self.name, live.journal.enable_peer(self.name, self.device, self.peer))


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAllocation(Step):
    call = "hipMemCreate"
    device: int
    size: int
    """Bytes, padded to the granularity."""
    memory_type: int
    location_type: int
    handle_type: int

    def describe(self) -> str:
        where = {1: f"device {self.device}", 2: "the host"}.get(self.location_type, f"NUMA node {self.device}")
        return f"{format_size(self.size)} on {where}"

    def do(self, live: Live) -> None:
        live.add(self.name, live.create_allocation(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportAllocation(Step):
    call = "hipMemImportFromShareableHandle"
    bind: str
    size: int

    def describe(self) -> str:
        return f"{format_size(self.size)} from the caller's descriptor '{self.bind}'"

    def do(self, live: Live) -> None:
        descriptor = live.bound_descriptor(self)
        live.add(self.name, live.journal.import_allocation(self.name, self.size, descriptor))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve(Step):
    call = "hipMemAddressReserve"
    size: int
    alignment: int
    """Bytes, a power of two; 0 for none."""
    slack: int
    """Bytes reserved beyond size so that an aligned base fits: HIP checks the alignment but ignores it."""
    address: int
    """The address wanted; 0 for any."""
    exact: bool

    def describe(self) -> str:
        at = f" at {self.address:#x}" + ("" if self.exact else " if free") if self.address else ""
        return f"{format_size(self.size)} of addresses{at}"

    def do(self, live: Live) -> None:
        entry = live.journal.reserve(self.name, self.size + self.slack, self.alignment, self.address)
        live.add_range(self, entry)


@dataclass(frozen=True, slots=True, kw_only=True)
class Map(Step):
    call = "hipMemMap"
    reservation: str
    allocation: str
    offset: int
    size: int

    def describe(self) -> str:
        return f"{format_size(self.size)} of {self.allocation} at +{format_size(self.offset)}"

    def do(self, live: Live) -> None:
        entry = live.journal.map(
            self.name,
            live.entry(self.reservation),
            live.offset(self.reservation) + self.offset,
            live.entry(self.allocation),
            self.size,
        )
        live.add(self.name, entry)


def native_rights(rights: Iterable[tuple[int, str]]) -> list[tuple[int, int, int]]:
    """(location type, id, flags) of each. What is taken away comes first: HIP gives one after the other, and before 6.3
    with each takes what the others have."""
    return [
        (2, 0, RIGHTS[right]) if ordinal == CPU_ORDINAL else (1, ordinal, RIGHTS[right])
        for ordinal, right in sorted(rights, key=lambda one: one[1] != "none")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAccess(Step):
    call = "hipMemSetAccess"
    rights: tuple[tuple[int, str], ...]
    """(ordinal or CPU_ORDINAL, right) for each who gets access to the whole mapping."""
    together: bool = False
    """The call names all that is mapped in the range by then, which has the same rights (hipplan.pieces)."""

    def describe(self) -> str:
        who = (f"{'host' if o == CPU_ORDINAL else f'device {o}'}: {right}" for o, right in self.rights)
        return ", ".join(who) + (", for all that is mapped in the range by then" if self.together else "")

    def do(self, live: Live) -> None:
        live.journal.set_access(live.entry(self.name), native_rights(self.rights), self.together)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateStream(Step):
    call = "hipStreamCreateWithFlags"
    device: int

    def describe(self) -> str:
        return f"on device {self.device}"

    def do(self, live: Live) -> None:
        live.add(self.name, live.journal.create_stream(self.name, self.device))


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDeviceBuffer(Step):
    call = "hipMalloc"
    device: int
    size: int

    def describe(self) -> str:
        return f"{format_size(self.size)} on device {self.device}"

    def do(self, live: Live) -> None:
        live.add(self.name, live.journal.create_device_buffer(self.name, self.device, self.size))


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePinnedBuffer(Step):
    call = "hipHostMalloc"
    device: int
    size: int
    flags: int

    def describe(self) -> str:
        return f"{format_size(self.size)} on the host, device {self.device} current"

    def do(self, live: Live) -> None:
        entry = live.journal.create_pinned_buffer(self.name, self.device, self.size, self.flags)
        live.add(self.name, entry)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBuffer(Step):
    call = "hipHostRegister"
    device: int
    size: int
    """Bytes; 0: all of the file or of the caller's memory."""
    flags: int
    file: str = ""
    """Path of the file to map; else `bind`, else fresh memory."""
    bind: str = ""
    read_only: bool = False
    numa_node: int = -1
    huge_pages: int = 0

    def describe(self) -> str:
        origin = f"of {self.file}" if self.file else f"of the caller's '{self.bind}'" if self.bind else "fresh"
        return f"{format_size(self.size) if self.size else 'all'} {origin}, device {self.device} current"

    def do(self, live: Live) -> None:
        live.add(self.name, live.register_buffer(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateManagedBuffer(Step):
    call = "hipMallocManaged"
    device: int
    size: int
    flags: int

    def describe(self) -> str:
        return f"{format_size(self.size)} for host and devices"

    def do(self, live: Live) -> None:
        entry = live.journal.create_managed_buffer(self.name, self.device, self.size, self.flags)
        live.add(self.name, entry)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advise(Step):
    call = "hipMemAdvise"
    advice: str
    value: int
    """The hipMemoryAdvise of `advice`."""
    device: int
    offset: int
    size: int

    def describe(self) -> str:
        whom = "the host" if self.device == CPU_ORDINAL else f"device {self.device}"
        return f"{self.advice} ({whom}), {format_size(self.size)} at +{format_size(self.offset)}"

    def do(self, live: Live) -> None:
        live.journal.advise(live.entry(self.name), self.offset, self.size, self.value, self.device)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefetch(Step):
    call = "hipMemPrefetchAsync"
    device: int
    offset: int
    size: int
    stream: str
    """Name of a stream of the plan; empty: the null stream of `on`."""
    on: int
    """The device that the stream belongs to, current in the call."""

    def describe(self) -> str:
        to = "the host" if self.device == CPU_ORDINAL else f"device {self.device}"
        return f"{format_size(self.size)} at +{format_size(self.offset)} to {to}"

    def do(self, live: Live) -> None:
        stream = live.entry(self.stream) if self.stream else 0
        live.journal.prefetch(live.entry(self.name), self.offset, self.size, self.device, stream, self.on)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachStream(Step):
    call = "hipStreamAttachMemAsync"
    stream: str
    on: int
    """The device that the stream belongs to, current in the call."""
    mode: str
    flags: int

    def describe(self) -> str:
        return f"{self.mode} to stream {self.stream}"

    def do(self, live: Live) -> None:
        live.journal.attach(live.entry(self.name), live.entry(self.stream), self.flags, self.on)


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitStream(Step):
    """Waits until what was enqueued has happened. `name` is the stream's; empty: the null stream of `on`."""

    call = "hipStreamSynchronize"
    on: int
    """The device that the stream belongs to, current in the call."""

    def describe(self) -> str:
        return "until it is idle" if self.name else f"until the null stream of device {self.on} is idle"

    def do(self, live: Live) -> None:
        live.journal.synchronize_stream(live.entry(self.name) if self.name else 0, self.on)
