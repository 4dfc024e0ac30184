"""Managed memory (hipMallocManaged), as a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from hipplan.kinds.live import Buffer, Lack
from hipplan.kinds.managed import advice
from hipplan.kinds.managed.advice import NOWHERE, AdvisedPart
from hipplan.program.checks import Check, Reading, check_kind
from hipplan.program.steps import CPU_ORDINAL, Key, Step, in_words, step_data
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

    def mark(self, part: AdvisedPart) -> None:
        """Gives a part of the buffer its advice."""
        match self.advice:
            case "read_mostly" | "unset_read_mostly":
                part.read_mostly = int(self.advice == "read_mostly")
            case "coarse_grain" | "unset_coarse_grain":
                part.coarse_grain = int(self.advice == "coarse_grain")
            case "preferred_location":
                part.preferred = self.device
            case "unset_preferred_location":
                part.preferred = NOWHERE
            case "accessed_by":
                part.accessed_by |= {self.device}
            case "unset_accessed_by":
                part.accessed_by -= {self.device}

    def describe(self) -> str:
        return f"{self.advice} ({in_words(self.device)}), {short_size(self.size)} at +{format_size(self.offset)}"


@step_data
class Prefetch(Step):
    call = "hipMemPrefetchAsync"
    is_repeated = True
    device: int
    offset: int
    size: int
    stream: str
    """Name of a stream of the plan; empty: the null stream of `on`."""
    on: int
    """The device that the stream belongs to, current in the call."""

    @property
    def needs(self) -> tuple[Key, ...]:
        return (("stream", self.stream),) if self.stream else ()

    @property
    def stream_used(self) -> tuple[str, int]:
        return self.stream, self.on

    def describe(self) -> str:
        return f"{short_size(self.size)} at +{format_size(self.offset)} to {in_words(self.device)}"

    def listed(self) -> str:
        return f"prefetch {self.describe()}"

    def mark(self, part: AdvisedPart) -> None:
        """Notes where a part of the buffer was moved last."""
        part.prefetched = self.device


@step_data
class AttachStream(Step):
    call = "hipStreamAttachMemAsync"
    is_fixed = True  # a stream cannot be detached from a buffer
    stream: str
    on: int
    """The device that the stream belongs to, current in the call."""
    mode: str
    """global, host or single."""

    @property
    def needs(self) -> tuple[Key, ...]:
        return (("stream", self.stream),)

    @property
    def stream_used(self) -> tuple[str, int]:
        return self.stream, self.on

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
        for number, written in enumerate(spec.advice):
            # HIP ignores the device where the plan has none, but still checks that it exists.
            device = making.ordinal(written.device) if written.device else 0
            place = making.span(*buffer.path, "advice", number)
            yield Advise(name, place, written.advise, device, *_range_of(written.range, spec.size))
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

    def altered(self, before: Sequence[Step], now: Sequence[Step]) -> Iterator[Step]:
        old, new = ([step for step in about if isinstance(step, Advise)] for about in (before, now))
        yield from advice.changes(self.name, self.origin, self.size, old, new)

    def checks(self, reading: Reading) -> Iterator[Check]:
        yield check_kind(self.name, "managed", reading.address_of(self.name), reading)

    def range_checks(self, about: Sequence[Step], reading: Reading) -> Iterator[Check]:
        advised = [step for step in about if isinstance(step, (Advise, Prefetch))]
        # Not every runtime has coherency advice; if the advice succeeded, this one has.
        coherency = any("coarse_grain" in step.advice for step in advised if isinstance(step, Advise))
        return advice.range_checks(self.name, self.size, advised, reading, coherency)

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
