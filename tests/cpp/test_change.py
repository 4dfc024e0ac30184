"""The native change, seen from Python: it makes what a layout holds, all of it or nothing."""

from __future__ import annotations

import gc
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hipplan import _core
from tests.conftest import Simulator
from tests.cpp import some_rows as row
from tests.cpp.some_rows import MAPPED, SOME_OF_EVERYTHING, begin, close, free_retired, holding, nothing, snapshot_of

EVERYTHING = 9


@contextmanager
def calls_to(sim: Simulator, folder: Path) -> Iterator[list[str]]:
    """The driver calls made within it, once it is over."""
    trace = folder / "trace"
    sim.runtime.trace_to(str(trace))
    calls: list[str] = []
    yield calls
    sim.runtime.trace_to("")
    calls += [json.loads(line)["call"] for line in trace.read_text().splitlines()]


def test_a_commit_makes_the_new_snapshot_count_and_a_close_gives_it_back(sim: Simulator) -> None:
    holdings = nothing(sim.runtime)
    change = begin(holdings, SOME_OF_EVERYTHING, EVERYTHING)
    assert (len(snapshot_of(holdings)), len(snapshot_of(change)), holdings.changing) == (0, EVERYTHING, True)
    assert change.commit("known")

    assert (len(snapshot_of(holdings)), holdings.state, holdings.changing) == (EVERYTHING, "known", False)
    assert all(slot in snapshot_of(holdings) for slot in range(EVERYTHING))
    assert len(sim.alive()) == EVERYTHING
    report = close(holdings)
    assert (report.freed, report.restored, report.leaks) == (EVERYTHING, 0, [])
    assert (sim.alive(), holdings.closed, holdings.damaged) == (set(), True, False)


def test_a_roll_back_frees_what_was_made_and_the_old_snapshot_counts(sim: Simulator) -> None:
    holdings = holding(sim.runtime, [row.stream(0)])
    before, snapshot = sim.alive(), snapshot_of(holdings)
    change = begin(holdings, [row.device_buffer(1), row.memory(2)], 3, same_slots=1)
    change.roll_back()

    assert (change.undecided, change.committed, holdings.changing) == (False, False, False)
    assert free_retired(holdings).freed == 2
    assert (sim.alive(), len(snapshot_of(holdings))) == (before, 1)
    assert snapshot_of(holdings).stream_handle(0) == snapshot.stream_handle(0)
    close(holdings)


def test_retired_objects_are_freed_latest_first(sim: Simulator, tmp_path: Path) -> None:
    for end in ("commit", "roll back"):
        holdings = nothing(sim.runtime)
        change = begin(holdings, SOME_OF_EVERYTHING, EVERYTHING)
        if end == "commit":
            change.commit(None)
            holdings.close(False)
        else:
            change.roll_back()
        described = holdings.retired.contents()
        assert [name for _, name, _ in described] == [item[1] for item in SOME_OF_EVERYTHING[:EVERYTHING]]
        assert [place for place, _, _ in described] == sorted(place for place, _, _ in described)
        with calls_to(sim, tmp_path) as calls:
            free_retired(holdings)
        gave = [call for call in calls if call not in ("hipGetDevice", "hipSetDevice", "hipGetLastError")]
        assert gave == [
            "hipMemUnmap", "hipHostUnregister", "hipFree", "hipHostFree", "hipFree", "hipStreamDestroy",
            "hipMemAddressFree", "hipMemRelease", "hipDeviceDisablePeerAccess",
        ]  # fmt: skip
        (tmp_path / "trace").unlink()


def test_a_decision_falls_once(sim: Simulator) -> None:
    holdings = nothing(sim.runtime)
    change = begin(holdings, [row.stream(0)], 1)
    assert change.commit("first")
    change.roll_back()
    assert change.commit("second")
    assert (change.committed, holdings.state, free_retired(holdings).freed) == (True, "first", 0)

    change = begin(holdings, [], 0)
    change.roll_back()
    assert not change.commit("third")
    assert (holdings.state, len(snapshot_of(holdings)), change.committed) == ("first", 1, False)
    with pytest.raises(RuntimeError, match="decided"):
        change.advance(1)
    close(holdings)


