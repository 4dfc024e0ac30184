"""A row that reserves a wanted address: the driver ignores it while freed addresses fit, and it is asked again."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import mmap
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hipplan import _core
from tests.conftest import Simulator, not_under_tsan
from tests.cpp import some_rows as row
from tests.cpp.some_rows import MIB, close, free_retired, holding, snapshot_of
from tests.cpp.test_forks_and_exit import in_child
from tests.faults.harness import as_release
from tests.pauses import Pause, alarm, during, wait_until

pytestmark = not_under_tsan

WANTED = 0x6ABB_0000_0000
GIB = 2**30
PIECE = 64 * MIB
KEPT = 8
"""Ranges of PIECE bytes that fit into the free addresses that a driver begins with."""


@pytest.fixture
def cuda(sim: Simulator) -> Iterator[Simulator]:
    """The simulator with CUDA's rule, which begins with 512 MiB of free addresses."""
    with as_release(sim, "7.2.53211", "free_blocks_first"):
        yield sim
        assert sim.alive() == set()


def change_of(sim: Simulator, *rows: row.Row, layout: str = "p", **plan: Any) -> tuple[_core.Holdings, _core.Change]:
    book = _core.LeaseBook()
    holdings = _core.Holdings(_core.Retired(sim.runtime, book, layout), book)
    return holdings, _core.Change(holdings, _core.Rows(rows), slots=len(rows), **plan)


def exact(size: int = PIECE, at: int = WANTED, slot: int = 0) -> row.Row:
    return row.reserve(slot, size, at=at, exact=True)


def free_block(sim: Simulator, size: int) -> int:
    """Makes free addresses of so many bytes; returns where they begin."""
    holdings = holding(sim.runtime, [row.reserve(0, size)])
    address = snapshot_of(holdings).address(0)
    close(holdings)
    return address


def calls_while(sim: Simulator, act: Callable[[], object]) -> int:
    sim.runtime.arm_faults("*@100000000=999")
    try:
        act()
        return sim.runtime.calls_counted()
    finally:
        sim.runtime.arm_faults("")


def refused(sim: Simulator, wanted: row.Row, *, gives_up: float = float("inf")) -> tuple[str, int]:
    """Why an address cannot be had, and how many ranges were reserved until then. Nothing is left."""
    holdings, change = change_of(sim, wanted)
    messages = []

    def advance() -> None:
        with pytest.raises(_core.AddressTaken) as caught:
            while change.done < 1:
                change.advance(1, gives_up)
        messages.append(str(caught.value))

    calls = calls_while(sim, advance)
    change.roll_back()
    assert not free_retired(holdings).leaks
    return messages[0], (calls + 1) // 2  # all but the last one are freed within the row


def test_an_address_is_had_after_more_than_1000_tries(cuda: Simulator) -> None:
    free_block(cuda, 1500 * 2 * MIB)
    holdings, change = change_of(cuda, exact(2 * MIB))
    calls = calls_while(cuda, lambda: row.advance(change, 1))
    assert calls == 2 * (256 + 1500) + 1
    assert cuda.alive() == {("reservation", hex(WANTED))}
    change.commit(None)
    assert snapshot_of(holdings).address(0) == WANTED
    assert close(holdings).freed == 1


def test_an_address_that_is_preferred_is_searched_too(cuda: Simulator) -> None:
    holdings = holding(cuda.runtime, [row.reserve(0, PIECE, at=WANTED)])
    assert snapshot_of(holdings).address(0) == WANTED
    close(holdings)


def test_several_rows_have_their_addresses_at_once(cuda: Simulator) -> None:
    places = [WANTED + n * GIB for n in range(5)]
    rows = [exact(2 * MIB, at, slot) for slot, at in enumerate(places)]
    holdings = holding(cuda.runtime, rows)
    assert [snapshot_of(holdings).address(slot) for slot in range(5)] == places
    close(holdings)


def test_an_address_inside_free_addresses_is_had(cuda: Simulator) -> None:
    """The driver gives free addresses from their beginning, and a range that it gives may reach into the wanted one."""
    begin = free_block(cuda, 4 * GIB)
    for at in (begin, begin + PIECE, begin + 10 * MIB, begin + 4 * GIB - PIECE):
        holdings = holding(cuda.runtime, [exact(at=at)])
        assert snapshot_of(holdings).address(0) == at
        close(holdings)


