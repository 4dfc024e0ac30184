"""What a layout holds in a forked child, and when the interpreter ends."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable

import pytest

from hipplan import _core
from tests.conftest import Simulator
from tests.cpp import some_rows as row
from tests.cpp.some_rows import MAPPED, SOME_OF_EVERYTHING, begin, close, free_retired, holding, snapshot_of


def in_child(work: Callable[[], object]) -> int:
    """The exit code of a forked child that does it: 99 for an exception, 98 if it hangs."""
    child = os.fork()
    if child == 0:  # no pytest machinery here
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(60)
            code = work()
            os._exit(code if isinstance(code, int) else 0)
        except BaseException:
            os._exit(99)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def test_a_forked_child_gives_nothing_back(sim: Simulator) -> None:
    held = [holding(sim.runtime, SOME_OF_EVERYTHING)]
    before = sim.alive()
    sim.runtime.arm_faults("*@1000000=999")  # counts

    def drop() -> int:
        held.clear()
        gc.collect()
        return len(_core.take_leaks()) + sim.runtime.calls_counted()

    assert in_child(drop) == 0
    assert sim.alive() == before
    assert sim.read(snapshot_of(held[0]).address(6), 4) == b"\0\0\0\0"
    close(held[0])


def test_a_forked_child_makes_no_driver_call_whatever_it_does(sim: Simulator) -> None:
    holdings = holding(sim.runtime, MAPPED)
    rows = [row.rights(2, ((0, "r"),), row.RW), row.stream(3)]
    change = _core.Change(holdings, _core.Rows(rows), slots=4, same_slots=3)
    change.advance(1)
    sim.runtime.arm_faults("*@1000000=999")

    def go_on() -> int:
        with contextlib.suppress(RuntimeError):
            change.advance(2)
        return sim.runtime.calls_counted() * 2 + (change.done != 1)

    def roll_back() -> int:
        change.roll_back()
        free_retired(holdings)
        holdings.close(True)
        free_retired(holdings)
        return sim.runtime.calls_counted()

    def commit() -> int:
        with contextlib.suppress(RuntimeError):
            change.commit(None)
        free_retired(holdings)
        return sim.runtime.calls_counted()

    for work in (go_on, roll_back, commit):
        assert in_child(work) == 0
    row.advance(change, 2)
    change.commit(None)
    assert close(holdings).freed == 4


def test_a_child_does_not_wait_for_what_a_thread_of_its_parent_has_locked(sim: Simulator) -> None:
    """The thread is not in the child."""
    holdings = holding(sim.runtime, [row.memory(0, shared=True)])
    kept = [holdings, begin(holdings, [row.device_buffer(1)], 2, same_slots=1)]
    descriptors: list[int] = []
    sim.runtime.arm_faults("hipMemExportToShareableHandle@1=delay:1000")
    snapshot = snapshot_of(holdings)
    thread = threading.Thread(target=lambda: descriptors.append(snapshot.share(0)))
    thread.start()
    while not sim.runtime.calls_counted():
        time.sleep(0.001)
    del holdings

    def drop() -> None:
        while kept:
            kept.pop()

    code = in_child(drop)
    thread.join()
    os.close(*descriptors)
    kept[1].commit(None)
    close(kept[0])
    assert code == 0


def test_nothing_waits_in_a_child_for_what_a_thread_of_its_parent_has_locked(sim: Simulator) -> None:
    """All of it is the parent's: it does nothing, or is refused."""
    holdings = holding(sim.runtime, [row.memory(0, shared=True)])
    change = begin(holdings, [row.device_buffer(1)], 2, same_slots=1)
    snapshot, making = snapshot_of(holdings), snapshot_of(change)
    refused: list[Callable[[], object]] = [
        lambda: snapshot_of(holdings),
        lambda: 0 in making,
        lambda: making.address(0),
        lambda: making.size_bytes(0),
        lambda: making.handle(0),
        lambda: making.stream_handle(0),
        lambda: making.share(0),
        lambda: making.read_back(_core.Rows([row.memory(0)]), [0]),
        lambda: change.bind({}),
        lambda: change.bar(),
        lambda: change.advance(1),
        lambda: change.commit("wrong"),
        lambda: begin(holdings, [], 0),
    ]
    descriptors: list[int] = []
    sim.runtime.arm_faults("hipMemExportToShareableHandle@1=delay:1000")
    thread = threading.Thread(target=lambda: descriptors.append(snapshot.share(0)))
    thread.start()
    while not sim.runtime.calls_counted():
        time.sleep(0.001)
    calls = sim.runtime.calls_counted()

    def use_everything() -> bool:
        for use in refused:
            with pytest.raises(RuntimeError, match="fork"):
                use()
        retired = holdings.retired
        assert (retired.any, retired.freeable, retired.waits, retired.contents()) == (False, False, False, [])
        change.roll_back()
        retired.set_devices([])
        free_retired(holdings)
        assert (holdings.close(True), holdings.closed, holdings.state) == ([], True, None)
        return sim.runtime.calls_counted() != calls

    code = in_child(use_everything)
    thread.join()
    os.close(*descriptors)
    change.commit(None)
    close(holdings)
    assert code == 0


def test_a_forked_child_does_not_report_its_parents_leaks(sim: Simulator) -> None:
    holdings = holding(sim.runtime, [row.device_buffer(0, "lost")])
    sim.runtime.arm_faults("hipFree@1=hipErrorUnknown")
    del holdings

    assert in_child(lambda: len(_core.take_leaks())) == 0
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
        from hipplan.machines.runtimes import choose
        from tests.cpp import some_rows as row
        runtime = choose("sim").runtime
        holdings = row.holding(runtime, [row.device_buffer(0)])
        changing = row.begin(row.holding(runtime, [row.stream(0)]), [row.device_buffer(1)], 2, same_slots=1)
        closed = row.holding(runtime, [row.pinned(0)])
        closed.close(False)
        _core.shutdown()
        del holdings, changing, closed
        import json
        ledger = json.loads(runtime.ledger())
        print(len(ledger["buffers"]), len(ledger["streams"]), _core.take_leaks())
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=600)

    assert done.stdout.strip() == "3 1 []", done.stderr


def test_a_thread_that_lets_memory_go_when_the_interpreter_has_ended_ends_nothing() -> None:
    """It asks for the GIL, which Python up to 3.13 answers by ending the thread."""
    script = """
        import threading, time
        from hipplan import _core
        from hipplan.machines.runtimes import choose
        from tests.cpp import some_rows as row
        runtime = choose("sim").runtime
        holdings = row.nothing(runtime)
        rows = [row.registered(slot, bound=True) for slot in range(50)]
        change = _core.Change(holdings, _core.Rows(rows), slots=50)
        change.bind({slot: (bytearray(4096), 4096) for slot in range(50)})
        row.advance(change, 50)
        change.commit(None)
        runtime.arm_faults("hipHostUnregister@1+=delay:20")
        holdings.close(False)
        threading.Thread(target=row.free_retired, args=(holdings,), daemon=True).start()
        time.sleep(0.1)
        import hipplan.layout.open_layouts
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=600)

    assert (done.returncode, done.stderr) == (0, "")
