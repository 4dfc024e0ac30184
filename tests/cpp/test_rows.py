"""What single rows of a change do, and how they fail."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import time
import weakref
from pathlib import Path

import pytest

from hipplan import _core
from tests.conftest import Simulator
from tests.cpp import some_rows as row
from tests.cpp.some_rows import MAPPED, MIB, SIZE, begin, close, free_retired, holding, nothing, snapshot_of
from tests.pauses import alarm, during


def test_a_failed_row_is_reported_and_earlier_objects_are_freed(sim: Simulator) -> None:
    holdings = nothing(sim.runtime)
    change = _core.Change(holdings, _core.Rows([row.stream(0), row.device_buffer(1, "huge", 1, 2**60)]), slots=2)
    with pytest.raises(_core.HipError) as caught:
        row.advance(change, 2)
    error = caught.value

    assert (error.code, error.name, error.call) == (2, "hipErrorOutOfMemory", "hipMalloc")
    assert error.subject == f"device buffer 'huge' of {2**60} bytes"
    assert "on device 1" in error.arguments
    assert (change.done, change.failed, len(sim.alive())) == (1, True, 1)
    change.roll_back()
    assert free_retired(holdings).freed == 1


@pytest.mark.parametrize("failing", range(1, 11))
def test_whichever_of_many_rows_fails_those_before_it_are_done(sim: Simulator, failing: int) -> None:
    """Calls that come by the thousand are made in rows of them."""
    holdings = nothing(sim.runtime)
    rows = [row.memory(slot, f"m{slot}", device=slot // 5) for slot in range(10)]
    change = _core.Change(holdings, _core.Rows(rows), slots=10)
    sim.runtime.arm_faults(f"hipMemCreate@{failing}=999")
    with pytest.raises(_core.HipError, match=f"'m{failing - 1}'"):
        row.advance(change, 10)

    assert (change.done, change.failed, len(sim.alive())) == (failing - 1, True, failing - 1)
    del change
    gc.collect()
    assert sim.alive() == set()


def test_rows_are_run_up_to_an_end(sim: Simulator) -> None:
    holdings = nothing(sim.runtime)
    change = _core.Change(holdings, _core.Rows([row.memory(slot) for slot in range(6)]), slots=6)
    for end in (0, 1, 4, 4, 6, 99):
        row.advance(change, min(end, 6))
        change.advance(end)
        assert (change.done, len(sim.alive()), change.failed) == (min(end, 6), min(end, 6), False)
    change.commit(None)
    close(holdings)


def test_a_taken_exact_address_is_reported_and_freed(sim: Simulator) -> None:
    holdings = holding(sim.runtime, [row.reserve(0)])
    taken = snapshot_of(holdings).address(0)
    change = _core.Change(holdings, _core.Rows([row.reserve(1, at=taken, exact=True)]), slots=2, same_slots=1)
    with pytest.raises(_core.AddressTaken) as caught:
        row.advance(change, 1)
    assert caught.value.address not in (0, taken)
    assert (change.failed, change.done, len(sim.alive())) == (True, 0, 2)
    change.roll_back()

    assert free_retired(holdings).freed == 1
    close(holdings)


def test_rows_that_are_timed_say_when_they_began_and_how_long_they_took(sim: Simulator) -> None:
    holdings = nothing(sim.runtime)
    rows = _core.Rows([row.memory(0), row.device_buffer(1), row.stream(2)])
    change = _core.Change(holdings, rows, slots=3, timed=True)
    sim.runtime.set_retry_pause(0)
    sim.runtime.arm_faults("hipMalloc@1=delay:20; hipStreamCreateWithFlags@1=hipErrorNotReady")
    before = time.monotonic_ns()
    row.advance(change, 3)
    after = time.monotonic_ns()
    sim.runtime.set_retry_pause(1000)

    times = [change.time_of(place) for place in range(3)]
    assert times[1][1] >= 20_000_000
    assert [retries for _, _, retries in times] == [0, 0, 1]
    assert times[0][1] > 0
    edges = [before, *(edge for began, took, _ in times for edge in (began, began + took)), after]
    assert edges == sorted(edges)
    with pytest.raises(IndexError):
        change.time_of(3)
    change.commit(None)
    close(holdings)


def test_the_row_that_failed_is_timed_too_and_untimed_rows_are_not(sim: Simulator) -> None:
    holdings = nothing(sim.runtime)
    sim.runtime.arm_faults("hipMalloc@1=delay:20; hipMalloc@1=999")
    change = _core.Change(holdings, _core.Rows([row.device_buffer(0)]), slots=1, timed=True)
    with pytest.raises(_core.HipError):
        change.advance(1)
    assert change.time_of(0)[1] >= 20_000_000
    del change
    sim.runtime.arm_faults("")

    change = begin(holdings, [row.device_buffer(0)], 1)
    with pytest.raises(IndexError):
        change.time_of(0)
    change.commit(None)
    close(holdings)


class Bytes(bytearray):
    """Memory that tells when it has gone."""


@pytest.mark.parametrize("end", ["roll back", "release", "drop"])
def test_bound_memory_is_released_with_its_owner(sim: Simulator, end: str) -> None:
    holdings = nothing(sim.runtime)
    given = Bytes(MIB)
    gone = weakref.ref(given)
    change = _core.Change(holdings, _core.Rows([row.registered(0, bound=True)]), slots=1)
    change.bind({0: (given, MIB)})
    change.advance(1)
    assert snapshot_of(change).address(0) == _core.buffer_address(given)
    with pytest.raises(BufferError):
        given.append(1)  # it cannot be moved meanwhile
    if end == "roll back":
        change.roll_back()
        free_retired(holdings)
    else:
        change.commit(None)
        del given
        gc.collect()
        assert gone() is not None
        if end == "release":
            close(holdings)
        else:
            del change, holdings
    if end == "roll back":
        given.append(1)
        del given
    gc.collect()

    assert gone() is None


def test_bound_memory_that_was_not_used_is_released_by_the_decision(sim: Simulator) -> None:
    for decide in (lambda change: change.roll_back(), lambda change: change.commit(None)):
        holdings, given = nothing(sim.runtime), bytearray(MIB)
        change = _core.Change(holdings, _core.Rows([]), slots=0)
        change.bind({0: (given, MIB)})
        decide(change)
        given.append(1)
        close(holdings)


def test_rows_need_what_is_bound_to_them(sim: Simulator) -> None:
    for needy in (row.registered(0, bound=True), row.imported(0)):
        holdings = nothing(sim.runtime)
        change = _core.Change(holdings, _core.Rows([needy]), slots=1)
        with pytest.raises(ValueError, match="nothing is bound"):
            change.advance(1)
        with pytest.raises(BufferError if needy[0] == "register buffer" else TypeError):
            change.bind({0: (memoryview(bytearray(8))[::2] if needy[0] == "register buffer" else object(), 8)})


def test_an_allocation_is_shared_and_imported(sim: Simulator) -> None:
    exporter = holding(sim.runtime, [row.memory(0, shared=True)])
    descriptor = snapshot_of(exporter).share(0)
    holdings = nothing(sim.runtime)
    change = _core.Change(holdings, _core.Rows([row.imported(0), row.reserve(1), row.mapped(2, 1, 0)]), slots=3)
    change.bind({0: (descriptor, 0)})
    row.advance(change, 3)
    os.close(descriptor)
    change.commit(None)

    assert close(holdings).freed == 3
    close(exporter)


def test_a_registered_file_has_its_own_size(sim: Simulator, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"x" * 5000)
    holdings = holding(sim.runtime, [row.registered(0, 0, str(tmp_path / "data"))])

    assert snapshot_of(holdings).size_bytes(0) == 5000
    assert sim.read(snapshot_of(holdings).address(0), 4) == b"xxxx"
    close(holdings)
    for size, file in ((6000, "data"), (0, "none"), (0, ".")):
        change = _core.Change(nothing(sim.runtime), _core.Rows([row.registered(0, size, str(tmp_path / file))]), 1)
        with pytest.raises((ValueError, OSError)):
            change.advance(1)


def test_bytes_are_copied_and_streams_awaited(sim: Simulator) -> None:
    rows = [*MAPPED, row.memory(3), row.mapped(4, 1, 3, 0, "other"), row.rights(4), row.stream(5), row.managed(6)]
    holdings = holding(sim.runtime, rows)
    here, there = snapshot_of(holdings).address(2), snapshot_of(holdings).address(4)
    sim.fill(here, 7, SIZE)
    more = [
        row.copy(4, 2),
        row.prefetch(6, 5),
        row.await_stream(5),
        row.prefetch(6),
        row.await_stream(),
        row.attach(6, 5),
    ]
    begin(holdings, more, 7, same_slots=7).commit(None)

    assert sim.read(there, SIZE) == b"\7" * SIZE
    close(holdings)


def test_peer_access_that_was_on_is_not_ours_to_switch_off(sim: Simulator) -> None:
    hip = ctypes.CDLL(sim.runtime.path)
    assert hip.hipDeviceEnablePeerAccess(1, 0) == 0
    holdings = holding(sim.runtime, [row.link(0)])
    assert 0 not in snapshot_of(holdings)
    assert close(holdings).freed == 0

    assert sim.alive() == {("peer", "0->1")}
    assert hip.hipDeviceDisablePeerAccess(1) == 0


def test_peer_access_lasts_until_its_last_owner_is_freed(sim: Simulator) -> None:
    first, second = (holding(sim.runtime, [row.link(0)]) for _ in range(2))
    sim.runtime.arm_faults("hipDeviceEnablePeerAccess@1=999")
    with pytest.raises(_core.HipError):
        holding(sim.runtime, [row.link(0)])
    sim.runtime.arm_faults("")
    third = holding(sim.runtime, [row.link(0)])
    assert close(second).freed == close(first).freed == 1

    assert sim.alive() == {("peer", "0->1")}
    assert close(third).freed == 1
    assert sim.alive() == set()


def test_peer_access_that_other_code_has_switched_off_is_switched_on_again(sim: Simulator) -> None:
    first = holding(sim.runtime, [row.link(0)])
    assert ctypes.CDLL(sim.runtime.path).hipDeviceDisablePeerAccess(1) == 0
    second = holding(sim.runtime, [row.link(0)])
    assert sim.alive() == {("peer", "0->1")}
    assert close(second).freed == close(first).freed == 1
    assert sim.alive() == set()


def test_a_failed_call_leaves_no_last_error_for_others_to_find(sim: Simulator) -> None:
    with pytest.raises(_core.HipError):
        holding(sim.runtime, [row.device_buffer(0, size=2**60)])

    assert ctypes.CDLL(sim.runtime.path).hipGetLastError() == 0


def test_a_device_set_back_at_the_second_try_leaves_no_last_error(sim: Simulator) -> None:
    hip = ctypes.CDLL(sim.runtime.path)
    hip.hipsim_fail(b"hipSetDevice@2=999")
    holdings = holding(sim.runtime, [row.device_buffer(0, device=1)])
    hip.hipsim_fail(b"")

    assert hip.hipPeekAtLastError() == 0
    close(holdings)


def test_the_current_device_is_left_unchanged(sim: Simulator) -> None:
    hip, current = ctypes.CDLL(sim.runtime.path), ctypes.c_int()
    rows = [row.memory(0), row.device_buffer(1), row.memory(2, device=1), row.stream(3), row.pinned(4), row.managed(5)]
    for device in (0, 1):
        assert hip.hipSetDevice(device) == 0
        holdings = nothing(sim.runtime)
        change = _core.Change(holdings, _core.Rows(rows), slots=6)
        while change.done < 6:
            change.advance(change.done + 1)
            hip.hipGetDevice(ctypes.byref(current))
            assert current.value == device
        change.commit(None)
        close(holdings)
        hip.hipGetDevice(ctypes.byref(current))
        assert current.value == device
    hip.hipSetDevice(0)


def test_an_allocation_is_made_with_its_device_current(sim: Simulator, tmp_path: Path) -> None:
    """HIP takes its memory from the pool of the current device, whatever the properties say."""
    trace = tmp_path / "trace"
    sim.runtime.trace_to(str(trace))
    rows = [row.memory(0, device=1), row.memory(1), row.device_buffer(2, device=1), row.memory(3, device=1)]
    holdings = holding(sim.runtime, rows)
    sim.runtime.trace_to("")
    current, seen = 0, []
    for line in map(json.loads, trace.read_text().splitlines()):
        if line["call"] == "hipSetDevice":
            current = line["args"]["device"]
        elif line["call"] in ("hipMemCreate", "hipMalloc"):
            seen.append((line["call"], current))

    assert seen == [("hipMemCreate", 1), ("hipMemCreate", 0), ("hipMalloc", 1), ("hipMemCreate", 1)]
    close(holdings)


def test_driver_calls_release_the_gil(sim: Simulator) -> None:
    def ticks_during(delay_ms: int) -> int:
        sim.runtime.arm_faults(f"hipMalloc@1=delay:{delay_ms}")
        holdings = nothing(sim.runtime)
        change = _core.Change(holdings, _core.Rows([row.device_buffer(0)]), slots=1)
        ticks = row.ticks_while(lambda: change.advance(1))
        change.commit(None)
        close(holdings)
        return ticks

    # On a busy machine this thread may get no turn while the call is slow; where the GIL is held it never does.
    assert any(ticks_during(delay_ms) >= 10 for delay_ms in (400, 4_000, 20_000))


def test_signals_are_handled_between_slow_calls(sim: Simulator, tmp_path: Path) -> None:
    holdings = nothing(sim.runtime)
    change = _core.Change(holdings, _core.Rows([row.stream(slot) for slot in range(40)]), slots=40)

    def stop(number: int, frame: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    try:
        with during(sim, tmp_path, "hipStreamCreateWithFlags@2", alarm), pytest.raises(TimeoutError):
            row.advance(change, 40)
    finally:
        signal.signal(signal.SIGALRM, before)

    assert 0 < change.done < 40
    assert (change.failed, len(sim.alive())) == (False, change.done)
    del change