def test_an_address_half_of_which_the_driver_keeps_is_refused(cuda: Simulator) -> None:
    begin = free_block(cuda, 4 * GIB)
    why, tries = refused(cuda, exact(at=begin - 2 * MIB))
    assert f"free addresses from {begin:#x} on, but none before" in why or "there" in why
    assert tries <= KEPT + 1


def test_the_number_of_tries_is_bounded(cuda: Simulator) -> None:
    assert refused(cuda, exact(4096)) == ("the driver placed it elsewhere 65536 times", 65536)


def test_the_addresses_that_a_search_keeps_are_bounded(cuda: Simulator) -> None:
    size = 512 * GIB
    free_block(cuda, 20 * size)
    why, tries = refused(cuda, exact(size))
    assert why == "the driver placed it elsewhere 16 times, in 8 TiB of addresses"
    assert tries == 16


def test_a_search_gives_up_at_its_deadline(cuda: Simulator) -> None:
    why, tries = refused(cuda, exact(), gives_up=time.monotonic())
    assert why == "the driver placed it elsewhere 1 time, until the time for the change was over"
    assert tries == 1


def test_addresses_that_the_driver_refuses_are_not_tried_for_long(sim: Simulator, cuda: Simulator) -> None:
    """What another library has reserved looks like the driver's free addresses."""
    for size in (PIECE, 4 * GIB):
        with reserved_by_others(WANTED):
            why, tries = refused(cuda, exact(size))
        assert why == f"the driver had no other free addresses, and placed it elsewhere {tries} times"
        assert 16 <= tries < 200


