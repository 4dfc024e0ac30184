"""What happens where one allocation is refused: nothing is lost, and the process goes on."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest

from tests.cpp import refusing

pytestmark = refusing.not_under_sanitizers

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
POOL = """
book = _core.LeaseBook()
pool = _core.MemoryPool(runtime, "pool", 0, 1 << 20, 1 << 20, book)
exports = ctypes.CDLL(_core.__file__)
exports.hipplan_pool_malloc_0.restype = ctypes.c_void_p
size, device, stream = ctypes.c_ssize_t(4096), ctypes.c_int(0), ctypes.c_void_p()
take = lambda: exports.hipplan_pool_malloc_0(size, device, stream)
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Runs Python source in a process of its own in which malloc can refuse; what it printed."""
    environment = refusing.environment(tmp_path_factory.mktemp("malloc"))

    def run(source: str) -> str:
        line = [sys.executable, "-c", HEADER + textwrap.dedent(source)]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=600)
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


def test_what_an_undo_could_not_do_is_told_whatever_there_is_no_memory_for(script: Callable[[str], str]) -> None:
    """A mapping that cannot be unmapped; one that was taken out, and is put back with its rights, or told."""
    source = """
    import json
    size, name = 2 << 20, "a name too long to be kept without the heap: "
    seen = set()
    for k in range(1, 40):
        journal = _core.Journal(runtime)
        memory = journal.create_allocation(name + "memory", size, _core.AllocationProperties(0))
        place = journal.reserve(name + "range", size, 0, 0)
        mapping = journal.map(name + "mapping", place, 0, memory, size)
        journal.set_access(mapping, [(1, 0, 3)])
        address, since = hex(journal.address(mapping)), journal.next()
        journal.take_out(mapping, place, memory, [(1, 0, 3)])
        back = until_it_works(k, _core.Undoing(journal, since).run)
        there = [one["writers"] for one in json.loads(runtime.ledger())["mappings"] if one["address"] == address]
        told = [leak.call for leak in back.leaks]
        seen.add((back.restored, *told, *there))
        runtime.arm_faults("hipMemUnmap@1=999")
        report = until_it_works(k, _core.Undoing(journal).run)
        runtime.arm_faults("")
        if there:
            seen.add(tuple(leak.name.removeprefix(name) for leak in report.leaks))
    print(*sorted(map(str, seen)), sep="; ")
    """
    assert script(source).split("; ") == [
        "('mapping', 'range')",
        "(0, 'hipMemMap')",  # these two were refused to the driver
        "(0, 'hipMemSetAccess', '0x0')",
        "(1, '0x1')",
    ]


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


def test_blocks_of_a_pool_come_and_go_or_nothing_changes(script: Callable[[str], str]) -> None:
    source = """
seen = set()
for k in range(1, 12):
    malloc.refuse(k)
    block = take()
    seen.add((bool(block), pool.blocks, pool.largest_free, len(book)))
    malloc.refuse(k)
    exports.hipplan_pool_free_0(ctypes.c_void_p(block), size, device, stream)
    malloc.refuse(0)
    seen.add((False, pool.blocks, pool.largest_free, len(book)))
print(sorted(seen))
"""
    assert script(POOL + source) == f"[(False, 0, {2**20}, 0), (True, 1, {2**20 - 4096}, 1)]"


def test_a_block_may_come_back_when_all_else_has_ended(script: Callable[[str], str]) -> None:
    script(POOL + "malloc.free_at_the_end(exports.hipplan_pool_free_0, ctypes.c_void_p(take()))")