def test_a_change_dropped_undecided_frees_what_it_made(sim: Simulator) -> None:
    holdings = holding(sim.runtime, [row.stream(0)])
    before = sim.alive()
    change = begin(holdings, [row.device_buffer(1), *MAPPED_AT_2], 5, same_slots=1)
    assert len(sim.alive()) == 5
    del change
    gc.collect()

    assert (sim.alive(), holdings.changing, holdings.retired.any) == (before, False, False)
    close(holdings)


MAPPED_AT_2 = (row.memory(2), row.reserve(3), row.mapped(4, 3, 2))


def test_a_change_keeps_what_it_is_of(sim: Simulator) -> None:
    holdings = holding(sim.runtime, [row.stream(0)])
    change = begin(holdings, [row.device_buffer(1)], 2, same_slots=1)
    del holdings
    gc.collect()
    assert len(sim.alive()) == 2
    del change
    gc.collect()

    assert sim.alive() == set()


def test_a_second_change_is_refused_while_one_is_undecided(sim: Simulator) -> None:
    holdings = nothing(sim.runtime)
    first = begin(holdings, [row.stream(0)], 1)
    with pytest.raises(RuntimeError, match="being changed already"):
        _core.Change(holdings, _core.Rows([]), slots=0)
    first.roll_back()
    with pytest.raises(RuntimeError, match="not freed yet"):
        _core.Change(holdings, _core.Rows([]), slots=0)
    free_retired(holdings)
    _core.Change(holdings, _core.Rows([]), slots=0).roll_back()
    close(holdings)

    with pytest.raises(RuntimeError, match="closed"):
        _core.Change(holdings, _core.Rows([]), slots=0)


def test_a_close_during_a_change_rolls_it_back_first(sim: Simulator) -> None:
    holdings = holding(sim.runtime, [row.stream(0)])
    change = begin(holdings, [row.device_buffer(1)], 2, same_slots=1)
    report = close(holdings)

    assert (report.freed, report.leaks, sim.alive()) == (2, [], set())
    assert (change.undecided, change.commit(None), len(snapshot_of(holdings))) == (False, False, 1)


def test_a_close_gives_what_a_change_has_made_back_before_what_it_lies_in(sim: Simulator) -> None:
    holdings = holding(sim.runtime, [row.reserve(0)])
    change = begin(holdings, [row.memory(1), row.mapped(2, 0, 1)], 3, same_slots=1)
    report = close(holdings)

    assert (report.leaks, report.freed, change.committed) == ([], 3, False)


@pytest.mark.parametrize("force", [False, True])
def test_a_close_during_a_change_that_has_unmapped_something_gives_everything_back(sim: Simulator, force: bool) -> None:
    holdings = holding(sim.runtime, MAPPED)
    change = begin(holdings, [row.unmap(3, 5), row.memory(6), row.mapped(7, 4, 6)], 3, extra_slots=5, same_slots=3,
                   kept=[(3, 2, 1), (4, 1, 1), (5, 0, 1)])  # fmt: skip
    report = close(holdings, force=force)

    assert (report.leaks, report.restored, change.undecided) == ([], 1, False)
    assert report.freed == 5  # the old three, and the new memory and mapping
    assert sim.alive() == set()


@pytest.mark.parametrize("commits", [True, False])
def test_an_object_is_made_again_in_its_slot_and_those_around_it_stay(sim: Simulator, commits: bool) -> None:
    holdings = holding(sim.runtime, [row.stream(0, "a"), row.stream(1, "b"), row.stream(2, "c")])
    old = [snapshot_of(holdings).stream_handle(slot) for slot in range(3)]
    change = begin(holdings, [row.stream(1, "new b")], 3, same_slots=3, renewed=[1])
    if commits:
        change.commit(None)
    else:
        change.roll_back()
    assert [name for _, name, _ in holdings.retired.contents()] == ["b" if commits else "new b"]
    assert free_retired(holdings).freed == 1

    new = [snapshot_of(holdings).stream_handle(slot) for slot in range(3)]
    assert [new[0] == old[0], new[1] == old[1], new[2] == old[2]] == [True, not commits, True]
    report = close(holdings)
    assert (report.freed, report.leaks) == (3, [])
    assert sim.alive() == set()


def test_an_object_that_is_not_made_again_is_gone(sim: Simulator) -> None:
    holdings = holding(sim.runtime, [row.stream(0, "a"), row.stream(1, "b")])
    change = begin(holdings, [], 2, same_slots=2, renewed=[0])
    change.commit(None)
    assert [name for _, name, _ in holdings.retired.contents()] == ["a"]
    assert free_retired(holdings).freed == 1
    with pytest.raises(IndexError):
        snapshot_of(holdings).stream_handle(0)
    assert close(holdings).freed == 1


