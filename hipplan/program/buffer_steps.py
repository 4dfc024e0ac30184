"""The steps of buffers: device, pinned, registered and managed memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from hipplan.kinds.live import CreateDeviceBuffer, CreateManagedBuffer, CreatePinnedBuffer, RegisterBuffer
from hipplan.language.host import HOST
from hipplan.language.loader import LoadedPlan
from hipplan.language.model import Anonymous, ByteRange, DeviceBuffer, ManagedBuffer, PinnedBuffer, RegisteredBuffer
from hipplan.language.objects import ResolvedBuffer
from hipplan.machines.machine import Machine
from hipplan.program import steps


class Buffers:
    """Makes the steps of a plan's buffers."""

    def __init__(self, plan: LoadedPlan, machine: Machine, devices: Mapping[str, int]) -> None:
        self._plan = plan
        self._machine = machine
        self._devices = devices
        self._simulated_nodes = {known.node for known in machine.numa_nodes if known.simulated}
        self._enqueued: dict[tuple[str, int], None] = {}
        """(stream, device) with work to wait for, in order."""

    def waits(self) -> Iterator[steps.Step]:
        """The waits for what the steps so far enqueue."""
        return (steps.AwaitStream(stream, None, on=device) for stream, device in self._enqueued)

    def steps_of(self, buffer: ResolvedBuffer) -> Iterator[steps.Step]:
        """Those of one buffer."""
        spec = buffer.spec
        common: dict[str, Any] = {
            "name": buffer.name,
            "device": self._devices[buffer.device],
            "origin": self._plan.span(*buffer.path),
        }
        if isinstance(spec, DeviceBuffer):
            assert isinstance(spec.size, int), "open sizes are decided before"
            yield CreateDeviceBuffer(size=spec.size, **common)
        elif isinstance(spec, PinnedBuffer):
            yield self._pinned(spec, _pinned_flags(spec), common)
        elif isinstance(spec, RegisteredBuffer):
            size = spec.anonymous.size if spec.anonymous else spec.size or 0
            node = self._numa_node(spec.anonymous, common["device"])
            common["simulated_node"] = node in self._simulated_nodes
            yield _registered(spec, size, node, self._plan.source_name, common)
        else:
            yield from self._managed(buffer, spec, common)

    def _pinned(self, spec: PinnedBuffer, flags: tuple[str, ...], common: dict[str, Any]) -> CreatePinnedBuffer:
        node, near = self._numa_node(spec, common["device"]), spec.numa is not None
        common["simulated_node"] = node in self._simulated_nodes
        return CreatePinnedBuffer(size=spec.size, flags=flags, numa_node=node, near=near, **common)

    def _numa_node(self, spec: PinnedBuffer | Anonymous | None, device: int) -> int:
        """-1: the plan does not decide it, or it is unknown."""
        if spec is None:
            return -1
        wanted = self._machine.devices[device].numa_node if spec.numa else getattr(spec, "numa_node", None)
        return -1 if wanted is None else wanted

    def _managed(self, buffer: ResolvedBuffer, spec: ManagedBuffer, common: dict[str, Any]) -> Iterator[steps.Step]:
        yield CreateManagedBuffer(size=spec.size, attach=spec.attach, **common)
        if spec.attach_to is not None:
            on = self._stream_device(spec.attach_to.stream)
            yield steps.AttachStream(
                name=buffer.name,
                stream=spec.attach_to.stream,
                on=on,
                mode=spec.attach_to.mode,
                origin=self._plan.span(*buffer.path, "attach_to"),
            )
            self._enqueued[spec.attach_to.stream, on] = None
        for number, advice in enumerate(spec.advice):
            at, size = _range_of(advice.range, spec.size)
            yield steps.Advise(
                name=buffer.name,
                advice=advice.advise,
                # HIP ignores the device where the plan has none, but still checks that it exists.
                device=self._ordinal(advice.device) if advice.device else 0,
                offset=at,
                size=size,
                origin=self._plan.span(*buffer.path, "advice", number),
            )
        for number, prefetch in enumerate(spec.prefetch):
            at, size = _range_of(prefetch.range, spec.size)
            to, stream = self._ordinal(prefetch.to), prefetch.stream or ""
            if stream:
                on = self._stream_device(stream)
            else:  # the null stream of the target; the host has none
                on = next(iter(self._devices.values())) if prefetch.to == HOST else to
            yield steps.Prefetch(
                name=buffer.name,
                device=to,
                offset=at,
                size=size,
                stream=stream,
                on=on,
                origin=self._plan.span(*buffer.path, "prefetch", number),
            )
            self._enqueued[stream, on] = None

    def _ordinal(self, device: str) -> int:
        return steps.CPU_ORDINAL if device == HOST else self._devices[device]

    def _stream_device(self, stream: str) -> int:
        return self._devices[self._plan.objects.streams[stream].device]


def _registered(
    spec: RegisteredBuffer, size: int, node: int, document: str, common: Mapping[str, Any]
) -> RegisterBuffer:
    """The step of a registered buffer. document: the plan, whose folder its file is relative to."""
    fresh = spec.anonymous
    return RegisterBuffer(
        size=size,
        flags=_set(spec, "portable", "mapped", "read_only"),
        file=str(PurePath(document).parent / spec.file) if spec.file else "",
        bind=spec.bind or "",
        read_only=spec.read_only,
        numa_node=node,
        huge_pages="none" if fresh is None else fresh.huge_pages,
        **common,
    )


def _range_of(part: ByteRange | None, whole: int) -> tuple[int, int]:
    """(offset, size) in bytes of a range of a buffer."""
    if part is None:
        return 0, whole
    return part.at, part.size or whole - part.at


def _pinned_flags(spec: PinnedBuffer) -> tuple[str, ...]:
    """The flags of hipHostMalloc."""
    coherency = {None: (), True: ("coherent",), False: ("non_coherent",)}[spec.coherent]
    return (*_set(spec, "portable", "mapped", "write_combined", "uncached", "numa_user"), *coherency)


def _set(spec: object, *flags: str) -> tuple[str, ...]:
    """Those of the flags that are set on a buffer."""
    return tuple(flag for flag in flags if getattr(spec, flag))