@contextlib.contextmanager
def reserved_by_others(address: int, protection: int = 0) -> Iterator[None]:
    """A page that something else in this process has mapped."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    map_fixed_no_replace = 0x100000
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | map_fixed_no_replace
    got = libc.mmap(ctypes.c_void_p(address), ctypes.c_size_t(4096), protection, flags, -1, ctypes.c_long(0))
    assert got == address
    try:
        yield
    finally:
        libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(4096))


WITHIN = WANTED + 6 * MIB
"""Within a step of 32 MiB: CUDA gets addresses from the next step on when it is asked for this one."""


@pytest.mark.parametrize("at", [WITHIN, WANTED + 30 * MIB, WANTED + 2 * MIB])
def test_an_address_within_a_step_is_had_behind_a_lead(at: int, cuda: Simulator) -> None:
    holdings = holding(cuda.runtime, [exact(2 * MIB, at)])
    assert snapshot_of(holdings).address(0) == at
    assert cuda.alive() == {("reservation", hex(at))}
    first = holding(cuda.runtime, [exact(2 * MIB, WANTED)]) if at > WANTED else holdings  # the lead was freed
    close(first)
    close(holdings)


def test_ranges_within_one_step_are_had_in_any_order(cuda: Simulator) -> None:
    places = [WANTED + n * 6 * MIB for n in (3, 0, 4, 1, 2)]
    holdings = holding(cuda.runtime, [exact(6 * MIB, at, slot) for slot, at in enumerate(places)])
    assert [snapshot_of(holdings).address(slot) for slot in range(5)] == places
    close(holdings)


def test_a_large_range_within_a_step_is_refused(cuda: Simulator) -> None:
    why, tries = refused(cuda, exact(PIECE, WITHIN))
    assert why == (
        f"the driver has free addresses from {WANTED + 32 * MIB:#x} on, but none before; "
        "CUDA gives a range that passes a multiple of 32 MiB only an address that is one"
    )
    assert tries == KEPT + 1


def test_an_address_whose_lead_is_taken_is_refused(cuda: Simulator) -> None:
    with reserved_by_others(WANTED):
        why, tries = refused(cuda, exact(2 * MIB, WITHIN))
    assert why == f"the driver had no other free addresses, and placed it elsewhere {tries} times"


TRIES_WITHIN = 256 + 1 + 1 + 1
"""The free addresses; a range in the next step; the lead; the range."""


@pytest.mark.parametrize("failing", [1, 256, *range(257, TRIES_WITHIN + 1)])
def test_whichever_try_within_a_step_fails_nothing_is_left(failing: int, cuda: Simulator) -> None:
    holdings, change = change_of(cuda, exact(2 * MIB, WITHIN))
    cuda.runtime.arm_faults(f"hipMemAddressReserve@{failing}=hipErrorOutOfMemory")
    with pytest.raises(_core.HipError):
        row.advance(change, 1)
    cuda.runtime.arm_faults("")
    assert (cuda.alive(), change.failed, change.done) == (set(), True, 0)
    change.roll_back()
    assert free_retired(holdings).freed == 0


def test_a_lead_that_cannot_be_freed_is_reported(cuda: Simulator) -> None:
    begin = WANTED + 100 * GIB  # what is not freed counts as taken until the process ends
    holdings, change = change_of(cuda, exact(2 * MIB, begin + 6 * MIB))
    cuda.runtime.arm_faults("hipMemAddressFree@1=999")  # what was kept last is freed first
    row.advance(change, 1)
    cuda.runtime.arm_faults("")
    assert cuda.alive() == {("reservation", hex(begin)), ("reservation", hex(begin + 6 * MIB))}
    change.commit(None)
    assert [leak.identity.split()[-1] for leak in free_retired(holdings).leaks] == [hex(begin)]
    close(holdings)
    cuda.free_everything()


def test_addresses_of_another_layout_are_named_without_a_search(cuda: Simulator) -> None:
    holdings, change = change_of(cuda, exact(), layout="first")
    row.advance(change, 1)
    change.commit(None)
    for at, size in ((WANTED, 2 * MIB), (WANTED + PIECE - 4096, PIECE), (WANTED - 2 * MIB, 4 * GIB)):
        why, tries = refused(cuda, exact(size, at))
        assert why == f"the layout 'first' has 'range' there, from {WANTED:#x} to {WANTED + PIECE:#x}"
        assert tries == 1
    for at in (WANTED - PIECE, WANTED + PIECE):
        close(holding(cuda.runtime, [exact(at=at)]))
    close(holdings)
    close(holding(cuda.runtime, [exact()]))


def test_memory_of_the_process_is_named_without_a_search(cuda: Simulator) -> None:
    with reserved_by_others(WANTED, mmap.PROT_READ):
        why, tries = refused(cuda, exact())
    assert why == f"the process has memory without a name there, from {WANTED:#x} to {WANTED + 4096:#x}"
    assert tries == 1
    code = next(line for line in Path("/proc/self/maps").read_text().splitlines() if "r-xp" in line and "libc" in line)
    begin = int(code.split("-")[0], 16)
    why, tries = refused(cuda, exact(at=begin))
    assert re.fullmatch(rf"the process has /\S*libc\S* there, from {begin:#x} to 0x[0-9a-f]+", why)
    assert tries == 1


@pytest.mark.parametrize(
    ("at", "why"),
    [
        (WANTED + 1234, "the address is no multiple of 4096 bytes"),
        (2**57, "no process has such addresses"),
        (2**57 - PIECE + 4096, "no process has such addresses"),
        (2**64 - 4096, "no process has such addresses"),
    ],
)
def test_an_address_that_no_process_has_is_not_searched(at: int, why: str, cuda: Simulator) -> None:
    assert refused(cuda, exact(at=at)) == (why, 1)


def test_a_preferred_address_that_is_taken_is_not_searched(cuda: Simulator) -> None:
    holdings = holding(cuda.runtime, [exact()])
    other, change = change_of(cuda, row.reserve(0, PIECE, at=WANTED))
    assert calls_while(cuda, lambda: row.advance(change, 1)) == 1
    change.commit(None)
    assert snapshot_of(other).address(0) != WANTED
    close(other)
    close(holdings)


@pytest.mark.parametrize("failing", range(1, KEPT + 2))
def test_whichever_try_fails_nothing_is_left(failing: int, cuda: Simulator) -> None:
    holdings, change = change_of(cuda, exact())
    cuda.runtime.arm_faults(f"hipMemAddressReserve@{failing}=hipErrorOutOfMemory")
    with pytest.raises(_core.HipError, match="'range' of 67108864 bytes"):
        row.advance(change, 1)
    cuda.runtime.arm_faults("")
    assert (cuda.alive(), change.failed, change.done) == (set(), True, 0)
    change.roll_back()
    assert free_retired(holdings).freed == 0
    close(holding(cuda.runtime, [exact()]))  # the turn was ended


@pytest.mark.parametrize("end", ["commit", "roll back"])
@pytest.mark.parametrize("failing", range(1, KEPT + 1))
def test_what_cannot_be_freed_is_reported(failing: int, end: str, cuda: Simulator) -> None:
    holdings, change = change_of(cuda, exact())
    cuda.runtime.arm_faults(f"hipMemAddressFree@{failing}=999")
    row.advance(change, 1)
    cuda.runtime.arm_faults("")
    left = [address for noun, address in cuda.alive() if address != hex(WANTED)]
    assert len(left) == 1
    change.commit(None) if end == "commit" else change.roll_back()
    leaks = free_retired(holdings).leaks
    assert [(leak.name, leak.identity.split()[-1]) for leak in leaks] == [("range", left[0])]
    close(holdings)
    cuda.free_everything()


def test_all_that_cannot_be_freed_is_reported(cuda: Simulator) -> None:
    holdings, change = change_of(cuda, exact(), exact(at=WANTED + GIB, slot=1))
    cuda.runtime.arm_faults("hipMemAddressFree@1+=999")
    row.advance(change, 2)
    cuda.runtime.arm_faults("")
    left = {address for _, address in cuda.alive()} - {hex(WANTED), hex(WANTED + GIB)}
    assert len(left) >= KEPT
    change.roll_back()
    assert {leak.identity.split()[-1] for leak in free_retired(holdings).leaks} == left
    cuda.free_everything()


@contextlib.contextmanager
def on_alarm(handler: Callable[[], object]) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, lambda number, frame: handler())
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)


def stop() -> None:
    raise TimeoutError


def test_a_change_that_is_dropped_in_a_search_leaves_nothing(cuda: Simulator) -> None:
    free_block(cuda, 500 * GIB)
    _, change = change_of(cuda, exact(4096))
    change.advance(1)
    assert (change.searching, change.done, change.failed) == (True, 0, False)
    assert len(cuda.alive()) > 1
    del change
    gc.collect()
    assert cuda.alive() == set()
    close(holding(cuda.runtime, [exact()]))  # the turn was ended


def test_a_roll_back_in_a_search_leaves_nothing(cuda: Simulator) -> None:
    free_block(cuda, 500 * GIB)
    holdings, change = change_of(cuda, exact(4096))
    change.advance(1)
    assert change.searching
    change.roll_back()
    assert not change.searching
    assert free_retired(holdings).freed == 1
    assert cuda.alive() == set()
    close(holding(cuda.runtime, [exact()]))


def test_an_interrupt_ends_a_search(cuda: Simulator, tmp_path: Path) -> None:
    holdings, change = change_of(cuda, exact(), timed=True)
    with on_alarm(stop), during(cuda, tmp_path, "hipMemAddressReserve@5", alarm), pytest.raises(TimeoutError):
        row.advance(change, 1)
    assert (len(cuda.alive()), change.failed, change.done) == (1, False, 0)  # the slot has the last one
    change.roll_back()
    assert free_retired(holdings).freed == 1
    close(holding(cuda.runtime, [exact()]))


def test_a_search_goes_on_after_a_signal(cuda: Simulator, tmp_path: Path) -> None:
    handled = []
    holdings, change = change_of(cuda, exact(), timed=True)
    before = time.monotonic_ns()
    with on_alarm(lambda: handled.append(len(cuda.alive()))), during(cuda, tmp_path, "hipMemAddressReserve@5", alarm):
        row.advance(change, 1)
    assert len(handled) == 1
    assert 5 <= handled[0] <= KEPT  # in the middle of the search
    began, took, _ = change.time_of(0)
    assert before <= began <= began + took <= time.monotonic_ns()
    assert took >= 20_000_000  # the call that was under way
    change.commit(None)
    close(holdings)


def test_a_handler_may_search_while_its_thread_does(cuda: Simulator, tmp_path: Path) -> None:
    inner = []

    def make() -> None:
        inner.append(holding(cuda.runtime, [exact(at=WANTED + GIB)]))

    outer, change = change_of(cuda, exact())
    with on_alarm(make), during(cuda, tmp_path, "hipMemAddressReserve@5", alarm):
        row.advance(change, 1)
    change.commit(None)
    assert cuda.alive() == {("reservation", hex(WANTED)), ("reservation", hex(WANTED + GIB))}
    close(inner[0])
    close(outer)


def test_a_handler_may_close_what_its_thread_makes(cuda: Simulator, tmp_path: Path) -> None:
    holdings, change = change_of(cuda, exact())
    with (
        on_alarm(lambda: holdings.close(False)),
        during(cuda, tmp_path, "hipMemAddressReserve@5", alarm),
        pytest.raises(RuntimeError, match="decided"),
    ):
        row.advance(change, 1)
    assert free_retired(holdings).freed == 1
    assert cuda.alive() == set()
    close(holding(cuda.runtime, [exact()]))


def test_a_handler_may_fork_while_its_thread_searches(cuda: Simulator, tmp_path: Path) -> None:
    codes = []
    holdings, change = change_of(cuda, exact())

    def fork() -> None:
        codes.append(in_child(lambda: 7))

    with on_alarm(fork), during(cuda, tmp_path, "hipMemAddressReserve@5", alarm):
        row.advance(change, 1)
    assert codes == [7]
    change.commit(None)
    close(holdings)


def test_a_child_that_was_forked_in_a_search_drops_it(cuda: Simulator, tmp_path: Path) -> None:
    holdings, change = change_of(cuda, exact())
    in_parent, code = os.getpid(), []

    def fork() -> None:
        child = os.fork()
        if child:
            code.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    try:
        with on_alarm(fork), during(cuda, tmp_path, "hipMemAddressReserve@5", alarm):
            row.advance(change, 1)
    except RuntimeError as error:
        if os.getpid() == in_parent:
            raise
        del holdings, change
        os._exit(7 if "forked" in str(error) else 1)
    finally:
        if os.getpid() != in_parent:
            os._exit(2)
    assert code == [7]
    change.commit(None)
    close(holdings)


def sleeps(thread: threading.Thread) -> bool:
    """Whether a thread waits for something."""
    state = Path(f"/proc/self/task/{thread.native_id}/stat").read_text() if thread.native_id else ""
    return " S " in state


def test_another_thread_that_wants_a_kept_address_waits(cuda: Simulator, tmp_path: Path) -> None:
    begin = free_block(cuda, PIECE * (KEPT + 1))
    made: list[Any] = []

    def want() -> None:
        made.append(holding(cuda.runtime, [exact(at=begin)]))

    other = threading.Thread(target=want)
    seen: list[tuple[int, int]] = []

    def start() -> None:
        other.start()
        wait_until(lambda: sleeps(other), "the other thread waits")
        seen.append((len(cuda.alive()), len(made)))

    holdings, change = change_of(cuda, exact())
    with during(cuda, tmp_path, f"hipMemAddressReserve@{2 * KEPT + 2}", start):
        row.advance(change, 1)
    other.join()
    assert seen == [(2 * KEPT + 1, 0)]
    change.commit(None)
    assert snapshot_of(made[0]).address(0) == begin
    close(made[0])
    close(holdings)


def test_two_threads_have_their_addresses(cuda: Simulator) -> None:
    wrong: list[BaseException] = []

    def work(at: int) -> None:
        try:
            for _ in range(20):
                holdings = holding(cuda.runtime, [exact(2 * MIB, at), exact(8 * MIB, at + GIB, slot=1)])
                close(holdings)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(WANTED + n * 4 * GIB,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_an_interrupt_ends_the_wait_for_another_thread_s_search(cuda: Simulator, tmp_path: Path) -> None:
    """The main thread waits for its turn, and its handler is called all the same."""
    holdings, change = change_of(cuda, exact())
    waiting, wanted = change_of(cuda, exact(at=WANTED + GIB))
    other = threading.Thread(target=lambda: row.advance(change, 1))
    pause = Pause(tmp_path, "hipMemAddressReserve@5")
    main, waits = threading.current_thread(), threading.Event()

    def interrupt() -> None:
        waits.wait()
        wait_until(lambda: sleeps(main), "the main thread waits")
        alarm()

    interrupting = threading.Thread(target=interrupt)
    cuda.runtime.arm_faults(pause.rule)
    other.start()
    interrupting.start()
    with pause.under_way(), on_alarm(stop), pytest.raises(TimeoutError):
        waits.set()
        row.advance(wanted, 1)
    other.join()
    interrupting.join()
    cuda.runtime.arm_faults("")
    assert wanted.done == 0
    wanted.roll_back()
    assert free_retired(waiting).freed == 0
    change.commit(None)
    close(holdings)
