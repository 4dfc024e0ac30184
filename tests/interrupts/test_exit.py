"""The end of the interpreter, and forks in unusual places."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interrupts.test_library import at_exit
from tests.pauses import Pause

pytestmark = pytest.mark.in_turns


def test_leaks_of_a_dropped_layout_are_reported_at_exit(tmp_path: Path) -> None:
    err, _ = at_exit(tmp_path, """
layout = hipplan.apply(QUICKSTART, runtime="sim")
layout.runtime.arm_faults("hipFree@1=hipErrorUnknown")
del layout
""")  # fmt: skip

    assert "not released: hipFree(" in err
    assert "'table'" in err


def in_child_of(begin: str, script: str) -> str:
    """What a child says that was forked while another thread was at `begin`, and whether that thread goes on then.

    The thread calls pause(), which returns only when the child has ended: a fork that waited would hang.
    """
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", f"""
import os, signal, sys, threading
import hipplan
paused, ended = threading.Event(), threading.Event()
def pause():
    paused.set()
    ended.wait()
{begin}
thread = threading.Thread(target=first_use)
thread.start()
paused.wait()
child = os.fork()
if child == 0:
    signal.alarm(300)
    try:
        {script}
        print("works", flush=True)
    except ImportError as error:
        print(error, flush=True)
    os._exit(42)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
ended.set()
thread.join()
hipplan.load({{"hipplan": 1}})
sys.exit(code)
"""], capture_output=True, text=True)  # fmt: skip
    assert (done.returncode, done.stderr) == (42, "")
    return done.stdout


@pytest.mark.parametrize(
    ("imported", "begin"),
    [
        ("ast", "hipplan.api"),  # hipplan.errors needs it
        ("yaml.reader", "error[HP407]: hipplan.api"),
        ("hipplan.language.resolve.names", "error[HP407]: hipplan.api"),
    ],
)
def test_what_another_thread_was_importing_cannot_be_imported_in_a_forked_child(imported: str, begin: str) -> None:
    """Python keeps that module locked there for ever, and half of it may be missing."""
    script = f"""
forked_by = threading.get_ident()
def wait_in_import(event, arguments):
    if event == "import" and arguments[0] == {imported!r} and threading.get_ident() != forked_by:
        pause()
sys.addaudithook(wait_in_import)
def first_use():
    hipplan.apply
"""
    answer = in_child_of(script, "hipplan.apply")

    assert answer.startswith(f"{begin} cannot be imported in this process")
    assert "it was forked while another thread of its parent was importing that module" in answer
    assert "fork before the first use" in answer


def test_a_child_reads_plans_whatever_model_another_thread_was_building() -> None:
    """pydantic builds a model at its first use, with a lock for all models."""
    begin = """
from typing import Annotated, Any
from pydantic import BaseModel, GetPydanticSchema
def schema(kind, handler):
    pause()
    return handler(int)
class Model(BaseModel, defer_build=True):
    number: Annotated[Any, GetPydanticSchema(schema)]
def first_use():
    Model(number=1)
"""
    assert in_child_of(begin, 'hipplan.load({"hipplan": 1})') == "works\n"


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
