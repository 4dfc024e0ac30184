"""A hundred thousand of everything, at the default descriptor limit, and the next call as quick as the first."""

import ctypes
import threading
import time
from ctypes import byref, c_void_p

import pytest

from ..conformance.hip import SUCCESS, Hip, access, prop
from .conftest import Script

pytestmark = pytest.mark.in_turns

COUNT = 100_000
PAGE = 4096


def test_100_000_allocations_mappings_and_buffers_at_1024_descriptors(script: Script) -> None:
    source = f"""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
grant, properties = byref(access(0)), byref(prop())
with hip.reservation({COUNT * PAGE}) as base:
    handles = []
    for i in range({COUNT}):
        handle = c_void_p()
        assert hip.hipMemCreate(byref(handle), {PAGE}, properties, 0) == 0
        handles.append(handle)
    # Backwards and in pairs swapped, so that no two neighbours share neighbouring memory.
    for i in range({COUNT}):
        at = base + {PAGE} * ({COUNT} - 1 - (i ^ 1))
        assert hip.hipMemMap(at, {PAGE}, 0, handles[i], 0) == 0
        assert hip.hipMemSetAccess(at, {PAGE}, grant, 1) == 0
    buffers = [hip.get("hipMalloc", c_void_p, 256) for _ in range({COUNT})]
    assert hip.write(base + 77777 * {PAGE}, b"here") == 0
    assert hip.read(base + 77777 * {PAGE}, 4) == b"here"
    maps = len(open("/proc/self/maps").readlines())
    for buffer in buffers[::2] + buffers[1::2]: assert hip.hipFree(buffer) == 0
    for i in range({COUNT}): assert hip.hipMemUnmap(base + i * {PAGE}, {PAGE}) == 0
    for handle in handles: assert hip.hipMemRelease(handle) == 0
print(maps < 1000, simulator.alive())
"""
    got = script(source)

    assert got.stdout.split() == ["True", "{}"], got.stderr[-500:]


def test_100_000_pieces_are_visible_to_the_cpu_where_memory_follows_addresses(script: Script) -> None:
    source = f"""
simulator.configure("device.0.host_visible=1")
grant, properties = byref(access(0)), byref(prop())
with hip.reservation({COUNT * PAGE}) as base:
    for i in range({COUNT}):
        handle = c_void_p()
        assert hip.hipMemCreate(byref(handle), {PAGE}, properties, 0) == 0
        assert hip.hipMemMap(base + i * {PAGE}, {PAGE}, 0, handle, 0) == 0
        assert hip.hipMemRelease(handle) == 0
        assert hip.hipMemSetAccess(base + i * {PAGE}, {PAGE}, grant, 1) == 0
    ctypes.memset(base + 5 * {PAGE} - 2, 0x41, 4)
    assert hip.read(base + 5 * {PAGE} - 2, 4) == b"AAAA"
    for i in range({COUNT}): assert hip.hipMemUnmap(base + i * {PAGE}, {PAGE}) == 0
print(simulator.alive())
"""
    got = script(source)

    assert got.stdout.split() == ["{}"], got.stderr[-500:]


def test_copies_that_overlap_let_other_calls_in(hip: Hip) -> None:
    size = 4 << 20
    host, done = [ctypes.create_string_buffer(size) for _ in range(2)], threading.Event()

    def copy(to: ctypes.Array[ctypes.c_char], source: int) -> None:
        for _ in range(100):
            hip.hipMemcpy(to, source, size, 2)
        done.set()

    with hip.buffer(size) as address:
        threads = [threading.Thread(target=copy, args=(to, address)) for to in host]
        for thread in threads:
            thread.start()
        pairs = 0
        while not done.is_set():
            with hip.buffer(64):
                pairs += 1
        for thread in threads:
            thread.join()

    assert pairs > 10


def test_the_next_call_does_not_slow_down(hip: Hip) -> None:
    """Ratio of the same work with few and with many mappings alive; a linear scan would show as hundreds."""
    grant, properties = byref(access(0)), byref(prop())

    def work(base: int) -> float:
        started = time.thread_time()
        for i in range(2000):
            handle = c_void_p()
            hip.hipMemCreate(byref(handle), PAGE, properties, 0)
            assert hip.hipMemMap(base + i * PAGE, PAGE, 0, handle, 0) == SUCCESS
            hip.hipMemRelease(handle)
            hip.hipMemSetAccess(base + i * PAGE, PAGE, grant, 1)
        took = time.thread_time() - started
        for i in range(2000):
            hip.hipMemUnmap(base + i * PAGE, PAGE)
        return took

    many = 30_000
    with hip.reservation((many + 2000) * PAGE) as base, hip.allocation(PAGE) as handle:
        few_took = min(work(base + many * PAGE) for _ in range(3))
        for i in range(many):
            hip.hipMemMap(base + i * PAGE, PAGE, 0, handle, 0)
        many_took = min(work(base + many * PAGE) for _ in range(3))
        for i in range(many):
            hip.hipMemUnmap(base + i * PAGE, PAGE)

    assert many_took < 5 * few_took
