"""The end of a layout's objects: freed, kept for leases, reported as a leak, dropped."""

from __future__ import annotations

import ctypes
import gc
import signal
import threading
import weakref
from pathlib import Path

import pytest

from hipplan import _core
from tests.conftest import Simulator
from tests.cpp import some_rows as row
from tests.cpp.some_rows import (
    MAPPED,
    MIB,
    SIZE,
    SOME_OF_EVERYTHING,
    begin,
    close,
    free_retired,
    holding,
    leak_names,
    nothing,
    snapshot_of,
    waiting,
)
from tests.pauses import alarm, during


def lease(holdings: _core.Holdings, slot: int, size: int = MIB) -> _core.Lease:
    """A lease of the object in a slot."""
    book = holdings.leases
    address = snapshot_of(holdings).address(slot)
    return _core.Lease(_core.Window(book, f"slot {slot}", address, [size], 1, "B", "", False, book.age))


def test_dropped_holdings_give_back_everything(sim: Simulator) -> None:
    holdings = holding(sim.runtime, SOME_OF_EVERYTHING)
    snapshot = snapshot_of(holdings)
    del holdings
    gc.collect()

    assert sim.alive() == set()
    assert not any(slot in snapshot for slot in range(9))


def test_the_last_reference_to_retired_objects_waits_without_the_gil(sim: Simulator) -> None:
    def ticks_during(delay_ms: int) -> int:
        kept = [holding(sim.runtime, [row.stream(0)]).retired]
        kept[0].set_devices([("gpu", 0)])
        sim.runtime.arm_faults(f"hipDeviceSynchronize@1=delay:{delay_ms}")
        return row.ticks_while(kept.clear)

    # On a busy machine this thread may get no turn meanwhile; where the GIL is held it never does.
    assert any(ticks_during(delay_ms) >= 10 for delay_ms in (400, 4_000, 20_000))


def drop_with_a_leak(sim: Simulator) -> None:
    """What holdings of one buffer leave to the leak log where hipFree fails."""
    holdings = holding(sim.runtime, [row.device_buffer(0, "lost")])
    sim.runtime.arm_faults("hipFree@1=hipErrorUnknown")
    del holdings
    gc.collect()


def test_dropped_holdings_report_to_the_leak_log(sim: Simulator) -> None:
    drop_with_a_leak(sim)
    (line,) = _core.take_leaks()

    assert "device buffer 'lost' of 1048576 bytes at 0x" in line
    assert "hipFree(ptr=0x" in line
    assert "hipErrorUnknown (999)" in line
    sim.free_everything()


def test_a_dropped_change_reports_to_the_leak_log(sim: Simulator) -> None:
    holdings = holding(sim.runtime, MAPPED)
    change = begin(holdings, [row.device_buffer(3, "lost"), row.rights(2, ((0, "r"),), row.RW)], 4, same_slots=3)
    sim.runtime.arm_faults("hipFree@1=999; hipMemSetAccess@1=999")
    del change
    gc.collect()
    sim.runtime.arm_faults("")

    lines = sorted(_core.take_leaks())
    assert ["hipFree" in line for line in lines] == [True, False]
    assert "hipMemSetAccess" in lines[1]
    assert holdings.damaged
    assert close(holdings).freed == 3
    sim.free_everything()


@pytest.mark.parametrize(
    ("call", "lost"),
    [
        ("hipDeviceDisablePeerAccess", ["link"]),
        ("hipMemRelease", ["memory"]),
        ("hipMemAddressFree", ["range"]),
        ("hipStreamDestroy", ["stream"]),
        ("hipFree", ["managed"]),
        ("hipHostFree", ["pinned"]),
        ("hipHostUnregister", ["registered"]),
        ("hipMemUnmap", ["mapping", "range"]),
    ],
)
def test_what_cannot_be_freed_is_reported_by_name_and_the_rest_goes(sim: Simulator, call: str, lost: list[str]) -> None:
    holdings = holding(sim.runtime, SOME_OF_EVERYTHING)
    sim.runtime.arm_faults(f"{call}@1=hipErrorUnknown")
    report = close(holdings)

    assert (leak_names(report), report.freed) == (lost, 9 - len(lost))
    assert (report.leaks[0].call, report.leaks[0].code, report.leaks[0].is_change) == (call, 999, False)
    assert not holdings.retired.any
    if len(lost) > 1:
        assert "not called: 1 mapping(s) inside are still mapped" in report.leaks[1].arguments
    sim.free_everything()


