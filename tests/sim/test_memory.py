"""The kernel's memory under the simulator's: where it refuses, where a program unmaps it, where two pieces meet."""

from __future__ import annotations

import ctypes
import os
from ctypes import c_int, c_long, c_size_t, c_void_p

import pytest

from ..conformance.hip import GIB, INVALID_VALUE, MIB, SUCCESS, Hip, access
from ..conformance.sim import Simulator
from .conftest import Script

SIZE = 2 * MIB

own_address_space = pytest.mark.skipif(
    "HIPPLAN_SANITIZER" in os.environ, reason="sanitizers need address space of their own"
)

KERNEL = """
import contextlib, resource

@contextlib.contextmanager
def no_mapping():  # not even in place of another
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 20, before[1]))
    try: yield
    finally: resource.setrlimit(resource.RLIMIT_AS, before)

def refuse(call):  # from here on
    number = {"mprotect": (10, 226), "fallocate": (285, 47)}[call][os.uname().machine != "x86_64"]
    class Line(Structure): _fields_ = [("code", c_ushort), ("then", c_ubyte), ("other", c_ubyte), ("value", c_uint)]
    class Program(Structure): _fields_ = [("length", c_ushort), ("lines", POINTER(Line))]
    lines = (Line * 4)((0x20, 0, 0, 0), (0x15, 0, 1, number), (6, 0, 0, 0x50000 | 12), (6, 0, 0, 0x7FFF0000))
    libc = CDLL(None)
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert libc.prctl(22, 2, byref(Program(4, lines))) == 0  # PR_SET_SECCOMP: ENOMEM for that call

simulator.configure("device.0.host_visible=1")
"""


@pytest.mark.parametrize(
    ("function", "arguments"),
    [("hipHostMalloc", [0]), ("hipMallocManaged", [1]), ("hipMalloc", []), ("hipMemAddressReserve", None)],
)
def test_registered_memory_that_the_program_unmapped_is_forgotten_where_the_kernel_gives_it_out_again(
    hip: Hip, simulator: Simulator, function: str, arguments: list[int] | None
) -> None:
    libc = ctypes.CDLL(None)
    libc.mmap.restype, libc.mmap.argtypes = c_void_p, [c_void_p, c_size_t, c_int, c_int, c_int, c_long]
    stale = libc.mmap(None, GIB, 3, 0x4022, -1, 0)
    assert hip.hipHostRegister(stale + MIB, MIB, 0) == SUCCESS  # overlapped, and overlapping the next
    assert hip.hipHostRegister(stale, GIB, 0) == SUCCESS
    libc.munmap(c_void_p(stale), c_size_t(GIB))
    fresh = hip.get(function, c_void_p, GIB, *([0, stale, 0] if arguments is None else arguments))
    kinds = [buffer["kind"] for buffer in simulator.ledger()["buffers"]]
    if arguments is None:
        hip.hipMemAddressFree(fresh, GIB)
    else:
        hip.hipFree(fresh)

    if fresh == stale:
        assert "registered" not in kinds
    for start in (stale, stale + MIB):
        hip.hipHostUnregister(start)
    assert simulator.alive() == {}


def test_the_last_page_there_is_cannot_be_registered(hip: Hip) -> None:
    assert hip.hipHostRegister(2**64 - 4096, 4095, 0) == INVALID_VALUE


@own_address_space
def test_memory_is_hidden_from_the_cpu_where_the_kernel_has_no_room_for_a_mapping(script: Script) -> None:
    source = f"""{KERNEL}
with hip.reservation({SIZE}) as p, hip.allocation({SIZE}) as h:
    grant = byref(access(0))
    assert hip.hipMemMap(p, {SIZE}, 0, h, 0) == 0
    assert hip.hipMemSetAccess(p, {SIZE}, grant, 1) == 0
    ctypes.memset(p, 1, {SIZE})
    with no_mapping(): code = hip.hipMemUnmap(p, {SIZE})
    print(code, flush=True)
    ctypes.string_at(p, 1)
"""
    got = script(source)

    assert (got.stdout.strip(), got.returncode) == ("0", -11)


