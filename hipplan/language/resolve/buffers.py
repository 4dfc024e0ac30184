"""Checks the references of buffers: to devices, streams, ranges of themselves, and the caller's memory."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from hipplan.kinds.plan import ByteRange
from hipplan.language.objects import BuffersByName, Path, ResolvedBuffer, ResolvedStream
from hipplan.language.resolve.devices import Devices
from hipplan.language.resolve.names import Names
from hipplan.units import full_size


def check_buffer(buffer: ResolvedBuffer, names: Names, devices: Devices, streams: Mapping[str, ResolvedStream]) -> None:
    """Check that advice, prefetches and attachment name existing objects and stay inside the buffer."""
    wanted: list[tuple[str, Path]] = []
    for use in buffer.spec.uses():
        where = (*buffer.path, *use.where)
        if use.device_key:
            devices.location(use.device, (*where, use.device_key))
        _check_range(use.part, buffer, where, names)
        if use.stream is not None:
            wanted.append((use.stream, (*where, "stream")))
    for stream, path in wanted:
        if stream not in streams:
            names.missing("HP203", "streams", stream, path, lambda: streams)


def check_bindings(buffers: BuffersByName, names: Names) -> None:
    """HP107: the caller's memory is registered once."""
    taken: dict[str, str] = {}
    bound_lines = [line for line in buffers.lines if line.first.spec.on_host and line.first.spec.bound()]
    for buffer in chain.from_iterable(line.members() for line in bound_lines):
        bound = buffer.spec.bound()
        first = taken.setdefault(bound, buffer.name)
        if first != buffer.name:
            summary = f"'{first}' and '{buffer.name}' both register the memory bound to '{bound}'"
            why = "memory can be registered only once"
            names.report("HP107", summary, (*buffer.path, "bind"), why=why, hint="give it a different bind")


def _check_range(part: ByteRange | None, buffer: ResolvedBuffer, path: Path, names: Names) -> None:
    whole = buffer.spec.planned_size()
    if part is None or isinstance(whole, str) or part.at + (part.size or 1) <= whole:
        return
    begins_past = part.at >= whole
    shown = f"begins at {full_size(part.at)}" if begins_past else f"ends at {full_size(part.at + (part.size or 0))}"
    names.report(
        "HP208",
        f"the range {shown}, past the end of the buffer",
        (*path, "range", "at" if begins_past else "size"),
        why=f"the buffer has {full_size(whole)}",
        hint="begin earlier" if begins_past else "remove size: the range then extends to the end",
    )
