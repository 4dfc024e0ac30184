"""The native journal and its owners, seen from Python."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from hipplan import _core
from tests.conftest import Simulator

MIB = 2**20


def some_of_everything(journal: _core.Journal) -> dict[str, int]:
    """One entry of each kind, in an order that undo must reverse."""
    entries = {
        "link": journal.enable_peer("link", 0, 1),
        "memory": journal.create_allocation("memory", 2 * MIB, _core.AllocationProperties(1)),
        "range": journal.reserve("range", 4 * MIB, 0, 0),
        "stream": journal.create_stream("stream", 0),
        "device": journal.create_device_buffer("device", 1, MIB),
        "pinned": journal.create_pinned_buffer("pinned", 0, MIB, 0),
        "managed": journal.create_managed_buffer("managed", 0, MIB, 1),
    }
    entries["mapping"] = journal.map("mapping", entries["range"], 2 * MIB, entries["memory"], 2 * MIB)
    return entries


def test_a_journal_gives_back_everything_latest_first(sim: Simulator) -> None:
    journal = _core.Journal(sim.runtime)
    entries = some_of_everything(journal)
    assert len(journal) == len(entries) == 8
    assert len(sim.alive()) == 8
    report = _core.Undoing(journal).run()

    assert (report.undone, report.leaks, len(journal)) == (8, [], 0)
    assert sim.alive() == set()


def test_slow_calls_behind_quick_ones_do_not_keep_a_signal_waiting(sim: Simulator) -> None:
    journal = _core.Journal(sim.runtime)
    kept = [journal.create_stream("stream", 0) for _ in range(40)]  # slow to give back, and the last to be
    for _ in range(130):
        journal.create_device_buffer("buffer", 0, 4096)
    slow = "; ".join(f"hipStreamDestroy@{n}=delay:10" for n in range(1, len(kept) + 1))
    sim.runtime.arm_faults(slow)
    undoing = _core.Undoing(journal)
    left = []

    def note(number: int, frame: object) -> None:
        left.append(len(journal))

    before = signal.signal(signal.SIGALRM, note)
    signal.setitimer(signal.ITIMER_REAL, 0.02)  # far less than all the slow ones take
    try:
        undoing.run()
    finally:
        signal.signal(signal.SIGALRM, before)

    assert left and left[0] > 0
    assert len(journal) == 0


def test_a_dropped_journal_gives_back_everything(sim: Simulator) -> None:
    journal = _core.Journal(sim.runtime)
    some_of_everything(journal)
    del journal
    gc.collect()

    assert sim.alive() == set()


def drop_with_a_leak(sim: Simulator) -> None:
    """What a journal of one buffer leaves to the leak log where hipFree fails."""
    journal = _core.Journal(sim.runtime)
    journal.create_device_buffer("lost", 0, MIB)
    sim.runtime.arm_faults("hipFree@1=hipErrorUnknown")
    del journal
    gc.collect()


def test_a_dropped_journal_reports_to_the_leak_log(sim: Simulator) -> None:
    drop_with_a_leak(sim)
    (line,) = _core.take_leaks()

    assert "device buffer 'lost' of 1048576 bytes at 0x" in line
    assert "hipFree(ptr=0x" in line
    assert "hipErrorUnknown (999)" in line
    sim.free_everything()


def test_one_entry_can_be_undone_wherever_it_stands(sim: Simulator) -> None:
    journal = _core.Journal(sim.runtime)
    entries = some_of_everything(journal)

    assert _core.Undoing.only(journal, [entries["mapping"]]).run().undone == 1
    assert _core.Undoing.only(journal, [entries["memory"]]).run().undone == 1
    assert len(journal) == 6
    with pytest.raises(IndexError):
        journal.address(entries["mapping"])
    _core.Undoing(journal).run()


def test_a_range_with_a_mapping_that_stayed_is_not_freed_under_it(sim: Simulator) -> None:
    journal = _core.Journal(sim.runtime)
    some_of_everything(journal)
    sim.runtime.arm_faults("hipMemUnmap@1=hipErrorInvalidValue")
    leaks = {leak.name: leak for leak in _core.Undoing(journal).run().leaks}

    assert set(leaks) == {"mapping", "range"}
    assert "not called: 1 mapping(s) inside are still mapped" in leaks["range"].arguments
    sim.free_everything()


def test_a_failed_call_adds_nothing_and_tells_all(sim: Simulator) -> None:
    journal = _core.Journal(sim.runtime)
    with pytest.raises(_core.HipError) as caught:
        journal.create_device_buffer("huge", 1, 2**60)
    error = caught.value

    assert (error.code, error.name, error.call) == (2, "hipErrorOutOfMemory", "hipMalloc")
    assert error.subject == f"device buffer 'huge' of {2**60} bytes"
    assert "on device 1" in error.arguments
    assert len(journal) == 0


def test_a_failed_call_leaves_no_last_error_for_others_to_find(sim: Simulator) -> None:
    import ctypes

    with pytest.raises(_core.HipError):
        _core.Journal(sim.runtime).create_device_buffer("huge", 0, 2**60)

    assert ctypes.CDLL(sim.runtime.path).hipGetLastError() == 0


def test_a_device_set_back_at_the_second_try_leaves_no_last_error(sim: Simulator) -> None:
    import ctypes

    hip = ctypes.CDLL(sim.runtime.path)
    hip.hipsim_fail(b"hipSetDevice@2=999")
    _core.Journal(sim.runtime).create_device_buffer("b", 1, 4096)
    hip.hipsim_fail(b"")

    assert hip.hipPeekAtLastError() == 0


def test_the_current_device_is_left_as_it_was(sim: Simulator) -> None:
    import ctypes

    hip, current = ctypes.CDLL(sim.runtime.path), ctypes.c_int()
    assert hip.hipSetDevice(1) == 0
    journal = _core.Journal(sim.runtime)
    journal.create_allocation("a", MIB, _core.AllocationProperties(0))
    journal.create_device_buffer("b", 0, MIB)
    _core.Undoing(journal).run()
    hip.hipGetDevice(ctypes.byref(current))
    hip.hipSetDevice(0)

    assert current.value == 1


def test_peer_access_that_was_on_is_not_ours_to_switch_off(sim: Simulator) -> None:
    theirs, ours = _core.Journal(sim.runtime), _core.Journal(sim.runtime)
    theirs.enable_peer("theirs", 0, 1)

    assert ours.enable_peer("ours", 0, 1) == 0
    assert _core.Undoing(ours).run().undone == 0
    assert sim.alive() == {("peer", "0->1")}
    _core.Undoing(theirs).run()


def test_entries_of_another_kind_are_refused(sim: Simulator) -> None:
    journal = _core.Journal(sim.runtime)
    entries = some_of_everything(journal)
    for wrong in (lambda: journal.handle(entries["range"]), lambda: journal.advise(entries["pinned"], 0, 1, 1, 0),
                  lambda: journal.map("m", entries["memory"], 0, entries["memory"], MIB),
                  lambda: journal.address(999), lambda: journal.address(entries["stream"])):  # fmt: skip
        with pytest.raises(IndexError):
            wrong()
    assert len(journal) == 8
    _core.Undoing(journal).run()


def test_driver_calls_release_the_gil(sim: Simulator) -> None:
    def ticks_during(delay_ms: int) -> int:
        sim.runtime.arm_faults(f"hipMalloc@1=delay:{delay_ms}")
        journal = _core.Journal(sim.runtime)
        thread = threading.Thread(target=journal.create_device_buffer, args=("slow", 0, MIB))
        thread.start()
        ticks = 0
        while thread.is_alive():
            time.sleep(0.01)
            ticks += 1
        thread.join()
        _core.Undoing(journal).run()
        return ticks

    # On a busy machine this thread may get no turn while the call is slow; where the GIL is held it never does.
    assert any(ticks_during(delay_ms) >= 10 for delay_ms in (400, 4_000, 20_000))


def test_a_journal_is_safe_from_several_threads(sim: Simulator) -> None:
    journal = _core.Journal(sim.runtime)

    def work(number: int) -> None:
        for turn in range(50):
            entry = journal.create_device_buffer(f"{number}.{turn}", number % 2, 4096)
            if turn % 2:
                _core.Undoing.only(journal, [entry]).run()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(journal) == 8 * 25
    assert _core.Undoing(journal).run().undone == 8 * 25


def test_host_memory_that_is_still_registered_stays_mapped(sim: Simulator) -> None:
    journal = _core.Journal(sim.runtime)
    region = journal.map_anonymous("memory", 1 << 26, -1, 0)
    address = journal.address(region)
    journal.register_buffer("registered", 0, address, 1 << 26, 0, region)
    sim.runtime.arm_faults("hipHostUnregister@1=hipErrorUnknown")
    assert [leak.name for leak in _core.Undoing(journal).run().leaks] == ["registered"]

    ctypes.memset(address, 1, 1 << 26)  # a segmentation fault, were it not there
    assert sim.alive() == {("buffer", hex(address))}
    sim.free_everything()


def test_a_forked_child_gives_nothing_back(sim: Simulator) -> None:
    journal = _core.Journal(sim.runtime)
    some_of_everything(journal)
    before = sim.alive()
    child = os.fork()
    if child == 0:  # no pytest machinery here: only the journal's own destructor, and out
        del journal
        gc.collect()
        os._exit(len(_core.take_leaks()))
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert sim.alive() == before
    assert sim.runtime.read(journal.address(6), 4) == b"\0\0\0\0"
    _core.Undoing(journal).run()


def test_a_forked_child_does_not_tell_of_its_parents_leaks(sim: Simulator) -> None:
    drop_with_a_leak(sim)
    if (child := os.fork()) == 0:
        os._exit(len(_core.take_leaks()))
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert len(_core.take_leaks()) == 1
    sim.free_everything()


def test_interpreter_exit_gives_everything_back() -> None:
    script = """
        import hipplan
        layout = hipplan.apply("plans/quickstart.yaml", runtime="sim")
    """
    env = os.environ | {"HIPSIM_LEDGER_AT_EXIT": "/dev/stdout"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=600, env=env
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert '"allocations": []' in done.stdout
    assert '"mappings": []' in done.stdout


def test_nothing_calls_the_driver_after_shutdown() -> None:
    script = """
        from hipplan import _core
        from hipplan.runtimes import choose
        runtime = choose("sim").runtime
        journal = _core.Journal(runtime)
        journal.create_device_buffer("left", 0, 4096)
        _core.shutdown()
        del journal
        import json
        print(len(json.loads(runtime.ledger())["buffers"]), _core.take_leaks())
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=600)

    assert done.stdout.strip() == "1 []"


