"""Steps as rows: tuples of plain words and numbers that the compiled part runs. What a step names is a slot there.

A row is (operation, name, slot, fields ...). The slot is what it fills or alters, -1 for none. See cpp/core/rows.hpp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hipplan.program import steps
from hipplan.program.alterations import ChangeAccess, ChangeAdvice, CopyBytes, ReserveBeside, Rights, TakeOut, before

Row = tuple[Any, ...]
Slots = Mapping[str, int]
"""Name -> slot."""

MAKES = (
    steps.EnablePeer,
    steps.CreateAllocation,
    steps.ImportAllocation,
    steps.Reserve,
    steps.Map,
    steps.CreateStream,
    steps.CreateDeviceBuffer,
    steps.CreatePinnedBuffer,
    steps.RegisterBuffer,
    steps.CreateManagedBuffer,
)
"""Steps that fill a slot; those of one program are numbered in its order."""


def slots_of(program_steps: Iterable[steps.Step]) -> dict[str, int]:
    """The slot of each object."""
    return {step.name: slot for slot, step in enumerate(step for step in program_steps if isinstance(step, MAKES))}


def rows_of(todo: Iterable[steps.Step], slots: Slots, old: Callable[[str], int] | None = None) -> list[Row]:
    """A row for each step. old: the slot of something of the layout as it was, in a change. KeyError for a name that
    has no slot."""
    return [_ROWS[type(step)](step, slots, old) for step in todo]


def _reserve(step: steps.Reserve, slots: Slots, old: Any) -> Row:
    sizes = step.size, step.alignment, step.slack
    return "reserve", step.name, slots[step.name], *sizes, step.address, step.exact


def _taken_first(rights: Rights) -> Rights:
    """What is taken away comes first: HIP gives one after the other, and before 6.3 with each takes what the others
    have."""
    return tuple(sorted(rights, key=lambda one: one[1] != "none"))


_ROWS: dict[type[steps.Step], Callable[[Any, Slots, Any], Row]] = {
    steps.EnablePeer: lambda s, slots, old: ("link peer", s.name, slots[s.name], s.device, s.peer),
    steps.CreateAllocation: lambda s, slots, old: (
        "create allocation",
        s.name,
        slots[s.name],
        s.size,
        s.device,
        s.type,
        s.location,
        s.shareable,
    ),
    steps.ImportAllocation: lambda s, slots, old: ("import allocation", s.name, slots[s.name], s.size),
    steps.Reserve: _reserve,
    ReserveBeside: _reserve,
    steps.Map: lambda s, slots, old: (
        "map",
        s.name,
        slots[s.name],
        slots[s.reservation],
        s.offset,
        slots[s.allocation],
        s.size,
    ),
    steps.SetAccess: lambda s, slots, old: ("set access", s.name, slots[s.name], s.rights, None, s.together),
    steps.CreateStream: lambda s, slots, old: ("create stream", s.name, slots[s.name], s.device),
    steps.CreateDeviceBuffer: lambda s, slots, old: (
        "create device buffer",
        s.name,
        slots[s.name],
        s.device,
        s.size,
    ),
    steps.CreatePinnedBuffer: lambda s, slots, old: (
        "create pinned buffer",
        s.name,
        slots[s.name],
        s.device,
        s.size,
        s.flags,
        s.numa_node,
    ),
    steps.RegisterBuffer: lambda s, slots, old: (
        "register buffer",
        s.name,
        slots[s.name],
        s.device,
        s.size,
        s.flags,
        s.file,
        bool(s.bind),
        s.read_only,
        s.numa_node,
        s.huge_pages,
    ),
    steps.CreateManagedBuffer: lambda s, slots, old: (
        "create managed buffer",
        s.name,
        slots[s.name],
        s.device,
        s.size,
        s.attach,
    ),
    steps.Advise: lambda s, slots, old: (
        "advise",
        s.name,
        slots[s.name],
        s.offset,
        s.size,
        (s.advice, s.device),
        None,
    ),
    steps.Prefetch: lambda s, slots, old: (
        "prefetch",
        s.name,
        slots[s.name],
        s.offset,
        s.size,
        s.device,
        slots[s.stream] if s.stream else -1,
        s.on,
    ),
    steps.AttachStream: lambda s, slots, old: (
        "attach stream",
        s.name,
        slots[s.name],
        slots[s.stream],
        s.mode,
        s.on,
    ),
    steps.AwaitStream: lambda s, slots, old: ("await stream", s.name, slots[s.name] if s.name else -1, s.on),
    ChangeAccess: lambda s, slots, old: (
        "set access",
        s.name,
        slots[s.name],
        _taken_first(s.now),
        _taken_first(s.before),
        s.together,
    ),
    ChangeAdvice: lambda s, slots, old: (
        "advise",
        s.name,
        slots[s.name],
        s.offset,
        s.size,
        s.now,
        s.before,
    ),
    TakeOut: lambda s, slots, old: (
        "unmap",
        s.name,
        old(s.name),
        old(s.reservation),
        old(s.allocation),
        s.rights,
        s.together,
    ),
    CopyBytes: lambda s, slots, old: (
        "copy",
        s.name,
        slots[s.target],
        s.target_device,
        old(s.source) if s.in_place else slots[s.source],
        s.source_device,
        s.size,
    ),
}
"""Fields in the order in which cpp/bindings/read_rows.cpp reads them."""


class ChangeRows:
    """The rows of a change, with slots for what is there only meanwhile behind those of the new program."""

    def __init__(self, new: Slots, old: Slots) -> None:
        self.slots = dict(new)
        self._count = self._first = len(new)
        self._old = old
        self._of_old: dict[str, int] = {}

    @property
    def extra(self) -> int:
        """Slots behind the new program's."""
        return self._count - self._first

    @property
    def kept(self) -> list[tuple[int, int]]:
        """(slot here, slot in the old program) of what the rows alter of the old."""
        return [(slot, self._old[name]) for name, slot in self._of_old.items()]

    def rows(self, todo: Iterable[steps.Step]) -> list[Row]:
        todo = list(todo)
        for step in todo:
            if isinstance(step, MAKES) and step.name not in self.slots:
                self.slots[step.name] = self._next()
            elif isinstance(step, CopyBytes) and not step.in_place:
                self.slots.setdefault(before(step.name), self._from_old(step.name))
        return rows_of(todo, self.slots, self._from_old)

    def _next(self) -> int:
        self._count += 1
        return self._count - 1

    def _from_old(self, name: str) -> int:
        if name not in self._of_old:
            self._of_old[name] = self._next()
        return self._of_old[name]
