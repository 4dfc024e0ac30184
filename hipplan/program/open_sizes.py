"""Sizes that a plan leaves open, decided for a machine: `size: fill` and `size: 80%` of regions and device buffers.

They are decided after everything else: a percentage is of the device's memory, and `fill` takes what is then left, less
what its `reserve` leaves free. Over several devices each gives the same number of bytes. Whatever comes after this sees
sizes in bytes only. What is known already is kept: the sizes of a lock, and those that a live layout has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any, NamedTuple

from hipplan.errors import Diagnostic
from hipplan.kinds.device.live import CreateDeviceBuffer
from hipplan.kinds.device.plan import DeviceBuffer
from hipplan.language.base import FILL
from hipplan.language.findings import Findings
from hipplan.language.loader import LoadedPlan
from hipplan.language.model import Region
from hipplan.language.objects import BuffersByName, Objects, Path, sound
from hipplan.machines.machine import Machine, MachineDevice
from hipplan.program.program import Program
from hipplan.units import about_size, format_size, full_size, parse_share, round_up

_SHOWN_MAX = 10
"""A note has at most so many sizes."""

Sizes = Mapping[str, int]
"""Name -> bytes, of objects whose size is known already."""

NONE_KNOWN: Sizes = MappingProxyType({})


@dataclass(frozen=True)
class KeptFree:
    """Memory to leave free on each device: for activations, workspaces, the framework."""

    share: Fraction | float = 0.0
    """The fraction of the device's memory."""
    size: int = 0
    """Bytes."""

    def of(self, memory: int) -> int:
        return int(memory * self.share) + self.size


class OpenSize(NamedTuple):
    """A region or buffer whose size the plan leaves open."""

    name: str
    spec: Region | DeviceBuffer
    devices: tuple[str, ...]
    """The devices that have its memory."""
    path: Path

    def __str__(self) -> str:
        """What the plan says: fill, reserve: 10%."""
        reserve = self.spec.reserve if self.fills else None
        shown = format_size(reserve) if isinstance(reserve, int) else reserve
        return str(self.spec.size) + (f", reserve: {shown}" if shown else "")

    @property
    def fills(self) -> bool:
        return self.spec.size == FILL

    @property
    def reserve(self) -> KeptFree:
        reserve = self.spec.reserve
        return KeptFree(share=parse_share(reserve)) if isinstance(reserve, str) else KeptFree(size=reserve or 0)


class Decided(NamedTuple):
    """An open size that was decided."""

    name: str
    asked: str
    """What the plan says, such as `fill, reserve: 10%`."""
    size: int


def open_sizes(objects: Objects) -> list[OpenSize]:
    """All of a plan: those that fill last, because they take what the others leave."""
    open_ones = [
        OpenSize(name, region.spec, region.devices, region.path)
        for name, region in objects.regions.items()
        if isinstance(region.spec.size, str) and region.spec.size != "auto"
    ]
    for buffer, names in objects.buffers.lines:
        if isinstance(buffer.spec, DeviceBuffer) and isinstance(buffer.spec.size, str):
            open_ones += [OpenSize(name, buffer.spec, (buffer.device,), buffer.path) for name in names]
    return sorted(open_ones, key=lambda open_: open_.fills)


def without(plan: LoadedPlan, opened: Sequence[OpenSize]) -> LoadedPlan:
    """The plan without the objects whose sizes are open, and without what needs them."""
    objects = plan.objects
    return replace(plan, objects=sound(objects, objects.devices, {open_.path[:2] for open_ in opened}))


def kept(old: Program, plan: LoadedPlan) -> Sizes:
    """The bytes that a layout has for open sizes which its plan has in the same words: an update decides none again."""
    same = [open_.name for open_ in open_sizes(plan.objects) if old.open_sizes.get(open_.name) == str(open_)]
    return {name: size for name in same if (size := _size_in(old, name))}


def note(program: Program) -> str:
    """What was decided, for previews; empty if the plan leaves no size open."""
    of_program = sizes_in(program)
    shown = [f"{decided.name} is {full_size(decided.size)} ({decided.asked})" for decided in of_program[:_SHOWN_MAX]]
    shown += [f"and {len(of_program) - _SHOWN_MAX} more"] if len(of_program) > _SHOWN_MAX else []
    return f"decided for {program.machine}: {'; '.join(shown)}" if shown else ""


def sizes_in(program: Program) -> list[Decided]:
    """The open sizes of a program's plan, as they are now."""
    named = ((name, asked, _size_in(program, name)) for name, asked in program.open_sizes.items())
    return [Decided(name, asked, size) for name, asked, size in named if size]


def _size_in(program: Program, name: str) -> int:
    """The bytes of a region or device buffer; 0: it is not there."""
    if name in program.regions:
        return program.regions[name].mapped
    step = program.makers.get(name)
    return step.size if isinstance(step, CreateDeviceBuffer) else 0