WITHOUT_MEMORY = """
import json, resource, sys
from hipplan import _core
from hipplan.runtimes import choose

runtime = choose("sim").runtime
journal = _core.Journal(runtime)
made = [journal.create_stream("s", 0) for _ in range(6000)]
_core.Undoing.only(journal, made[::2]).run()  # a list of what is left takes more than a list of neighbours
undoing = _core.Undoing.all_but(journal, _core.LeaseBook()) if sys.argv[1] == "all_but" else _core.Undoing(journal)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used, resource.RLIM_INFINITY))
hoard, size = [], 1 << 24
while size >= 4096:  # less than the list of 3000 entries takes
    try:
        hoard.append(bytearray(size))
    except MemoryError:
        size //= 2
try:
    undoing.run()
except MemoryError:
    told = len(journal)
hoard.clear()
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
report = undoing.run()
print(told, report.undone, len(report.leaks), len(journal), len(json.loads(runtime.ledger())["streams"]))
"""


@pytest.mark.skipif("HIPPLAN_SANITIZER" in os.environ, reason="sanitizers need address space of their own")
@pytest.mark.parametrize("which", ["since", "all_but"])
def test_no_memory_for_what_to_undo_loses_nothing_of_it(which: str) -> None:
    line = [sys.executable, "-c", WITHOUT_MEMORY, which]
    done = subprocess.run(line, capture_output=True, text=True, timeout=600)

    assert done.stdout.split() == ["3000", "3000", "0", "0", "0"], done.stderr


