"""What happens where one allocation is refused: nothing is lost, and the process goes on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif("HIPPLAN_SANITIZER" in os.environ, reason="sanitizers have an allocator of their own")

HEADER = """
import ctypes, os
import hipplan
from hipplan import _core
from hipplan.runtimes import choose

malloc = ctypes.CDLL(os.environ["LD_PRELOAD"])
runtime = choose("sim").runtime
hip = ctypes.CDLL(runtime.path)

def until_it_works(k, call):
    malloc.refuse(k)
    while True:
        try:
            return call()
        except MemoryError:
            pass
        finally:
            malloc.refuse(0)

"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Runs Python source in a process of its own in which malloc can refuse; what it printed."""
    compiler = shutil.which("cc") or shutil.which("c++")
    if not compiler:
        pytest.skip("needs a compiler")
    library = tmp_path_factory.mktemp("malloc") / "libshort.so"
    source = Path(__file__).with_name("short_of_memory.c")
    subprocess.run([compiler, "-x", "c", "-shared", "-fPIC", source, "-o", library], check=True)
    environment = {**os.environ, "LD_PRELOAD": str(library), "HIPSIM_LOG": "none"}

    def run(source: str) -> str:
        line = [sys.executable, "-c", HEADER + textwrap.dedent(source)]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (done.returncode, done.stderr)
        return done.stdout.strip()

    return run


def test_an_undo_and_its_report_end_no_process(script: Callable[[str], str]) -> None:
    source = """
    for k in range(1, 60):
        journal = _core.Journal(runtime)
        journal.create_stream("kept", 0)
        runtime.arm_faults("hipStreamDestroy@1=999")
        undoing = _core.Undoing(journal)
        report = until_it_works(k, undoing.run)
        until_it_works(k, lambda: report.leaks)
        runtime.arm_faults("")
    print(len(journal))
    """
    assert script(source) == "0"


def test_the_end_of_a_wait_for_devices_needs_no_memory(script: Callable[[str], str]) -> None:
    source = """
    malloc.refuse_small_ones_of_other_threads(1)
    wait = _core.IdleWait(runtime, [0])
    print(wait.wait(10), _core.IdleWait(runtime, [0]).wait(10))
    """
    assert script(source) == "True True"


def test_a_device_that_could_not_be_set_back_ends_no_process_and_is_told_once(script: Callable[[str], str]) -> None:
    source = """
    journal, faults = _core.Journal(runtime), "hipSetDevice@2=999; hipSetDevice@3=999"
    for k in range(1, 40):
        hip.hipSetDevice(0)
        runtime.arm_faults(faults)
        try:
            malloc.refuse(k)
            journal.create_stream("s", 1)
        except (MemoryError, _core.HipError):
            pass
        malloc.refuse(0)
    told = _core.take_leaks()[:1]
    for k in range(1, 10):
        hip.hipSetDevice(0)
        runtime.arm_faults(faults)
        journal.create_stream("s", 1)
        told += until_it_works(k, _core.take_leaks)
    print(len(told), *set(told), sep="; ")
    """
    assert script(source) == "10; the thread's current device could not be set back to 0: hipErrorUnknown"