def test_host_memory_that_is_still_registered_stays_mapped(sim: Simulator) -> None:
    size = 1 << 26
    given = bytearray(MIB)
    holdings = nothing(sim.runtime)
    change = _core.Change(holdings, _core.Rows([row.registered(0, size), row.registered(1, bound=True)]), slots=2)
    change.bind({1: (given, MIB)})
    row.advance(change, 2)
    change.commit(None)
    del change
    address = snapshot_of(holdings).address(0)
    sim.runtime.arm_faults("hipHostUnregister@1+=hipErrorUnknown")
    assert leak_names(close(holdings)) == ["registered", "registered"]
    sim.runtime.arm_faults("")
    del holdings
    gc.collect()

    ctypes.memset(address, 1, size)  # a segmentation fault, were it not there
    with pytest.raises(BufferError):
        given.append(1)  # nor can it be moved
    assert sim.alive() == {("buffer", hex(address)), ("buffer", hex(_core.buffer_address(given)))}
    sim.free_everything()


def test_a_lease_bars_a_change_and_a_close(sim: Simulator) -> None:
    holdings = holding(sim.runtime, [row.device_buffer(0), row.device_buffer(1), row.stream(2)])
    before = sim.alive()
    looking = lease(holdings, 1)
    change = begin(holdings, [], 1, same_slots=1)
    (result,) = change.bar()
    assert (result.name, result.address, result.size) == ("slot 1", snapshot_of(holdings).address(1), MIB)
    (result,) = holdings.close(False)
    assert (result.name, holdings.closed, change.undecided) == ("slot 1", False, False)
    assert sim.alive() == before
    del looking
    change = begin(holdings, [], 1, same_slots=1)
    assert change.bar() == []
    with pytest.raises(_core.LeaseRefused):
        lease(holdings, 1)
    looking = lease(holdings, 0)  # which stays
    change.roll_back()
    assert lease(holdings, 1)  # nothing is barred any more
    change = begin(holdings, [], 1, same_slots=1)
    assert change.bar() == []
    change.commit(None)
    free_retired(holdings)
    assert holdings.close(False)
    del looking

    assert close(holdings).leaks == []


def test_a_bar_that_is_refused_bars_nothing(sim: Simulator) -> None:
    holdings = holding(sim.runtime, [row.device_buffer(0), row.stream(1), row.device_buffer(2)])
    looking = lease(holdings, 2)
    change = begin(holdings, [], 0)
    assert [item.name for item in change.bar()] == ["slot 2"]
    assert lease(holdings, 0)
    change.roll_back()
    del looking

    close(holdings)


def test_new_memory_at_an_address_that_was_barred_can_be_looked_at(sim: Simulator) -> None:
    holdings = holding(sim.runtime, MAPPED)
    old = holdings.leases.age
    swap = [row.unmap(3, 5), row.memory(0), row.mapped(2, 1, 0), row.rights(2)]
    change = _core.Change(
        holdings, _core.Rows(swap), 3, extra_slots=3, kept=[(1, 1, 1), (3, 2, 1), (4, 1, 1), (5, 0, 1)]
    )
    assert change.bar() == []
    row.advance(change, 4)
    change.commit(None)
    free_retired(holdings)
    address = snapshot_of(holdings).address(2)
    assert lease(holdings, 2, SIZE)
    with pytest.raises(_core.LeaseRefused):
        _core.Lease(_core.Window(holdings.leases, "of before", address, [SIZE], 1, "B", "", False, old))

    close(holdings)


