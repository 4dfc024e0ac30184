"""Interrupts in a program that uses hipplan: ^C wherever it falls, threads, forks, and the end of the interpreter."""

from __future__ import annotations

import dis
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import hipplan
from hipplan import _core
from hipplan.errors import ApplyError
from hipplan.language.loader import load
from hipplan.layout.options import Options
from hipplan.layout.prepare import prepare
from hipplan.layout.record import Recorder
from hipplan.layout.run import run
from hipplan.machines.runtimes import choose
from tests.conftest import ROOT, WHOLE, Simulator
from tests.faults.counting import cut, points
from tests.pauses import LONG_S, Pause, during, interrupt, wait_until

pytestmark = pytest.mark.in_turns

QUICKSTART = ROOT / "plans" / "quickstart.yaml"
PACKAGE = str(ROOT / "hipplan")


POP_EXCEPT = dis.opmap["POP_EXCEPT"]


def _opcode(frame: FrameType) -> int:
    """The instruction that comes next."""
    return frame.f_code.co_code[frame.f_lasti]


@contextmanager
def interrupt_at(instruction: int) -> Iterator[list[int]]:
    """Raises KeyboardInterrupt before the n-th instruction that hipplan's own code runs; gives how many there were."""
    count = [0]

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        frame.f_trace_opcodes = True
        # Without a line it is the interpreter's own, such as the end of a generator without references, where
        # Python looks for no signals and drops what is raised. At POP_EXCEPT, where it looks for none either, it would
        # forever take the exception that was handled for one that still is, with the frames of its traceback.
        if event == "opcode" and frame.f_lineno is not None and _opcode(frame) != POP_EXCEPT:
            count[0] += 1
            if count[0] == instruction:
                raise KeyboardInterrupt
        return trace

    sys._getframe().f_trace_opcodes = True  # Python 3.12 tells of opcodes only if some frame wants them by now
    sys.settrace(trace)
    try:
        yield count
    finally:
        sys.settrace(None)


# What is interrupted with a record open closes it unasked, with a ResourceWarning.
@pytest.mark.in_parts
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("recorded", "places"),
    [(False, 1000), (True, 400)] if WHOLE else [(False, 300), (True, 150)],
    ids=["plain", "recorded"],
)
def test_an_interrupt_at_any_instruction_loses_nothing(
    recorded: bool, places: int, sim: Simulator, tmp_path: Path
) -> None:
    """Some of the thousands of places, with a fixed seed: before, inside and after apply, in the body and in close."""
    program = prepare(load(QUICKSTART), choose("sim"), None)

    def use(at: int) -> None:
        # A record each: pytest keeps the frames of a file that was opened, but not closed by an interrupted `with`.
        record = Recorder(tmp_path / f"record{at}") if recorded else None
        with run(program, sim.runtime, Options(record=record)) as layout:
            assert layout["table"].size

    with interrupt_at(0) as counted:
        use(0)
    whole = counted[0]
    assert whole > 3000
    points["interrupts between instructions"] += places
    cut["interrupts between instructions"] += whole - places
    for at in sorted(random.Random(5).sample(range(1, whole + 1), places)):
        with interrupt_at(at) as counted:
            try:
                use(at)
            except KeyboardInterrupt:
                pass
            else:  # or it ended before, because it did not have to wait so often
                assert counted[0] < at, f"instruction {at} of {whole}: the interrupt was swallowed"
        assert sim.alive() == set(), f"instruction {at} of {whole}"
    assert _core.take_leaks() == []


def test_a_storm_of_signals_loses_nothing() -> None:
    """Real signals at real times, so that they also fall into native code and into the roll back of another.

    In a process of its own: pytest's own code is not made for it.
    """
    done = subprocess.run([sys.executable, ROOT / "tests" / "interrupts" / "storm.py", "300"],
                          capture_output=True, text=True, timeout=600)  # fmt: skip

    assert done.returncode == 0, done.stderr
    rounds, interrupted, left = map(int, done.stdout.split())
    assert rounds == 300
    assert interrupted > 10  # how many depends on how busy the machine is
    assert left == 0


@pytest.mark.parametrize("then", ["apply", "close"])
def test_an_interrupt_of_what_waited_for_a_view_goes_on(then: str, sim: Simulator, tmp_path: Path) -> None:
    layout, other = (hipplan.apply(QUICKSTART, runtime="sim") for _ in range(2))
    view = memoryview(layout["staging"])
    assert layout.close(force=True).kept
    view.release()
    del view
    call = f"hipDeviceSynchronize@{1 if then == 'apply' else 3}"
    with during(sim, tmp_path, call, interrupt), pytest.raises(KeyboardInterrupt):
        hipplan.apply(QUICKSTART, runtime="sim") if then == "apply" else other.close()
    other.close()
    assert sim.alive() == set()


