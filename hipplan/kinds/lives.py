"""The lists of kinds, as steps."""

from __future__ import annotations

from hipplan.kinds.allocation.live import CreateAllocation, ImportAllocation
from hipplan.kinds.coherent.live import CreateCoherentBuffer
from hipplan.kinds.device.live import CreateDeviceBuffer
from hipplan.kinds.live import Buffer
from hipplan.kinds.managed.live import Advise, AttachStream, CreateManagedBuffer, Prefetch
from hipplan.kinds.mapping.live import Map, SetAccess
from hipplan.kinds.peer.live import EnablePeer
from hipplan.kinds.pinned.live import CreatePinnedBuffer
from hipplan.kinds.registered.live import RegisterBuffer
from hipplan.kinds.reservation.live import Reserve, ReserveBeside
from hipplan.kinds.stream.live import AwaitStream, CreateStream
from hipplan.program.steps import Step

BUFFERS: dict[str, type[Buffer]] = {
    kind.makes: kind
    for kind in (CreateDeviceBuffer, CreateCoherentBuffer, CreatePinnedBuffer, RegisterBuffer, CreateManagedBuffer)
}
"""Kind of buffer -> its step."""
STEPS: tuple[type[Step], ...] = (
    CreateAllocation, ImportAllocation, Reserve, ReserveBeside, Map, SetAccess, *BUFFERS.values(), Advise, Prefetch,
    AttachStream, EnablePeer, CreateStream, AwaitStream,
)  # fmt: skip
"""The steps in programs, but for contents; others are only in changes."""


def lies(kind: str) -> str:
    """Where memory of a kind of buffer is, as Buffer.lies; empty for objects of other kinds."""
    return BUFFERS[kind].lies if kind in BUFFERS else ""