@own_address_space
def test_what_the_kernel_cannot_hide_stays_mapped(script: Script) -> None:
    source = f"""{KERNEL}
refuse("mprotect")
with hip.reservation({2 * SIZE}) as p, hip.allocation({SIZE}) as h:
    none, grant = byref(access(0, 0)), byref(access(0))
    b = hip.get("hipMalloc", c_void_p, 4096)
    for at in (p, p + {SIZE}):
        assert hip.hipMemMap(at, {SIZE}, 0, h, 0) == 0
        assert hip.hipMemSetAccess(at, {SIZE}, grant, 1) == 0
    ctypes.memset(p, 7, 4)
    before = simulator.ledger()
    with no_mapping():
        codes = [hip.hipMemSetAccess(p, {SIZE}, none, 1), hip.hipMemUnmap(p, {2 * SIZE}), hip.hipFree(b)]
    print(codes, simulator.ledger() == before, ctypes.string_at(p + {SIZE}, 2))
    print([hip.hipMemSetAccess(p, {SIZE}, none, 1), hip.hipMemUnmap(p, {2 * SIZE}), hip.hipFree(b)])
print(simulator.alive())
"""
    assert script(source).stdout.splitlines() == ["[2, 2, 2] True b'\\x07\\x07'", "[0, 0, 0]", "{}"]


@own_address_space
def test_a_buffer_that_the_cpu_cannot_be_shown_costs_no_addresses(script: Script) -> None:
    source = f"""{KERNEL}
p = hip.get("hipMalloc", c_void_p, {SIZE})
hip.hipFree(p)
out = c_void_p()
with no_mapping(): codes = [hip.hipMalloc(byref(out), {SIZE}) for _ in range(3)]
print(codes, hip.get("hipMalloc", c_void_p, {SIZE}) == p)
"""
    assert script(source).stdout.strip() == "[2, 2, 2] True"


def test_under_a_limit_on_file_sizes_there_is_no_device_memory_and_the_log_says_why(script: Script) -> None:
    source = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # as in a C program
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 40, resource.RLIM_INFINITY))
print(hip.hipMalloc(byref(c_void_p()), 4096), hip.hipHostFree(hip.get("hipHostMalloc", c_void_p, 4096, 0)))
"""
    got = script(source, HIPSIM_LOG="stderr")

    assert got.stdout.strip() == "2 0"
    assert "hipMalloc: simulated memory needs files without a limit on their size (ulimit -f)" in got.stderr


def test_device_memory_is_freed_to_the_system(script: Script) -> None:
    source = """
def of_the_simulator():
    return sum(os.stat(f"/proc/self/fd/{n}").st_blocks * 512 for n in os.listdir("/proc/self/fd")
               if os.path.islink(f"/proc/self/fd/{n}") and "memfd:hipsim-" in os.readlink(f"/proc/self/fd/{n}"))
p = hip.get("hipMalloc", c_void_p, 64 << 20)
print(of_the_simulator() >> 20)
hip.hipMemset(p, 1, 64 << 20)
print(of_the_simulator() >> 20)
hip.hipMemset(p, 0, 32 << 20)
print(of_the_simulator() >> 20)
hip.hipFree(p)
print(of_the_simulator() >> 20)
"""
    got = script(source)

    assert got.stdout.split() == ["0", "64", "32", "0"], got.stderr


def test_zeros_are_written_where_the_kernel_takes_no_pages_back(script: Script) -> None:
    source = f"""{KERNEL}
refuse("fallocate")
with hip.buffer({SIZE}) as p:
    hip.hipMemset(p, 5, {SIZE})
    print(hip.hipMemset(p + 1, 0, {SIZE} - 2), hip.read(p, {SIZE}) == b"\\5" + bytes({SIZE} - 2) + b"\\5")