def test_what_the_body_raises_goes_on_unchanged(sim: Simulator) -> None:
    raised = RuntimeError("mine")
    with pytest.raises(RuntimeError) as caught, hipplan.apply(QUICKSTART, runtime="sim"):
        raise raised

    assert caught.value is raised
    assert raised.__cause__ is None
    assert sim.alive() == set()


def test_what_the_body_raises_goes_on_even_if_something_leaks(sim: Simulator, caplog: Any) -> None:
    with pytest.raises(RuntimeError, match="mine"), hipplan.apply(QUICKSTART, runtime="sim"):
        sim.runtime.arm_faults("hipFree@1=hipErrorUnknown")
        raise RuntimeError("mine")

    assert "'table'" in caplog.text
    sim.free_everything()


def test_an_interrupt_in_close_is_raised_when_all_is_freed(sim: Simulator, caplog: Any, tmp_path: Path) -> None:
    layout = hipplan.apply(QUICKSTART, runtime="sim")
    with during(sim, tmp_path, "hipMemUnmap@1", interrupt), pytest.raises(KeyboardInterrupt):
        layout.close()

    assert layout.closed
    assert "still releasing memory: please wait" in caplog.text
    assert sim.alive() == set()


def test_an_interrupt_ends_a_row_of_slow_calls_in_the_midst(sim: Simulator, tmp_path: Path) -> None:
    allocations = {"a": {"device": "gpu", "size": "2MiB", "count": 100}}
    plan = {"hipplan": 1, "devices": {"gpu": {"ordinal": 0}}, "allocations": allocations}
    program = prepare(load(plan), choose("sim"), None)
    trace = tmp_path / "trace"
    sim.runtime.trace_to(str(trace))
    with during(sim, tmp_path, "hipMemCreate@5", interrupt), pytest.raises(KeyboardInterrupt):
        run(program, sim.runtime)
    sim.runtime.trace_to("")

    assert trace.read_text().count('"hipMemCreate"') < 100
    assert sim.alive() == set()


def test_an_interrupt_in_close_does_not_hide_what_leaked(sim: Simulator, tmp_path: Path) -> None:
    layout = hipplan.apply(QUICKSTART, runtime="sim")
    leak = "hipFree@1=hipErrorUnknown"  # before the interrupt
    with during(sim, tmp_path, "hipMemUnmap@1", interrupt, leak), pytest.raises(KeyboardInterrupt) as caught:
        layout.close()

    assert isinstance(caught.value.__cause__, hipplan.LeakError)
    assert "'table'" in str(caught.value.__cause__)
    assert layout.closed
    sim.free_everything()


def test_what_was_given_up_on_does_not_make_anybody_wait_when_it_is_dropped(
    sim: Simulator, monkeypatch: pytest.MonkeyPatch, caplog: Any, tmp_path: Path
) -> None:
    monkeypatch.setenv("HIPPLAN_IDLE_NOTICE", "0.1")
    layout = hipplan.apply(QUICKSTART, runtime="sim")
    before = sim.alive()
    dropped = threading.Event()

    def act() -> None:
        wait_until(lambda: "is still busy" in caplog.text, "the word that the device is busy")
        interrupt()
        assert dropped.wait(LONG_S)

    with during(sim, tmp_path, "hipDeviceSynchronize@1", act):
        with pytest.raises(KeyboardInterrupt) as caught:
            layout.close()
        cause = caught.value.__cause__
        assert isinstance(cause, hipplan.LeakError) and "HP411" in str(cause)
        caught.value.__traceback__ = cause.__traceback__ = None
        del layout, caught, cause
        gc.collect()  # the end of the layout would wait for the device, and then give all back
        dropped.set()

    assert sim.alive() == before
    sim.free_everything()


def test_an_interrupt_is_only_suggested_where_it_works(
    sim: Simulator, monkeypatch: pytest.MonkeyPatch, caplog: Any, tmp_path: Path
) -> None:
    monkeypatch.setenv("HIPPLAN_IDLE_NOTICE", "0.1")
    layout = hipplan.apply(QUICKSTART, runtime="sim")
    message = "device 'gpu.0' is still busy after 0.1 s"
    with during(sim, tmp_path, "hipDeviceSynchronize@1", lambda: wait_until(lambda: caplog.text, message)):
        closing = threading.Thread(target=layout.close)
        closing.start()
        closing.join()

    assert message in caplog.text
    assert "Interrupt to" not in caplog.text
    assert layout.closed


