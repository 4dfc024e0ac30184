"""Steps as rows: tuples of words and numbers that the compiled part runs. Names of objects become slot numbers.

A row is (operation, name, slot, fields ...). The slot is of the object that it makes or alters, -1 for none. See
cpp/core/rows.hpp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any

from hipplan.program import steps
from hipplan.program.alterations import (
    ChangeAccess,
    ChangeAdvice,
    CopyBytes,
    KeepAccess,
    ReserveBeside,
    Rights,
    TakeOut,
    before,
)

Row = tuple[Any, ...]
Slots = Mapping[str, int]
"""Name -> slot."""


def slots_of(program_steps: Iterable[steps.Step]) -> dict[str, int]:
    """The slot of each object."""
    made = [step.name for step in program_steps if step.makes]
    return dict(zip(made, range(len(made)), strict=True))


def rows_of(todo: Iterable[steps.Step], slots: Slots, old: Callable[[str], int] | None = None) -> list[Row]:
    """A row for each step. old: the slot of an object of the old layout, in a change. KeyError for a name that
    has no slot."""
    return [_ROWS[type(step)](step, slots, old) for step in todo]


def _taken_first(rights: Rights) -> Rights:
    """Sort rights so that revoked ones come first. HIP sets one device after the other, and before 6.3 each call
    also revokes the access of all other devices."""
    return tuple(sorted(rights, key=lambda right: right[1] != "none"))


def _fields(operation: str, *fields: str) -> Callable[[Any, Slots, Any], Row]:
    """A function that makes rows of these fields, for steps that name no other object."""
    values = attrgetter("name", *fields)

    def row(step: steps.Step, slots: Slots, old: Any) -> Row:
        name, *more = values(step)
        return (operation, name, slots[name], *more)

    return row


def _register(s: steps.RegisterBuffer, slots: Slots, old: Any) -> Row:
    node = -1 if s.simulated_node else s.numa_node
    memory = s.device, s.size, s.flags, s.file, bool(s.bind), s.read_only, node, s.huge_pages
    return "register buffer", s.name, slots[s.name], *memory


def _allocation(s: steps.CreateAllocation, slots: Slots, old: Any) -> Row:
    return "create allocation", s.name, slots[s.name], s.size, s.device, s.type, s.location, s.shareable, s.rdma


def _map(s: steps.Map, slots: Slots, old: Any) -> Row:
    return "map", s.name, slots[s.name], slots[s.reservation], s.offset, slots[s.allocation], s.size


def _prefetch(s: steps.Prefetch, slots: Slots, old: Any) -> Row:
    stream = slots[s.stream] if s.stream else -1
    return "prefetch", s.name, slots[s.name], s.offset, s.size, s.device, stream, s.on


def _change_access(s: ChangeAccess, slots: Slots, old: Any) -> Row:
    return "set access", s.name, slots[s.name], _taken_first(s.now), _taken_first(s.before), s.together


def _keep_access(s: KeepAccess, slots: Slots, old: Any) -> Row:
    return "set access", s.name, old(s.name), s.rights, s.rights if s.is_undone else None, s.together


def _take_out(s: TakeOut, slots: Slots, old: Any) -> Row:
    return "unmap", s.name, old(s.name), old(s.reservation), old(s.allocation), s.rights, s.together


def _copy(s: CopyBytes, slots: Slots, old: Any) -> Row:
    source = old(s.source) if s.in_place else slots[s.source]
    return "copy", s.name, slots[s.target], s.target_device, source, s.source_device, s.size


_ROWS: dict[type[steps.Step], Callable[[Any, Slots, Any], Row]] = {
    steps.EnablePeer: _fields("link peer", "device", "peer"),
    steps.CreateAllocation: _allocation,
    steps.ImportAllocation: _fields("import allocation", "size", "device"),
    steps.Reserve: _fields("reserve", "size", "alignment", "slack", "address", "exact"),
    ReserveBeside: _fields("reserve", "size", "alignment", "slack", "address", "exact"),
    steps.Map: _map,
    steps.SetAccess: lambda s, slots, old: ("set access", s.name, slots[s.name], s.rights, None, s.together),
    steps.CreateStream: _fields("create stream", "device"),
    steps.CreateDeviceBuffer: _fields("create device buffer", "device", "size"),
    steps.CreatePinnedBuffer: _fields("create pinned buffer", "device", "size", "flags", "numa_node"),
    steps.RegisterBuffer: _register,
    steps.CreateManagedBuffer: _fields("create managed buffer", "device", "size", "attach"),
    steps.Advise: lambda s, slots, old: ("advise", s.name, slots[s.name], s.offset, s.size, (s.advice, s.device), None),
    steps.Prefetch: _prefetch,
    steps.AttachStream: lambda s, slots, old: ("attach stream", s.name, slots[s.name], slots[s.stream], s.mode, s.on),
    steps.AwaitStream: lambda s, slots, old: ("await stream", s.name, slots[s.name] if s.name else -1, s.on),
    ChangeAccess: _change_access,
    KeepAccess: _keep_access,
    ChangeAdvice: _fields("advise", "offset", "size", "now", "before"),
    TakeOut: _take_out,
    CopyBytes: _copy,
}
"""Fields in the order in which cpp/bindings/read_rows.cpp reads them."""


class ChangeRows:
    """The rows of a change. Slots for old and temporary objects come after those of the new program."""

    def __init__(self, new: Slots, old: Slots) -> None:
        self.slots = dict(new)
        self._count = self._first = len(new)
        self._old = old
        self._of_old: dict[str, int] = {}

    @property
    def extra(self) -> int:
        """The number of slots after the new program's."""
        return self._count - self._first

    @property
    def kept(self) -> list[tuple[int, int]]:
        """(slot in this change, slot in the old program) of old objects that the rows alter."""
        return [(slot, self._old[name]) for name, slot in self._of_old.items()]

    def rows(self, todo: Iterable[steps.Step]) -> list[Row]:
        todo = list(todo)
        for step in todo:
            if step.makes and step.name not in self.slots:
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