def kept_by_leases() -> tuple[row.Row, ...]:
    """Of these, leases on the mapping and the pinned buffer keep some at a forced close."""
    other = [row.memory(3, "other memory"), row.device_buffer(4, "other")]
    return *MAPPED, *other, row.stream(5), row.pinned(6)


def test_a_forced_close_keeps_what_leases_are_on_until_they_go(sim: Simulator) -> None:
    holdings = holding(sim.runtime, kept_by_leases())
    leases = [lease(holdings, 2, SIZE), lease(holdings, 6)]
    assert sorted(item.name for item in holdings.close(True)) == ["slot 2", "slot 6"]
    report = free_retired(holdings)

    # The mapping goes, so that a stale pointer faults; its addresses stay, and streams, which may move bytes.
    assert (report.kept, report.freed, report.leaks) == (["range", "stream", "pinned"], 4, [])
    assert [name for _, name, _ in holdings.retired.contents()] == ["range", "stream", "pinned"]
    retired = holdings.retired
    assert (retired.any, retired.freeable, retired.waits) == (True, False, True)
    assert free_retired(holdings).kept == ["range", "stream", "pinned"]
    leases.pop()
    report = free_retired(holdings)
    assert (report.kept, report.freed) == (["range", "stream"], 1)
    leases.clear()
    assert (retired.any, retired.waits) == (True, False)
    report = free_retired(holdings)
    assert (report.kept, report.freed, retired.any, sim.alive()) == ([], 2, False, set())


@pytest.mark.parametrize("closed", [False, True])
def test_dropped_holdings_with_leases_out_are_freed_when_those_have_gone(sim: Simulator, closed: bool) -> None:
    holdings = holding(sim.runtime, kept_by_leases())
    before = sim.alive()
    looking, book = lease(holdings, 6), holdings.leases
    if closed:
        holdings.close(True)
        free_retired(holdings)
        assert len(sim.alive()) == 2
    del holdings
    gc.collect()
    (retired,) = waiting()
    assert retired.waits
    if not closed:  # dropped without close()
        assert (sim.alive(), free_retired(retired).freed) == (before, 0)
        with pytest.raises(_core.LeaseRefused):
            _core.Lease(_core.Window(book, "new", 0x1000, [1], 1, "B", "", False, book.age))
    del looking
    assert not retired.waits
    report = free_retired(retired)
    _core.remove_waiting(retired)

    assert (report.kept, report.leaks, sim.alive(), waiting()) == ([], [], set(), [])


def give_up_on(holdings: _core.Holdings) -> tuple[_core.UndoRun, _core.UndoReport]:
    """A device that is busy for long."""
    work, report = _core.UndoRun(holdings.retired, 0.0), _core.UndoReport()

    def give_up(device: str) -> None:
        assert work.abandon_wait()

    work.run(report, give_up, lambda: None)
    return work, report


def test_a_wait_that_was_given_up_on_leaves_everything(sim: Simulator, tmp_path: Path) -> None:
    holdings = holding(sim.runtime, [row.device_buffer(0), row.stream(1)])
    holdings.retired.set_devices([("gpu", 0)])
    holdings.close(False)
    before = sim.alive()
    given_up = threading.Event()
    with during(sim, tmp_path, "hipDeviceSynchronize@1", given_up.wait):
        work, report = give_up_on(holdings)
        given_up.set()

    assert (work.finished, work.abandoned, work.abandoned_device) == (True, True, "gpu")
    assert [name for _, name, _ in work.left_over] == ["device", "stream"]
    assert (report.freed, sim.alive(), holdings.retired.any) == (0, before, False)
    del holdings, work
    gc.collect()
    assert sim.alive() == before
    sim.free_everything()