@pytest.mark.skipif("thread" in os.environ.get("HIPPLAN_SANITIZER", ""), reason="ThreadSanitizer has a thread too")
def test_signals_are_never_delivered_to_threads_of_our_own() -> None:
    """The kernel would run the program's handler there, beside the main thread and within a driver call."""
    code = f"""
import os, hipplan, re
with hipplan.apply({str(ROOT / "plans" / "contents.yaml")!r}, runtime="sim"):
    pass
for task in os.listdir("/proc/self/task"):
    if int(task) != os.getpid():
        blocked = int(re.search("SigBlk:\\t(.*)", open(f"/proc/self/task/{{task}}/status").read())[1], 16)
        print(*(blocked >> (number - 1) & 1 for number in (1, 2, 15, 11)))  # SIGHUP, SIGINT, SIGTERM, SIGSEGV
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)

    assert set(done.stdout.splitlines()) == {"1 1 1 0"}


def test_a_program_that_never_closes_frees_when_it_ends(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    code = f"import hipplan; kept = [hipplan.apply({str(QUICKSTART)!r}, runtime='sim') for _ in range(2)]"
    environment = {**os.environ, "HIPSIM_TRACE": str(ledger)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    text = ledger.read_text()

    for made, given_back in (
        ("hipMemCreate", "hipMemRelease"),
        ("hipMemMap", "hipMemUnmap"),
        ("hipMallocManaged", "hipFree"),
    ):
        assert text.count(f'"{made}"') == text.count(f'"{given_back}"') > 0


def at_exit(tmp_path: Path, code: str, inside: Pause | None = None, after: str = "") -> tuple[str, str]:
    """stderr and trace of a program that ends with code 0.

    It gets ^C inside a driver call, or after it has said something.
    """
    trace, err = tmp_path / "trace", tmp_path / "err"
    begin = f"""
import hipplan, os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)
QUICKSTART = {str(QUICKSTART)!r}
"""
    environment = {**os.environ, "HIPSIM_TRACE": str(trace), "HIPPLAN_IDLE_NOTICE": "0.2"}
    with err.open("w") as file:
        process = subprocess.Popen([sys.executable, "-c", begin + code], env=environment, stderr=file)
    if inside or after:
        with inside.under_way() if inside else nullcontext():
            wait_until(lambda: after in err.read_text(), after)
            process.send_signal(signal.SIGINT)
    assert process.wait(600) == 0, err.read_text()
    return err.read_text(), trace.read_text()


def test_an_interrupt_at_exit_ends_no_closing(tmp_path: Path) -> None:
    pause = Pause(tmp_path, "hipMemUnmap@1")
    err, trace = at_exit(tmp_path, f"""
kept = [hipplan.apply(QUICKSTART, runtime="sim") for _ in range(3)]
kept[0].runtime.arm_faults({pause.rule!r})
""", inside=pause)  # fmt: skip

    assert "still releasing memory" in err
    assert "Traceback" not in err
    assert trace.count('"hipMemRelease"') == trace.count('"hipMemCreate"') == 12


def test_a_device_that_a_thread_waits_for_at_exit_can_be_given_up_on(tmp_path: Path) -> None:
    pause = Pause(tmp_path, "hipDeviceSynchronize@1")
    err, trace = at_exit(tmp_path, f"""
layout, other = [hipplan.apply(QUICKSTART, runtime="sim") for _ in range(2)]
layout.runtime.arm_faults({pause.rule!r})
def close():
    try:  # a daemon thread that writes its traceback while the interpreter ends can crash Python
        layout.close()
    except hipplan.HipplanError:
        pass
threading.Thread(target=close, daemon=True).start()
os.open({str(pause.fifo)!r}, os.O_WRONLY)  # the thread waits now, for ever
""", after="is still busy")  # fmt: skip

    assert "did not become idle: no longer waiting for it" in err
    assert trace.count('"hipMemRelease"') == 4  # the other one's


def test_a_thread_in_a_driver_call_does_not_crash_the_end_of_the_interpreter(tmp_path: Path) -> None:
    """Up to Python 3.13 the interpreter ends threads that ask for the GIL by then, by unwinding them."""
    pause = Pause(tmp_path, "hipMemCreate@1")
    err, _ = at_exit(tmp_path, f"""
from hipplan.machines.runtimes import choose
runtime = choose("sim").runtime
runtime.arm_faults({pause.rule!r})
threading.Thread(target=hipplan.apply, args=(QUICKSTART,), kwargs={{"runtime": "sim"}}, daemon=True).start()
class Slow:
    def __init__(self):
        self.writer = os.open({str(pause.fifo)!r}, os.O_WRONLY)  # the thread is in the call now
    def __del__(self, close=os.close, sleep=time.sleep):
        close(self.writer)
        sleep(1.0)  # the interpreter is at its end for so long