def test_old_objects_stay_go_and_are_moved_to_other_slots(sim: Simulator) -> None:
    holdings = holding(sim.runtime, [row.stream(0, "a"), row.stream(1, "b"), row.stream(2, "c"), row.stream(3, "d")])
    old = [snapshot_of(holdings).stream_handle(slot) for slot in range(4)]
    change = begin(holdings, [row.stream(2, "e")], 3, same_slots=1, kept=[(1, 3, 1)])
    change.commit(None)
    assert [name for _, name, _ in holdings.retired.contents()] == ["b", "c"]
    assert free_retired(holdings).freed == 2

    new = [snapshot_of(holdings).stream_handle(slot) for slot in range(3)]
    assert new[:2] == [old[0], old[3]]
    report = close(holdings)
    assert (report.freed, report.leaks) == (3, [])


def test_consecutive_objects_move_to_other_slots_together(sim: Simulator) -> None:
    holdings = holding(sim.runtime, [row.stream(slot, "abcd"[slot]) for slot in range(4)])
    old = [snapshot_of(holdings).stream_handle(slot) for slot in range(4)]
    change = begin(holdings, [row.stream(0, "e")], 4, kept=[(1, 0, 3)])
    change.commit(None)
    assert [name for _, name, _ in holdings.retired.contents()] == ["d"]
    assert free_retired(holdings).freed == 1

    assert [snapshot_of(holdings).stream_handle(slot) for slot in range(1, 4)] == old[:3]
    assert close(holdings).freed == 4


def test_an_old_snapshot_says_what_was_freed(sim: Simulator) -> None:
    holdings = holding(sim.runtime, [row.device_buffer(0), row.stream(1)])
    old = snapshot_of(holdings)
    change = begin(holdings, [], 1, kept=[(0, 1, 1)])
    change.commit(None)
    assert old.address(0)  # retired, not freed yet
    free_retired(holdings)

    assert (0 in old, 1 in old) == (False, True)
    with pytest.raises(IndexError, match="nothing is in slot 0"):
        old.address(0)
    assert old.stream_handle(1) == snapshot_of(holdings).stream_handle(0)
    close(holdings)


def test_what_is_in_an_extra_slot_is_there_only_until_the_decision(sim: Simulator) -> None:
    holdings = nothing(sim.runtime)
    change = begin(holdings, [row.stream(0), row.device_buffer(1, "meanwhile")], 1, extra_slots=1)
    assert 1 in snapshot_of(change)
    change.commit(None)

    assert len(snapshot_of(holdings)) == 1
    assert [name for _, name, _ in holdings.retired.contents()] == ["meanwhile"]
    assert free_retired(holdings).freed == 1
    assert close(holdings).freed == 1


def test_threads_that_look_while_another_changes_see_the_old_or_the_new(sim: Simulator) -> None:
    """Snapshots are read without a lock of the caller's."""
    holdings = holding(sim.runtime, [row.device_buffer(0)])
    wrong: list[BaseException] = []
    seen: list[int] = []
    end = threading.Event()

    def look() -> None:
        while not end.is_set():
            try:
                seen.append(snapshot_of(holdings).address(0))
            except IndexError:  # it was freed meanwhile
                pass
            except BaseException as error:
                wrong.append(error)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(200):
        begin(holdings, [row.device_buffer(0)], 1).commit(None)
        free_retired(holdings)
    end.set()
    for thread in threads:
        thread.join()
    assert (wrong, 0 in seen, bool(seen)) == ([], False, True)
    close(holdings)


def test_the_snapshot_and_what_is_known_of_it_change_in_one_moment(sim: Simulator) -> None:
    """Who reads in another thread; the bars that a commit settles count the commits."""
    holdings = holding(sim.runtime, [*MAPPED, row.device_buffer(3)])
    holdings.state, book = 0, holdings.leases
    alterations = [row.rights(2, row.RW, row.RW)] * 500  # a commit forgets them, which takes a while
    wrong: list[tuple[int, int]] = []
    end = threading.Event()

    def look() -> None:
        while not end.is_set():
            age, state = book.age, holdings.state
            if state < age:
                wrong.append((age, state))

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=look) for _ in range(3)]
    try:
        for thread in threads:
            thread.start()
        for number in range(1, 40):
            change = _core.Change(holdings, _core.Rows([row.device_buffer(3), *alterations]), slots=4, same_slots=3)
            assert change.bar() == []
            row.advance(change, 501)
            change.commit(number)
            free_retired(holdings)
    finally:
        end.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(usual)
    assert (wrong, book.age) == ([], 39)
    close(holdings)


