"""The end of the interpreter, and forks in unusual places."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interrupts.test_library import at_exit
from tests.pauses import Pause


def test_leaks_of_a_dropped_layout_are_reported_at_exit(tmp_path: Path) -> None:
    err, _ = at_exit(tmp_path, """
layout = hipplan.apply(QUICKSTART, runtime="sim")
layout.runtime.arm_faults("hipFree@1=hipErrorUnknown")
del layout
""")  # fmt: skip

    assert "not released: hipFree(" in err
    assert "'table'" in err


def test_a_fork_in_the_middle_of_the_first_import_waits_for_its_end() -> None:
    """Else what another thread was importing can never be imported in the child, which waits for ever."""
    done = subprocess.run([sys.executable, "-c", """
import os, signal, sys, threading, time
import hipplan
begun = threading.Event()
class Slow:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "hipplan.language.resolve":
            begun.set()
            time.sleep(0.3)
sys.meta_path.insert(0, Slow)
threading.Thread(target=lambda: hipplan.load).start()
begun.wait()
child = os.fork()
if child == 0:
    signal.alarm(300)
    hipplan.load({"hipplan": 1})
    os._exit(42)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""], capture_output=True, text=True)  # fmt: skip

    assert done.returncode == 42, done.stderr


@pytest.mark.parametrize("where", ["hipDeviceSynchronize", "hipMemUnmap"])
def test_a_child_forked_by_a_handler_during_an_undo_makes_no_driver_call(where: str, tmp_path: Path) -> None:
    pause = Pause(tmp_path, f"{where}@1")
    err, trace = at_exit(tmp_path, f"""
layout = hipplan.apply(QUICKSTART, runtime="sim")
layout.runtime.arm_faults({pause.rule!r})
children = []
signal.signal(signal.SIGINT, lambda number, frame: children.append(os.fork()))
layout.close()
if children == [0]:
    os._exit(42)
assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 42
""", inside=pause)  # fmt: skip

    assert "Traceback" not in err
    for made, given_back in (("hipMemCreate", "hipMemRelease"), ("hipMemMap", "hipMemUnmap")):
        assert trace.count(f'"{given_back}"') == trace.count(f'"{made}"') == 4


@pytest.mark.skipif("HIPPLAN_SANITIZER" in os.environ, reason="sanitizers need address space of their own")
def test_where_no_thread_can_be_had_others_run_while_a_device_is_waited_for(tmp_path: Path) -> None:
    pause = Pause(tmp_path, "hipDeviceSynchronize@1")
    _, trace = at_exit(tmp_path, f"""
import resource
layout = hipplan.apply(QUICKSTART, runtime="sim")
ticks = []
def tick():
    writer = os.open({str(pause.fifo)!r}, os.O_WRONLY)
    for _ in range(5):  # never, if the wait kept the interpreter
        ticks.append(1)
        time.sleep(0.01)
    os.close(writer)
threading.Thread(target=tick).start()
layout.runtime.arm_faults({pause.rule!r})
used = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 20), resource.RLIM_INFINITY))  # a thread takes 8 MiB
layout.close()
assert len(ticks) == 5
""")  # fmt: skip

    assert trace.count('"hipMemRelease"') == 4