def decided(
    plan: LoadedPlan,
    opened: Sequence[OpenSize],
    machine: Machine,
    devices: Mapping[str, int],
    granularity: Callable[[str], int],
    rest: Mapping[int, int],
    known: Sizes,
    findings: Findings,
) -> LoadedPlan:
    """The plan with these sizes in bytes; without the objects that get none, which are reported (HP206, HP301).

    devices: the ordinals. granularity: of memory on a device. rest: ordinal -> bytes that everything else takes.
    """
    deciding = _Deciding(plan, machine, devices, granularity, Counter(rest), findings)
    sizes = {open_.name: deciding.size_of(open_, known.get(open_.name, 0)) for open_ in opened}
    specs: dict[str, Any] = {open_.name: deciding.sized(open_, size) for open_ in opened if (size := sizes[open_.name])}
    objects = plan.objects
    regions = {name: region._replace(spec=specs.get(name, region.spec)) for name, region in objects.regions.items()}
    buffers = BuffersByName(
        line._replace(first=line.first._replace(spec=specs.get(line.first.name, line.first.spec)))
        for line in objects.buffers.lines
    )
    objects = replace(objects, regions=regions, buffers=buffers)
    if wrong := {open_.path[:2] for open_ in opened if not sizes[open_.name]}:
        objects = sound(objects, objects.devices, wrong)
    return replace(plan, objects=objects)


@dataclass(frozen=True)
class _Deciding:
    plan: LoadedPlan
    machine: Machine
    devices: Mapping[str, int]
    granularity: Callable[[str], int]
    taken: Counter[int]
    """Ordinal -> bytes that the plan takes so far."""
    findings: Findings

    def size_of(self, open_: OpenSize, known: int) -> int:
        """Bytes of an object, which are counted as taken; 0: it gets none, which is reported. known: 0 if they are to
        be decided."""
        chunk = open_.spec.chunk if isinstance(open_.spec, Region) else None
        step = round_up(chunk or 1, max(map(self.granularity, open_.devices)))
        count = len(open_.devices)
        if known:
            each, size = round_up(-(-known // count), step), known
        else:
            each = min(max(0, self._room(open_, device)) for device in open_.devices) // step * step
            size = each * count
        if size:
            self.taken.update(dict.fromkeys((self.devices[device] for device in open_.devices), each))
            self._check_range(open_, size)
        else:
            self._report_nothing(open_, step)
        return size

    def sized(self, open_: OpenSize, size: int) -> Region | DeviceBuffer:
        """The same object with its size in bytes; a region that fills also with the range that it may grow into."""
        changes: dict[str, object] = {"size": size}
        if open_.fills:
            changes["reserve"] = max(size, self._memory(open_)) if _grows(open_) else None
        return open_.spec.model_copy(update=changes)

    def _memory(self, open_: OpenSize) -> int:
        """The memory of all its devices."""
        return sum(self._device(device).memory or 0 for device in open_.devices)

    def _device(self, name: str) -> MachineDevice:
        return self.machine.devices[self.devices[name]]

    def _room(self, open_: OpenSize, device: str) -> int:
        """The bytes that it may take of a device."""
        there = self._device(device)
        memory = there.memory or 0
        if not open_.fills:
            return int(memory * parse_share(str(open_.spec.size)))
        return memory - there.in_use - open_.reserve.of(memory) - self.taken[self.devices[device]]

    def _check_range(self, open_: OpenSize, size: int) -> None:
        """HP206: a percentage that is more than the region reserves addresses for."""
        range_size = open_.spec.range_size if isinstance(open_.spec, Region) else None
        if range_size is not None and range_size < size:
            summary = f"'{open_.name}' maps {full_size(size)}, more than it reserves"
            why = f"that is {open_.spec.size} of the memory here; it reserves {full_size(range_size)}"
            self._report(open_, "HP206", "reserve", summary, why, "reserve at least the mapped size")

    def _report_nothing(self, open_: OpenSize, step: int) -> None:
        """HP301: there is no room for one chunk."""
        device = min(open_.devices, key=lambda device: self._room(open_, device))
        there = self._device(device)
        if there.memory is None:
            why = f"{self.machine.name} does not say how much memory {device} has"
            summary = f"the memory of {device} is unknown, so '{open_.name}' has no size"
            self._report(open_, "HP301", "size", summary, why, "measure the machine, or write the size in bytes")
            return
        if not open_.fills:
            summary = f"{open_.spec.size} of {device} is less than one step of '{open_.name}'"
            why = f"{there.name} has {about_size(there.memory)}, and the size is a multiple of {full_size(step)}"
            self._report(open_, "HP301", "size", summary, why, "write a larger percentage, or a smaller chunk")
            return
        parts = [f"{there.name} has {about_size(there.memory)}", f"{about_size(there.in_use)} in use"]
        parts.append(f"the rest of the plan takes {about_size(self.taken[self.devices[device]])}")
        if reserved := open_.reserve.of(there.memory):
            parts.append(f"{about_size(reserved)} are reserved")
        why = f"{', '.join(parts)}; '{open_.name}' takes multiples of {full_size(step)}"
        summary = f"nothing of {device} is left for '{open_.name}' to fill"
        self._report(open_, "HP301", "size", summary, why, "make something else smaller, or its reserve or its chunk")

    def _report(self, open_: OpenSize, code: str, key: str, summary: str, why: str, hint: str) -> None:
        self.findings.add(Diagnostic(code, summary, self.plan.span(*open_.path, key), why=why, hint=hint))


def _grows(open_: OpenSize) -> bool:
    """Whether a region can grow: it has chunks, and not in blocks."""
    spec = open_.spec
    in_blocks = len(open_.devices) > 1 and isinstance(spec, Region) and spec.spread == "blocks"
    return isinstance(spec, Region) and spec.chunk is not None and not in_blocks