def test_a_change_with_a_failed_row_can_only_be_rolled_back(sim: Simulator) -> None:
    """Each further attempt would use up the place in the log that belongs to another row."""
    holdings = holding(sim.runtime, MAPPED)
    rows = [row.rights(2, ((0, "r"),), row.RW), row.unmap(2, 0)]
    change = _core.Change(holdings, _core.Rows(rows), slots=3, same_slots=3)
    sim.runtime.arm_faults("hipMemSetAccess@1=999")
    with pytest.raises(_core.HipError):
        change.advance(2)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="has failed"):
            change.advance(2)
    assert (change.done, change.failed, change.undecided) == (0, True, True)
    with pytest.raises(RuntimeError, match="not all rows"):
        change.commit("wrong")
    assert (change.undecided, holdings.state) == (True, None)

    change.roll_back()
    assert free_retired(holdings).leaks == []
    assert close(holdings).freed == 3


def test_a_change_with_rows_left_is_not_committed(sim: Simulator) -> None:
    holdings = nothing(sim.runtime)
    change = begin(holdings, [row.stream(0)], 1)
    change.roll_back()
    assert not change.commit("rolled back")  # no error: a close from another thread may come first
    free_retired(holdings)

    change = _core.Change(holdings, _core.Rows([row.stream(0), row.stream(1)]), slots=2)
    change.advance(1)
    with pytest.raises(RuntimeError, match="not all rows"):
        change.commit("wrong")
    row.advance(change, 2)
    assert (change.commit("right"), holdings.state) == (True, "right")
    assert close(holdings).freed == 2


def test_of_changes_begun_at_once_one_is_made(sim: Simulator) -> None:
    holdings = nothing(sim.runtime)
    rows = _core.Rows([row.device_buffer(slot) for slot in range(5000)])
    for _ in range(20):
        made: list[_core.Change] = []
        refused: list[str] = []
        barrier = threading.Barrier(2)

        def work(
            made: list[_core.Change] = made, refused: list[str] = refused, barrier: threading.Barrier = barrier
        ) -> None:
            barrier.wait()
            try:
                made.append(_core.Change(holdings, rows, slots=5000))
            except RuntimeError as error:
                refused.append(str(error))

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(made), refused) == (1, ["the layout is being changed already"])
        made[0].roll_back()
    close(holdings)


def test_thousands_of_changes_leave_few_segments_behind(sim: Simulator) -> None:
    """What is freed leaves nothing behind, and what stays shares segments: else each change would cost a little more
    than the one before, and a process that changes its layout for days would lose memory."""
    holdings = holding(sim.runtime, MAPPED)
    for _ in range(1500):
        assert begin(holdings, [row.stream(3)], 4, same_slots=3).commit("grown")
        assert begin(holdings, [], 3, same_slots=3).commit("shrunk")
        free_retired(holdings)
        begin(holdings, [row.stream(3)], 4, same_slots=3).roll_back()
        free_retired(holdings)
        change = begin(holdings, [row.rights(2, ((0, "r"),), row.RW)], 3, same_slots=3)
        assert change.commit("sealed") and begin(
            holdings, [row.rights(2, row.RW, ((0, "r"),))], 3, same_slots=3
        ).commit("")
    assert snapshot_of(holdings).segment_count <= 3
    for number in range(1500):
        assert begin(holdings, [row.stream(3 + number)], 4 + number, same_slots=3 + number).commit("grown")
    assert snapshot_of(holdings).segment_count <= 3 + 1500 // 256
    old = snapshot_of(holdings)
    for number in reversed(range(1500)):
        assert begin(holdings, [], 3 + number, same_slots=3 + number).commit("shrunk")
        free_retired(holdings)
    assert snapshot_of(holdings).segment_count <= 2
    assert 3 not in old and 1502 not in old and 2 in old  # what was freed is empty there, too
    close(holdings)
    assert sim.alive() == set()
