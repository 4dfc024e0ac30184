"""Steps as rows: tuples of words and numbers that the compiled part runs. Names of objects become slot numbers.

A row is (operation, name, slot, fields ...). The slot is of the object that it makes or alters, -1 for none. See
cpp/core/rows.hpp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import cycle
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from hipplan.kinds.allocation.live import CopyBytes, CreateAllocation, ImportAllocation, before
from hipplan.kinds.lives import BUFFERS
from hipplan.kinds.managed.advice import ChangeAdvice
from hipplan.kinds.managed.live import Advise, AttachStream, Prefetch
from hipplan.kinds.mapping.live import ChangeAccess, KeepAccess, Map, Rights, SetAccess, TakeOut
from hipplan.kinds.peer.live import EnablePeer
from hipplan.kinds.reservation.live import Reserve, ReserveBeside
from hipplan.kinds.stream.live import AwaitStream, CreateStream
from hipplan.program import steps
from hipplan.program.access_runs import AccessRun
from hipplan.program.carries import CopyRun
from hipplan.program.chunk_runs import MemoryRun
from hipplan.program.count_runs import CountRun
from hipplan.program.facts import Owners, owners_of
from hipplan.program.layered import Overlay
from hipplan.program.mapped_runs import MappedRun
from hipplan.program.runs import Run, plain
from hipplan.program.series import segments
from hipplan.program.taken_out import TakeOutRun

Row = tuple[Any, ...]
Slots = Mapping[str, int]
"""Name -> slot."""


class Old(NamedTuple):
    """The layout that a change begins with."""

    slot: Callable[[str], int]
    """The slot of one of its objects, in the change."""
    owners: Owners
    run_slot: Callable[[Run], int]
    """The slot of the first object of a run of it, in the change; those of the others follow."""
    beside: Callable[[int], int]
    """Takes so many slots for objects that exist only during the change, and returns the first of them."""


def rows_of(todo: Sequence[steps.Step], slots: Slots, owners: Owners, old: Old | None = None) -> list[Row]:
    """A row for each step, and one for each run. owners: of the program that is made. old: in a change. KeyError for a
    name that has no slot."""
    rows: list[Row] = []
    for segment in segments(todo):
        if isinstance(segment, (tuple, list)):  # what most are: to ask for abstract classes takes longer
            rows += [_ROWS[type(step)](step, slots, owners, old) for step in segment]
        elif isinstance(segment, MemoryRun):
            rows.append(_memory_run(segment, slots))
        elif isinstance(segment, MappedRun):
            rows.append(_mapped_run(segment, slots))
        elif isinstance(segment, CountRun):
            rows.append(_count_run(segment, slots))
        elif isinstance(segment, AccessRun):
            rows.append(_access_run(segment, slots))
        elif isinstance(segment, TakeOutRun) and old is not None:
            rows.append(("unmap chunks", tuple(_unmapped(mapped, old) for mapped in segment.columns)))
        elif isinstance(segment, CopyRun) and old is not None:
            rows.append(_copy_run(segment, slots, old))
        else:
            rows += [_ROWS[type(step)](step, slots, owners, old) for step in segment]
    return rows


def _memory_run(run: MemoryRun, slots: Slots) -> Row:
    first = run.chunks.start
    kinds = tuple(map(_memory_of, run.kinds))
    return "create allocations", run.region, slots[run.name_of(first)], first, len(run.chunks), kinds


def _mapped_run(run: MappedRun, slots: Slots) -> Row:
    first = run.numbers.start
    places = slots[run.of], run.offset, slots[run.memory_name(first)], run.size
    rights = _rights_in_turn(run) if run.rights[0] else ()
    return "map and set access", run.of, slots[run.name_of(first)], first, len(run.numbers), *places, rights


def _access_run(run: AccessRun, slots: Slots) -> Row:
    mapped = run.mapped
    first, slot = mapped.numbers.start, slots[mapped.name_of(mapped.numbers.start)]
    turn = zip(run.rights, mapped.numbers)  # noqa: B905  # there may be fewer mappings
    rights = tuple(tuple(_in_order(given, mapped.owner(number)) for given in both) for both, number in turn)
    return "change access", mapped.of, slot, first, len(mapped.numbers), rights


def _count_run(run: CountRun, slots: Slots) -> Row:
    operation, _, slot, *fields = _ROWS[type(run.kind)](run.kind, slots, {}, None)
    return "create counted", run.of, slot, run.numbers.start, len(run.numbers), (operation, *fields)


def _unmapped(run: MappedRun, old: Old) -> Row:
    memory, first = old.run_slot(run.memory), run.numbers.start
    return run.of, old.run_slot(run), first, len(run.numbers), memory, _rights_in_turn(run)


def _copy_run(run: CopyRun, slots: Slots, old: Old) -> Row:
    memory, was = run.memory, run.mapped.memory
    first = memory.chunks.start
    kinds = tuple(
        (
            kind.in_place,
            kind.target,
            _in_order(kind.writes, now.owner),
            kind.source,
            _in_order(kind.reads, before.owner),
        )
        for kind, now, before in zip(run.kinds, cycle(memory.kinds), cycle(was.kinds))  # they repeat
    )
    counts = memory.region, old.beside(run.temporary), first, len(memory.chunks), memory.memory_size
    places = slots[memory.name_of(first)], old.run_slot(was), old.run_slot(run.mapped)
    return "copy chunks", *counts, *places, kinds


def _rights_in_turn(run: MappedRun) -> tuple[Rights, ...]:
    """The rights on the first mappings, in the order in which HIP sets them."""
    given = zip(run.rights, run.numbers)  # noqa: B905  # there may be fewer mappings
    return tuple(_in_order(rights, run.owner(number)) for rights, number in given)


@lru_cache(maxsize=1024)
def _in_order(rights: Rights, owner: int) -> Rights:
    """Rights in the order in which HIP sets them, one device after the other: those that are revoked come first,
    because before 6.3 each call also revokes the access of all other devices; that of the memory's own device comes
    last, because on 7.14 a peer after it damages the mapping (openxla/xla 46576)."""
    return tuple(sorted(rights, key=lambda right: (right[1] != "none", right[0] == owner)))


def _fields(operation: str, *fields: str) -> Callable[..., Row]:
    """A function that makes rows of these fields, for steps that name no other object."""
    values = attrgetter("name", *fields)

    def row(step: steps.Step, slots: Slots, *_: object) -> Row:
        name, *more = values(step)
        return (operation, name, slots[name], *more)

    return row


def _allocation(s: CreateAllocation, slots: Slots, *_: object) -> Row:
    return "create allocation", s.name, slots[s.name], *_memory_of(s)


_memory_of = attrgetter("size", "device", "type", "location", "shareable", "rdma")


def _map(s: Map, slots: Slots, *_: object) -> Row:
    return "map", s.name, slots[s.name], slots[s.reservation], s.offset, slots[s.allocation], s.size


def _prefetch(s: Prefetch, slots: Slots, *_: object) -> Row:
    stream = slots[s.stream] if s.stream else -1
    return "prefetch", s.name, slots[s.name], s.offset, s.size, s.device, stream, s.on


def _set_access(s: SetAccess, slots: Slots, owners: Owners, _: object) -> Row:
    return "set access", s.name, slots[s.name], _in_order(s.rights, owners[s.name]), None, s.together


def _change_access(s: ChangeAccess, slots: Slots, owners: Owners, _: object) -> Row:
    now, was = (_in_order(rights, owners[s.name]) for rights in (s.now, s.before))
    return "set access", s.name, slots[s.name], now, was, s.together


def _keep_access(s: KeepAccess, slots: Slots, owners: Owners, old: Old) -> Row:
    rights = _in_order(s.rights, old.owners[s.name])
    return "set access", s.name, old.slot(s.name), rights, rights if s.is_undone else None, s.together


def _take_out(s: TakeOut, slots: Slots, owners: Owners, old: Old) -> Row:
    rights = _in_order(s.rights, old.owners[s.name])
    return "unmap", s.name, old.slot(s.name), old.slot(s.allocation), rights, s.together


def _copy(s: CopyBytes, slots: Slots, owners: Owners, old: Old) -> Row:
    source = old.slot(s.source) if s.in_place else slots[s.source]
    return "copy", s.name, slots[s.target], s.target_device, source, s.source_device, s.size


_ROWS: dict[type[steps.Step], Callable[[Any, Slots, Owners, Any], Row]] = {
    EnablePeer: _fields("link peer", "device", "peer"),
    CreateAllocation: _allocation,
    ImportAllocation: _fields("import allocation", "size", "device"),
    Reserve: _fields("reserve", "size", "alignment", "slack", "address", "exact"),
    ReserveBeside: _fields("reserve", "size", "alignment", "slack", "address", "exact"),
    Map: _map,
    SetAccess: _set_access,
    CreateStream: _fields("create stream", "device"),
    **{kind: _fields(*kind.row) for kind in BUFFERS.values()},
    Advise: lambda s, slots, *_: ("advise", s.name, slots[s.name], s.offset, s.size, (s.advice, s.device), None),
    Prefetch: _prefetch,
    AttachStream: lambda s, slots, *_: ("attach stream", s.name, slots[s.name], slots[s.stream], s.mode, s.on),
    AwaitStream: lambda s, slots, *_: ("await stream", s.name, slots[s.name] if s.name else -1, s.on),
    ChangeAccess: _change_access,
    KeepAccess: _keep_access,
    ChangeAdvice: _fields("advise", "offset", "size", "now", "before"),
    TakeOut: _take_out,
    CopyBytes: _copy,
}
"""Fields in the order in which cpp/bindings/read_rows.cpp reads them."""


class Made(Protocol):
    """A program."""

    @property
    def slots(self) -> Slots: ...
    @property
    def owners(self) -> Owners: ...


class ChangeRows:
    """The rows of a change. Slots for old and temporary objects come after those of the new program."""

    def __init__(self, new: Made, old: Made, owners: Owners) -> None:
        """owners: of what rows name, at least."""
        self.slots: Overlay[str, int] = Overlay(new.slots)
        self._count = self._first = len(new.slots)
        self._owners: Overlay[str, int] = Overlay(owners)
        self._old = old
        self._of_old: dict[str, int] = {}
        self._of_old_runs: list[tuple[int, int, int]] = []
        """Consecutive old objects, as `kept` has them."""

    @property
    def extra(self) -> int:
        """The number of slots after the new program's."""
        return self._count - self._first

    @property
    def kept(self) -> list[tuple[int, int, int]]:
        """(slot in this change, slot in the old program, how many) of consecutive old objects that the rows alter."""
        return [*((slot, self._old.slots[name], 1) for name, slot in self._of_old.items()), *self._of_old_runs]

    def rows(self, todo: Sequence[steps.Step]) -> list[Row]:
        single = [*plain(todo)]
        for step in single:
            if step.makes and step.name not in self.slots:
                self.slots[step.name] = self._next()
            elif isinstance(step, CopyBytes) and not step.in_place:
                self.slots.setdefault(before(step.name), self._from_old(step.name))
                self._owners[before(step.name)] = self._old.owners[step.name]
        self._owners |= owners_of(single, self._owners)
        old = Old(self._from_old, self._old.owners, self._run_from_old, self._next)
        return rows_of(todo, self.slots, self._owners, old)

    def _next(self, many: int = 1) -> int:
        self._count += many
        return self._count - many

    def _from_old(self, name: str) -> int:
        if name not in self._of_old:
            self._of_old[name] = self._next()
        return self._of_old[name]

    def _run_from_old(self, run: Run) -> int:
        many = len(run.numbers)
        first = self._next(many)
        self._of_old_runs.append((first, self._old.slots[run.name_of(run.numbers.start)], many))
        return first
