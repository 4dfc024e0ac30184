"""hipMallocManaged: one address for host and devices, charged to no device."""

import ctypes
from ctypes import c_void_p

import pytest

from .hip import ATTACH_HOST, GLOBAL, INVALID_VALUE, MIB, OUT_OF_MEMORY, SINGLE, Hip
from .sim import Simulator

pytestmark = pytest.mark.function("hipMallocManaged")


def allocate(hip: Hip, size: int, flags: int = GLOBAL) -> int:
    return hip.hipMallocManaged(ctypes.byref(c_void_p()), size, flags)


def test_a_null_output_is_invalid(hip: Hip) -> None:
    assert hip.hipMallocManaged(None, MIB, GLOBAL) == INVALID_VALUE


def test_size_zero_is_an_error_unlike_hipmalloc(hip: Hip) -> None:
    assert allocate(hip, 0) == INVALID_VALUE


@pytest.mark.parametrize("flags", [0, 3, SINGLE, 8])
def test_flags_other_than_global_and_host_are_invalid(hip: Hip, flags: int) -> None:
    assert allocate(hip, MIB, flags) == INVALID_VALUE


@pytest.mark.parametrize("size", [(1 << 64) - 1, 1 << 62])
def test_too_much_is_out_of_memory(hip: Hip, size: int) -> None:
    assert allocate(hip, size) == OUT_OF_MEMORY


@pytest.mark.parametrize("flags", [GLOBAL, ATTACH_HOST])
def test_the_cpu_and_copies_see_the_same_bytes(hip: Hip, flags: int) -> None:
    with hip.managed(MIB, flags) as address:
        ctypes.memset(address, 0x5A, MIB)

        assert hip.read(address, 3) == b"ZZZ"


def test_it_is_page_aligned(hip: Hip) -> None:
    with hip.managed(100) as address:
        assert address % 4096 == 0


def test_no_device_is_charged(hip: Hip) -> None:
    before = hip.free_memory()
    with hip.managed(64 * MIB):
        assert hip.free_memory() == before


@pytest.mark.needs("two devices")
def test_every_device_may_touch_it(hip: Hip, simulator: Simulator) -> None:
    with hip.managed(MIB) as address:
        assert simulator.touch(0, address, MIB) == simulator.touch(1, address, MIB) == 0
