"""Rows for changes that a test makes by itself, and the usual ways through a change: see hipplan/lowering/rows.py."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from hipplan import _core

MIB = 2**20
SIZE = 2 * MIB
READ, READ_WRITE, NONE = 1, 3, 0
RW = ((0, "rw"),)

Row = tuple[Any, ...]


def link(slot: int, device: int = 0, peer: int = 1) -> Row:
    return "link peer", "link", slot, device, peer


def memory(slot: int, name: str = "memory", device: int = 0, size: int = SIZE, *, shared: bool = False) -> Row:
    return "create allocation", name, slot, size, device, "pinned", "device", "posix_fd" if shared else "none", False


def imported(slot: int, name: str = "imported", size: int = SIZE) -> Row:
    return "import allocation", name, slot, size, 0


def reserve(slot: int, size: int = 2 * SIZE, *, at: int = 0, exact: bool = False) -> Row:
    return "reserve", "range", slot, size, 0, 0, at, exact


def mapped(slot: int, range_slot: int, memory_slot: int, offset: int = SIZE, name: str = "mapping") -> Row:
    return "map", name, slot, range_slot, offset, memory_slot, SIZE


def rights(slot: int, now: Any = RW, before: Any = None) -> Row:
    return "set access", "mapping", slot, now, before, False


def unmap(slot: Any, memory_slot: Any, before: Any = RW) -> Row:
    return "unmap", "mapping", slot, memory_slot, before, False


def stream(slot: int, name: str = "stream", device: int = 0) -> Row:
    return "create stream", name, slot, device


def device_buffer(slot: int, name: str = "device", device: int = 0, size: int = MIB) -> Row:
    return "create device buffer", name, slot, device, size


def pinned(slot: int, size: int = MIB) -> Row:
    return "create pinned buffer", "pinned", slot, 0, size, (), -1


def registered(slot: int, size: int = MIB, file: str = "", *, bound: bool = False) -> Row:
    return "register buffer", "registered", slot, 0, size, (), file, bound, False, -1, "none"


def managed(slot: int, size: int = MIB) -> Row:
    return "create managed buffer", "managed", slot, 0, size, "global"


def advise(slot: int, now: tuple[str, int], before: tuple[str, int] | None = None, size: int = MIB) -> Row:
    return "advise", "managed", slot, 0, size, now, before


def prefetch(slot: int, stream_slot: int = -1, size: int = MIB) -> Row:
    return "prefetch", "managed", slot, 0, size, 0, stream_slot, 0


def attach(slot: int, stream_slot: int) -> Row:
    return "attach stream", "managed", slot, stream_slot, "single", 0


def await_stream(slot: int = -1) -> Row:
    return "await stream", "", slot, 0


def copy(slot: int, source: int, to_device: int = 0, from_device: int = 0) -> Row:
    return "copy", "mapping", slot, to_device, source, from_device, SIZE


SOME_OF_EVERYTHING = (
    link(0),
    memory(1, device=1),
    reserve(2),
    stream(3),
    device_buffer(4, device=1),
    pinned(5),
    managed(6),
    registered(7),
    mapped(8, 2, 1),
    rights(8, ((1, "rw"),)),
)
"""Nine objects, in an order that giving back must reverse."""

MAPPED = (memory(0), reserve(1), mapped(2, 1, 0), rights(2))
"""One allocation at one place, with rights for device 0: slots 0 to 2."""


def nothing(runtime: _core.Runtime) -> _core.Holdings:
    """Holdings of nothing yet."""
    book = _core.LeaseBook()
    return _core.Holdings(_core.Retired(runtime, book), book)


def snapshot_of(what: _core.Holdings | _core.Change) -> _core.Snapshot:
    """What counts, or what is being made."""
    return _core.Snapshot(what)


def waiting() -> list[_core.Retired]:
    """What waits for leases on it to go."""
    results: list[_core.Retired] = []
    with contextlib.suppress(IndexError):
        while True:
            results.append(_core.Retired(len(results)))
    return results


def advance(change: _core.Change, end: int) -> None:
    while change.done < end:
        change.advance(end)


def begin(holdings: _core.Holdings, rows: Sequence[Row], slots: int, **more: Any) -> _core.Change:
    """A change all of whose rows are made, undecided."""
    change = _core.Change(holdings, _core.Rows(rows), slots=slots, **more)
    advance(change, len(rows))
    return change


def free_retired(holdings: _core.Holdings | _core.Retired) -> _core.UndoReport:
    """What is retired."""
    retired = holdings.retired if isinstance(holdings, _core.Holdings) else holdings
    report = _core.UndoReport()
    _core.UndoRun(retired, 60.0).run(report, lambda device: None, lambda: None)
    return report


def holding(runtime: _core.Runtime, rows: Sequence[Row] = (), slots: int | None = None) -> _core.Holdings:
    """What rows make, committed; `state` is None."""
    holdings = nothing(runtime)
    slots = 1 + max((row[2] for row in rows), default=-1) if slots is None else slots
    begin(holdings, rows, slots).commit(None)
    return holdings


def close(holdings: _core.Holdings, *, force: bool = False) -> _core.UndoReport:
    """Raises AssertionError while there is a lease, unless force."""
    in_use = holdings.close(force)
    assert force or not in_use
    return free_retired(holdings)


def leak_names(report: _core.UndoReport) -> list[str]:
    return [leak.name for leak in report.leaks]


def ticks_while(act: Callable[[], object]) -> int:
    """How many turns this thread got while another one acted."""
    thread = threading.Thread(target=act)
    thread.start()
    ticks = 0
    while thread.is_alive():
        time.sleep(0.01)
        ticks += 1
    thread.join()
    return ticks