SHORT_FOR_A_WHILE = """
import json, logging, resource, signal
import hipplan

logging.basicConfig()
def plan(every):  # a list of what is left takes more than a list of neighbours
    buffers = {f"b{n}": {"kind": "device", "device": "gpu", "size": 4096} for n in range(0, 6000, every)}
    return {"hipplan": 1, "devices": {"gpu": {}}, "buffers": buffers}

layout = hipplan.apply(plan(1), runtime="sim", verify=False)
layout.update(plan(2))

def end(*_):
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    hoard.clear()

signal.signal(signal.SIGALRM, end)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used, resource.RLIM_INFINITY))
hoard, size = [], 1 << 24
while size >= 4096:
    try:
        hoard.append(bytearray(size))
    except MemoryError:
        size //= 2
signal.setitimer(signal.ITIMER_REAL, 0.3)
undone = layout.close()
print(undone.count, len(undone.failures), undone.interrupt, len(json.loads(layout.runtime.ledger())["buffers"]))
"""


@pytest.mark.skipif("HIPPLAN_SANITIZER" in os.environ, reason="sanitizers need address space of their own")
def test_a_close_waits_for_memory_that_it_needs() -> None:
    done = subprocess.run([sys.executable, "-c", SHORT_FOR_A_WHILE], capture_output=True, text=True, timeout=600)

    assert (done.stdout.split(), done.stderr) == (["3000", "0", "None", "0"], "")