"""
    assert script(source).stdout.strip() == "0 True"


@pytest.mark.parametrize("before_the_end", range(1, 5))
def test_an_element_may_lie_over_the_end_of_a_piece(hip: Hip, before_the_end: int) -> None:
    with (
        hip.reservation(2 * SIZE) as address,
        hip.allocation(SIZE) as first,
        hip.allocation(SIZE) as second,
        hip.mapping(address, SIZE, first, access(0)),
        hip.mapping(address + SIZE, SIZE, second, access(0)),
    ):
        at = address + SIZE - before_the_end
        assert hip.hipMemsetD32(at, 0x44332211, 2) == SUCCESS
        assert hip.read(at, 8) == b"\x11\x22\x33\x44" * 2
        assert hip.hipMemsetD16(at, 0x2211, 3) == SUCCESS
        assert hip.read(at, 6) == b"\x11\x22" * 3


def test_unwritten_memory_is_not_copied(script: Script) -> None:
    source = """
def of_the_simulator():
    return sum(os.stat(f"/proc/self/fd/{n}").st_blocks * 512 for n in os.listdir("/proc/self/fd")
               if os.path.islink(f"/proc/self/fd/{n}") and "memfd:hipsim-" in os.readlink(f"/proc/self/fd/{n}"))
G = 1 << 30
a, b = hip.get("hipMalloc", c_void_p, 32 * G), hip.get("hipMalloc", c_void_p, 32 * G)
hip.hipMemset(a + 5 * G + 77, 1, 4096)
hip.hipMemset(b + 7 * G + 55, 2, 1 << 20)
hip.hipMemset(b + 9 * G, 3, 100)
for to, source, size in ((b + 3, a + 3, 32 * G - 3), (b + 4096 + 77, a, 31 * G), (b, a, 32 * G)):
    assert hip.hipMemcpy(to, source, size, 4) == 0
    print(of_the_simulator() >> 20, hip.read(to + 5 * G, 16384) == hip.read(source + 5 * G, 16384))
    others = hip.read(b + 7 * G, 2 << 20) + hip.read(b + 9 * G, 100)
    print(set(others), len(hip.read(b + 5 * G, 16384).strip(b"\\0")))
"""
    got = script(source, HIPSIM_PROFILE="device.0.memory=137438953472\ndevice.0.vmm=1\n")

    assert got.stdout.splitlines() == ["0 True", "{0} 4096"] * 3, got.stderr


def test_unwritten_pages_between_written_ones_stay_unwritten_in_a_copy_of_a_piece(script: Script) -> None:
    """What is written before and behind the piece is not asked for: the time it took cannot be counted here."""
    source = """
def pages():
    return sum(os.stat(f"/proc/self/fd/{n}").st_blocks // 8 for n in os.listdir("/proc/self/fd")
               if os.path.islink(f"/proc/self/fd/{n}") and "memfd:hipsim-" in os.readlink(f"/proc/self/fd/{n}"))
P = 4096
a, b = hip.get("hipMalloc", c_void_p, 64 * P), hip.get("hipMalloc", c_void_p, 64 * P)
written = (0, 1, 2, 4, 5, 9, 11, 12, 13)
for page in written:
    hip.hipMemset(a + page * P, page + 1, P)
for first, last in ((0, 14), (1, 5), (2, 3), (3, 4), (3, 9), (4, 12), (12, 64)):
    hip.hipMemset(b, 0, 64 * P)
    size = (last - first) * P
    assert hip.hipMemcpy(b, a + first * P, size, 4) == 0 and hip.read(b, size) == hip.read(a + first * P, size)
    print(pages() - len(written) - sum(first <= page < last for page in written))
    assert hip.hipMemcpy(b + 7, a + first * P + 99, size - 99, 4) == 0
    assert hip.read(b + 7, size - 99) == hip.read(a + first * P + 99, size - 99)
"""
    got = script(source)

    assert got.stdout.split() == ["0"] * 7, got.stderr


def test_unwritten_memory_is_zero_in_a_copy_if_pages_cannot_be_freed(script: Script) -> None:
    source = f"""{KERNEL}
refuse("fallocate")
with hip.buffer({SIZE}) as a, hip.buffer({SIZE}) as b:
    hip.hipMemset(a + 8192, 5, 1)
    hip.hipMemset(b, 7, {SIZE})
    print(hip.hipMemcpy(b, a, {SIZE}, 4), hip.read(b, {SIZE}) == bytes(8192) + b"\\5" + bytes({SIZE} - 8193))
"""
    assert script(source).stdout.strip() == "0 True"