def test_a_change_outlives_that_its_holdings_were_given_up_on(sim: Simulator, tmp_path: Path) -> None:
    """A device is abandoned while a change is undecided; the process must not crash."""
    for number, decide in enumerate((lambda change: change.commit(None), lambda change: change.roll_back())):
        (folder := tmp_path / str(number)).mkdir()
        given_up = threading.Event()
        holdings = holding(sim.runtime, [row.stream(0)])
        holdings.retired.set_devices([("gpu", 0)])
        change = begin(holdings, [row.stream(0)], 1)
        with during(sim, folder, "hipDeviceSynchronize@1", given_up.wait):
            assert give_up_on(holdings)[0].abandoned
            decide(change)
            given_up.set()
        holdings.close(False)
        free_retired(holdings)
        del change, holdings
        gc.collect()


def test_slow_calls_behind_quick_ones_do_not_keep_a_signal_waiting(sim: Simulator, tmp_path: Path) -> None:
    streams = [row.stream(slot) for slot in range(40)]  # slow to free, and freed last
    holdings = holding(sim.runtime, [*streams, *(row.device_buffer(slot, size=4096) for slot in range(40, 170))])
    holdings.close(False)
    left = []

    def note(number: int, frame: object) -> None:
        left.append(len(holdings.retired.contents()))

    before = signal.signal(signal.SIGALRM, note)
    try:
        with during(sim, tmp_path, "hipStreamDestroy@1", alarm, "hipStreamDestroy@2+=delay:10"):
            free_retired(holdings)
    finally:
        signal.signal(signal.SIGALRM, before)

    assert left and left[0] > 0
    assert not holdings.retired.any


def test_what_a_handler_raises_while_things_are_freed_is_kept_until_the_end(sim: Simulator, tmp_path: Path) -> None:
    holdings = holding(sim.runtime, [row.stream(slot) for slot in range(20)])
    holdings.close(False)

    def stop(number: int, frame: object) -> None:
        raise TimeoutError

    results = []
    work, report = _core.UndoRun(holdings.retired, 60.0), _core.UndoReport()
    before = signal.signal(signal.SIGALRM, stop)
    try:
        with during(sim, tmp_path, "hipStreamDestroy@1", alarm):
            interrupt = work.run(report, lambda device: None, lambda: results.append(1))
    finally:
        signal.signal(signal.SIGALRM, before)

    assert isinstance(interrupt, TimeoutError)
    assert (results, report.freed, sim.alive()) == ([1], 20, set())


def test_a_close_from_another_thread_during_a_change_rolls_it_back(sim: Simulator) -> None:
    given = bytearray(MIB)
    for _ in range(20):
        holdings = nothing(sim.runtime)
        rows = [row.registered(slot, bound=True) for slot in range(30)]
        memory = [bytearray(4096) for _ in rows]
        change = _core.Change(holdings, _core.Rows(rows), slots=30)
        change.bind({at: (block, 4096) for at, block in enumerate(memory)})
        errors: list[BaseException] = []

        def work(change: _core.Change = change, errors: list[BaseException] = errors) -> None:
            try:
                row.advance(change, 30)
            except RuntimeError as error:
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        change.roll_back()
        thread.join()
        assert free_retired(holdings).leaks == []
        for block in memory:
            block.append(1)  # let go
        close(holdings)
    given.append(1)


def test_an_exception_of_a_handler_does_not_keep_the_undo_run_alive(sim: Simulator, tmp_path: Path) -> None:
    """Its traceback leads to the frame that has the other."""
    holdings = holding(sim.runtime, [row.stream(slot) for slot in range(20)])
    holdings.close(False)
    raised = []

    def stop(number: int, frame: object) -> None:
        raised.append(number)
        raise TimeoutError

    def free_interrupted() -> weakref.ref[_core.UndoRun]:
        work = _core.UndoRun(holdings.retired, 60.0)
        work.run(_core.UndoReport(), lambda device: None, lambda: None)
        return weakref.ref(work)

    before = signal.signal(signal.SIGALRM, stop)
    gc.disable()
    try:
        with during(sim, tmp_path, "hipStreamDestroy@1", alarm):
            gone = free_interrupted()
        assert (len(raised), gone()) == (1, None)
    finally:
        gc.enable()
        signal.signal(signal.SIGALRM, before)