slow = Slow()
""")  # fmt: skip

    assert "terminate" not in err


def test_two_applies_at_once_do_not_harm_each_other(sim: Simulator) -> None:
    """Half of them fail somewhere, the other half must not notice."""
    program = prepare(load(QUICKSTART), choose("sim"), None)
    sim.runtime.arm_faults("hipMemMap@~0.1/7=hipErrorOutOfMemory; hipMalloc@~0.1/8=hipErrorOutOfMemory")
    outcomes: list[str] = []

    def work() -> None:
        for _ in range(20):
            try:
                with run(program, sim.runtime) as layout:
                    sim.runtime.write(layout["model[0]"].address, b"mine")
                    assert sim.runtime.read(layout["model[0]"].address, 4) == b"mine"
                outcomes.append("applied")
            except hipplan.ApplyError as error:
                outcomes.append("leaked" if error.leaks else "rolled back")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(outcomes) == 80
    assert set(outcomes) == {"applied", "rolled back"}
    assert sim.alive() == set()


def test_a_forked_child_neither_undoes_nor_crashes_and_the_parent_is_unharmed(sim: Simulator) -> None:
    layout = hipplan.apply(QUICKSTART, runtime="sim")
    address = layout["model[0]"].address
    sim.runtime.write(address, b"parent")
    before = sim.alive()
    closing = ExitStack()
    closing.enter_context(
        layout._holding.lock.taken()
    )  # as if a thread were closing it: the child must not wait for that thread
    child = os.fork()
    if child == 0:  # whatever goes wrong here must not run pytest a second time
        code = 1
        try:
            ok = layout.close().count == 0 and not layout.closed
            for use in (lambda: layout["model[0]"], layout.verify, lambda: layout.fill("staging", 1)):
                with pytest.raises((ValueError, BufferError), match="a layout of the parent process"):
                    use()
            del layout
            gc.collect()
            code = 0 if ok else 2
        finally:
            os._exit(code)
    closing.close()
    end = time.monotonic() + 300
    done, status = 0, 0
    while not done and time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)

    assert done == child and status == 0
    assert sim.alive() == before
    assert sim.runtime.read(address, 6) == b"parent"
    layout.close()


LETS_GO = """
import os, signal, threading, warnings
import hipplan

warnings.simplefilter("ignore")
layout = hipplan.apply("plans/quickstart.yaml", runtime="sim")
views = [memoryview(layout["staging"]) for _ in range(10_000)]
stop = False

def keep_asking():  # who is looking: with a lock, and long
    while not stop:
        try:
            layout.close()
        except hipplan.LayoutInUse:
            pass

thread = threading.Thread(target=keep_asking)
thread.start()
for _ in range(20):
    if not (child := os.fork()):
        signal.alarm(300)
        views[0].release()  # as the garbage collector of any child may
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
stop = True
thread.join()
views.clear()
print(layout.close().count)
"""


def test_a_forked_child_lets_go_of_views_whatever_a_thread_was_at() -> None:
    done = subprocess.run([sys.executable, "-c", LETS_GO], capture_output=True, text=True, timeout=600)

    assert (done.stdout, done.stderr) == ("13\n", "")


def test_a_forked_child_may_end_as_programs_do(tmp_path: Path) -> None:
    """sys.exit in the child runs its exit handlers; the parent's layout must not notice."""
    code = f"""
import os, sys, hipplan
layout = hipplan.apply({str(QUICKSTART)!r}, runtime="sim")
address = layout["model[0]"].address
layout.runtime.write(address, b"kept")
if os.fork() == 0:
    sys.exit(0)
assert os.wait()[1] == 0
assert layout.runtime.read(address, 4) == b"kept"
print(layout.close().count)
"""
    warning = "ignore:This process:DeprecationWarning"  # of Python 3.12 on, about threads that the driver has, too
    done = subprocess.run([sys.executable, "-W", warning, "-c", code], capture_output=True, text=True, check=True)

    assert done.stderr == ""
    assert int(done.stdout) == 13


def test_leaks_after_an_interrupt_are_reported(sim: Simulator) -> None:
    """Everything is freed, but the thread's current device has changed."""
    plan = {
        "hipplan": 1,
        "devices": {"gpu": {"count": 2}},
        "peers": [{"device": "gpu.1", "peer": "gpu.0"}],
        "buffers": {name: {"kind": "device", "device": "gpu.0", "size": 64} for name in ("a", "b")},
    }
    program = prepare(load(plan), choose("sim"), None)

    def stop(number: int, step: object) -> None:
        if number == 2:
            # Both devices are waited for, one is left for the link of the other, and set back, which is tried twice.
            sim.runtime.arm_faults("hipSetDevice@4+=hipErrorUnknown")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        run(program, sim.runtime, Options(on_step=stop))
    sim.free_everything()
    cause = caught.value.__cause__

    assert isinstance(cause, ApplyError)
    assert (cause.exit_code, cause.leaks) == (5, ())
    assert "current device could not be set back to 0" in str(cause)
