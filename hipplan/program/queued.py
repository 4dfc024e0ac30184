"""Fills and copies that a stream can do alone, so that the caller need not wait. Pure arithmetic on resources."""

from __future__ import annotations

from typing import NamedTuple

from hipplan.program.content_steps import Copy, Fill, LoadFiles, MemoryPart
from hipplan.program.contents import may_copy_at_once
from hipplan.program.memory import Memory, Refused
from hipplan.program.steps import CPU_ORDINAL


class Queue(NamedTuple):
    """A stream of a layout."""

    name: str
    device: str
    ordinal: int


class Queued(NamedTuple):
    """Work for a stream, without any help of the host."""

    copies: tuple[tuple[MemoryPart, MemoryPart], ...] = ()
    """(to, from)."""
    fills: tuple[MemoryPart, ...] = ()
    pattern: bytes = b""
    """What they are filled with."""


def queued(memory: Memory, step: Fill | Copy | LoadFiles, queue: Queue) -> Queued | None:
    """A step as work for the stream's device alone; None if host threads have to do some of it.

    Raises Refused for bytes that only other devices can move.
    """
    for sides in step.sides():
        devices = {part.device for part in sides} - {CPU_ORDINAL}
        if devices and queue.ordinal not in devices:
            others = ", ".join(name for name, ordinal in memory.devices.items() if ordinal in devices)
            raise Refused(
                "HP213",
                f"stream '{queue.name}' is of {queue.device}, and the bytes of '{step.name}' are moved by {others}",
                hint=f"take a stream of {others}, or leave stream out",
            )
    if isinstance(step, Fill) and all(part.device == queue.ordinal for part in step.parts):
        return Queued(fills=step.parts, pattern=bytes.fromhex(step.pattern))
    if isinstance(step, Copy) and all(_is_direct(memory, to, from_, queue.ordinal) for to, from_ in step.pairs):
        return Queued(copies=step.pairs)
    return None


def _is_direct(memory: Memory, to: MemoryPart, from_: MemoryPart, ordinal: int) -> bool:
    devices = {to.device, from_.device}
    if devices == {ordinal}:
        return True
    if devices == {ordinal, CPU_ORDINAL}:
        # Up to 6.4 HIP copies with the device that the host memory was pinned with.
        host = to if to.device == CPU_ORDINAL else from_
        return not memory.only_holders or memory.home_of(host) == ordinal
    if CPU_ORDINAL in devices:
        return False
    if memory.only_holders and not may_copy_at_once(memory, to, from_):
        return False
    return ordinal == to.device or memory.reaches(to, ordinal, "rw")
