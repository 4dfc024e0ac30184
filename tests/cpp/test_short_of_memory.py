"""What happens where one allocation is refused: nothing is lost, and the process goes on."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest

from tests.cpp import refusing

pytestmark = [pytest.mark.in_turns, refusing.not_under_sanitizers]

HEADER = """
import ctypes, os
import hipplan
from hipplan import _core
from hipplan.machines.runtimes import choose
from tests.cpp import some_rows as row

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
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of a process in which malloc can refuse."""
    return refusing.environment(tmp_path_factory.mktemp("malloc"))


@pytest.fixture(scope="module")
def script(environment: dict[str, str]) -> Callable[[str], str]:
    """Runs Python source in such a process; what it printed."""

    def run(source: str) -> str:
        line = [sys.executable, "-c", HEADER + textwrap.dedent(source)]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, (done.returncode, done.stderr)
        return done.stdout.strip()

    return run


def test_each_allocation_of_a_change_may_be_refused(environment: dict[str, str]) -> None:
    line = [sys.executable, "-m", "tests.cpp.shortages"]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=600)
    *wrong, count = done.stdout.splitlines() or [done.stderr]

    assert wrong == [], (done.returncode, done.stderr)
    assert int(count.removesuffix(" refused")) > 200
    assert done.returncode == 0


def test_giving_back_and_its_report_end_no_process(script: Callable[[str], str]) -> None:
    source = """
    for k in range(1, 60):
        holdings = row.holding(runtime, [row.stream(0, "kept")])
        holdings.close(False)
        runtime.arm_faults("hipStreamDestroy@1=999")
        report = until_it_works(k, lambda: row.free_retired(holdings))
        until_it_works(k, lambda: report.leaks)
        runtime.arm_faults("")
    print(holdings.retired.any)
    """
    assert script(source) == "False"


def test_failed_undos_are_reported_whichever_allocation_fails(script: Callable[[str], str]) -> None:
    """A mapping that cannot be unmapped; one unmapped for a swap, which is restored with its rights or reported."""
    source = """
    import json
    name = "a name too long to be kept without the heap: "
    seen = set()
    for k in [*range(1, 60)] * 2:  # other threads ask for memory too
        holdings = row.holding(runtime, [(one[0], name + one[1], *one[2:]) for one in row.MAPPED])
        address = hex(row.snapshot_of(holdings).address(2))
        kept = [(3, 2, 1), (4, 1, 1), (5, 0, 1)]
        change = row.begin(holdings, [row.unmap(3, 5)], 3, extra_slots=3, same_slots=3, kept=kept)
        change.roll_back()
        report, work = _core.UndoReport(), _core.UndoRun(holdings.retired, 60.0)
        until_it_works(k, lambda: work.run(report, lambda device: None, lambda: None))
        there = [one["writers"] for one in json.loads(runtime.ledger())["mappings"] if one["address"] == address]
        told = [leak.call for leak in report.leaks]
        seen.add((report.restored, holdings.damaged, *told, *there))
        runtime.arm_faults("hipMemUnmap@1=999")
        holdings.close(False)
        report, work = _core.UndoReport(), _core.UndoRun(holdings.retired, 60.0)
        until_it_works(k, lambda: work.run(report, lambda device: None, lambda: None))
        runtime.arm_faults("")
        if there:
            seen.add(tuple(leak.name.removeprefix(name) for leak in report.leaks))
    print(*sorted(map(str, seen)), sep="; ")
    """
    assert script(source).split("; ") == [
        "('mapping', 'range')",
        "(0, True, 'hipMemMap')",  # these two were refused to the driver
        "(0, True, 'hipMemSetAccess', '0x0')",
        "(1, False, '0x1')",
    ]


def test_what_a_search_could_not_free_is_reported_whichever_allocation_fails(script: Callable[[str], str]) -> None:
    source = """
    import json
    from tests.cpp.shortages import spare_the_driver
    spare_the_driver()
    runtime.configure("device.0.name=a\\nquirk.free_blocks_first=1")
    seen = set()
    for k in range(1, 200):
        holdings = row.nothing(runtime)
        wanted = row.reserve(0, 128 << 20, at=0x6ABB_0000_0000, exact=True)
        change = _core.Change(holdings, _core.Rows([wanted]), slots=1)
        runtime.arm_faults("hipMemAddressFree@2=999")
        malloc.refuse(k)
        try:
            change.advance(1)
        except MemoryError:
            pass
        malloc.refuse(0)
        change.roll_back()
        report = row.free_retired(holdings)
        runtime.arm_faults("")
        left = {one["address"] for one in json.loads(runtime.ledger())["reservations"]}
        told = {leak.identity.split()[-1] for leak in report.leaks}
        assert told == left, (k, told, left)
        seen.add((change.done, len(left)))
        for address in left:
            hip.hipMemAddressFree(ctypes.c_void_p(int(address, 16)), ctypes.c_size_t(128 << 20))
    print(seen >= {(0, 0), (0, 1), (1, 1)})  # nothing was kept yet; one was not freed, in a row that failed or not
    """
    assert script(source) == "True"


@pytest.mark.parametrize("first_refused", [1, 2, 4])
@pytest.mark.parametrize("faults", ["", "hipMemUnmap@1=999"])
def test_where_memory_stays_refused_the_process_goes_on_and_what_is_kept_is_named(
    first_refused: int, faults: str, script: Callable[[str], str]
) -> None:
    """The holdings are dropped without close(), and every request from one on is refused."""
    source = f"""
    import json
    holdings = row.holding(runtime, row.MAPPED)
    runtime.arm_faults("{faults}")
    malloc.refuse_from({first_refused})
    del holdings
    malloc.refuse(0)
    runtime.arm_faults("")
    ledger = json.loads(runtime.ledger())
    alive = sum(len(ledger[kind]) for kind in ("mappings", "allocations", "reservations"))
    named = [line for line in _core.take_leaks() if line]
    print(alive, len(named), *named, sep="; ")
    """
    alive, count, *named = script(source).split("; ")
    assert int(count) == len(named)
    assert (int(alive) > 0) == bool(named)
    if int(alive) == 3:
        assert [line.partition(":")[0] for line in named] == ["'memory'", "'range'", "'mapping'"]


def test_a_close_for_which_memory_stays_refused_ends_and_what_is_kept_is_named(script: Callable[[str], str]) -> None:
    """First before anything is freed, then while it is freed. The next close does the rest."""
    source = """
    import json
    def alive():
        ledger = json.loads(runtime.ledger())
        return sum(len(ledger[kind]) for kind in ("mappings", "allocations", "reservations"))
    holdings = row.holding(runtime, row.MAPPED)
    malloc.refuse_from(1)
    try:
        holdings.close(False)
    except MemoryError:
        pass
    malloc.refuse(0)
    print(holdings.closed, alive())
    holdings.close(False)
    report, work = _core.UndoReport(), _core.UndoRun(holdings.retired, 60.0)
    for k in range(1, 20):  # the first requests come before it has begun: then nothing has changed
        malloc.refuse_from(k)
        try:
            work.run(report, None, None)
        except MemoryError:
            pass
        malloc.refuse(0)
        if work.finished:
            break
    print(work.finished, holdings.retired.any, alive(), *sorted(line.partition(":")[0] for line in _core.take_leaks()))
    """
    assert script(source).splitlines() == ["False 3", "True False 3 'mapping' 'memory' 'range'"]


def test_the_end_of_a_wait_for_devices_needs_no_memory(script: Callable[[str], str]) -> None:
    source = """
    malloc.refuse_small_ones_of_other_threads(1)
    wait = _core.IdleWait(runtime, [0])
    print(wait.wait(10), _core.IdleWait(runtime, [0]).wait(10))
    """
    assert script(source) == "True True"


def test_a_current_device_that_cannot_be_restored_is_reported_once(script: Callable[[str], str]) -> None:
    source = """
    faults = "hipSetDevice@2=999; hipSetDevice@3=999"
    kept = []
    for k in range(1, 40):
        hip.hipSetDevice(0)
        runtime.arm_faults(faults)
        try:
            malloc.refuse(k)
            kept.append(row.holding(runtime, [row.stream(0, device=1)]))
        except (MemoryError, _core.HipError):
            pass
        malloc.refuse(0)
    told = _core.take_leaks()[:1]
    for k in range(1, 10):
        hip.hipSetDevice(0)
        runtime.arm_faults(faults)
        kept.append(row.holding(runtime, [row.stream(0, device=1)]))
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


SHORT_FOR_A_WHILE = """
import json, logging, resource, signal
import hipplan

logging.basicConfig()
def plan(every):  # a list of what is left takes more than a list of neighbours
    buffers = {f"b{n}": {"kind": "device", "device": "gpu", "size": 4096} for n in range(0, 6000, every)}
    return {"hipplan": 1, "devices": {"gpu": {}}, "buffers": buffers}

layout = hipplan.apply(plan(1), runtime="sim", verify=False)
layout.update(plan(2), lose="*")

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


def test_a_close_waits_for_memory_that_it_needs() -> None:
    done = subprocess.run([sys.executable, "-c", SHORT_FOR_A_WHILE], capture_output=True, text=True, timeout=600)

    assert (done.stdout.split(), done.stderr) == (["3000", "0", "None", "0"], "")
