"""Managed memory (hipMallocManaged), as a step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from hipplan.kinds.live import Buffer, Lack
from hipplan.program.checks import Check, Reading, check_kind
from hipplan.program.steps import CPU_ORDINAL, Step, step_data
from hipplan.units import format_size, short_size

if TYPE_CHECKING:
    from hipplan.kinds.making import Making
    from hipplan.kinds.managed.plan import ManagedBuffer
    from hipplan.kinds.plan import ByteRange
    from hipplan.language.objects import ResolvedBuffer
    from hipplan.machines.machine import Machine


@step_data
class Advise(Step):
    call = "hipMemAdvise"
    advice: str
    device: int
    offset: int
    size: int

    def describe(self) -> str:
        whom = "the host" if self.device == CPU_ORDINAL else f"device {self.device}"
        return f"{self.advice} ({whom}), {short_size(self.size)} at +{format_size(self.offset)}"


@step_data
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
        return f"{short_size(self.size)} at +{format_size(self.offset)} to {to}"


@step_data
class AttachStream(Step):
    call = "hipStreamAttachMemAsync"
    stream: str
    on: int
    """The device that the stream belongs to, current in the call."""
    mode: str
    """global, host or single."""

    def describe(self) -> str:
        return f"{self.mode} to stream {self.stream}"


@step_data
class CreateManagedBuffer(Buffer):
    call = "hipMallocManaged"
    makes = "managed"
    lies = "anywhere"
    row = ("create managed buffer", "device", "size", "attach")
    why_awake = "memory of hipMallocManaged is freed only together with its addresses"
    why_not_held = "the driver frees managed memory when its process ends"

    attach: str
    """global, host or single."""

    def describe(self) -> str:
        return f"{short_size(self.size)} for host and devices"

    @classmethod
    def steps_of(cls, buffer: ResolvedBuffer, making: Making) -> Iterator[Step]:
        spec = cast("ManagedBuffer", buffer.spec)
        name = buffer.name
        yield cls(name, making.span(*buffer.path), making.devices[buffer.device], spec.size, spec.attach)
        if spec.attach_to is not None:
            stream = spec.attach_to.stream
            on = making.queue_device(stream)
            yield AttachStream(name, making.span(*buffer.path, "attach_to"), stream, on, spec.attach_to.mode)
            making.enqueued[stream, on] = None
        for number, advice in enumerate(spec.advice):
            # HIP ignores the device where the plan has none, but still checks that it exists.
            device = making.ordinal(advice.device) if advice.device else 0
            place = making.span(*buffer.path, "advice", number)
            yield Advise(name, place, advice.advise, device, *_range_of(advice.range, spec.size))
        for number, prefetch in enumerate(spec.prefetch):
            to, stream = making.ordinal(prefetch.to), prefetch.stream or ""
            on = making.queue_device(stream, to)
            place = making.span(*buffer.path, "prefetch", number)
            yield Prefetch(name, place, to, *_range_of(prefetch.range, spec.size), stream, on)
            making.enqueued[stream, on] = None

    def taken_from(self, machine: Machine | None) -> int | None:
        # Without page faults it is host memory.
        is_on_host = machine is not None and machine.runtime != "cuda" and machine.devices[self.device].xnack is False
        return CPU_ORDINAL if is_on_host else None

    def checks(self, reading: Reading) -> Iterator[Check]:
        yield check_kind(self.name, "managed", reading)

    @staticmethod
    def lacks(spec: Any, machine: Machine, name: str, ordinal: int) -> Iterator[Lack]:
        if machine.devices[ordinal].managed is False:
            why = "hipDeviceAttributeManagedMemory is 0"
            yield Lack("HP305", f"{name} has no managed memory", (), why, "use a device and a pinned buffer")


def _range_of(part: ByteRange | None, whole: int) -> tuple[int, int]:
    """(offset, size) in bytes of a range of a buffer."""
    if part is None:
        return 0, whole
    return part.at, part.size or whole - part.at
