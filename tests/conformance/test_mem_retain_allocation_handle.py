"""hipMemRetainAllocationHandle: the handle behind an address, counted only since 7.12."""

import ctypes
from ctypes import c_void_p

import pytest

from .hip import INVALID_VALUE, MIB, SUCCESS, Hip, prop

pytestmark = [pytest.mark.function("hipMemRetainAllocationHandle"), pytest.mark.needs("vmm")]

SIZE = 2 * MIB


def test_nulls_are_invalid(hip: Hip) -> None:
    with hip.mapped(SIZE) as address:
        assert hip.hipMemRetainAllocationHandle(None, address) == INVALID_VALUE
        assert hip.hipMemRetainAllocationHandle(ctypes.byref(c_void_p()), None) == INVALID_VALUE


def test_an_address_without_a_piece_is_invalid(hip: Hip) -> None:
    out = ctypes.byref(c_void_p())
    with hip.reservation(SIZE) as address, hip.allocation(SIZE) as handle:
        assert hip.hipMemRetainAllocationHandle(out, address) == INVALID_VALUE
        with hip.mapping(address, SIZE, handle):
            pass
        assert hip.hipMemRetainAllocationHandle(out, address) == INVALID_VALUE


@pytest.mark.needs("handle checks")
def test_ordinary_memory_is_invalid(hip: Hip) -> None:
    with hip.buffer(SIZE) as address:
        code = hip.hipMemRetainAllocationHandle(ctypes.byref(c_void_p()), address)

        assert code == INVALID_VALUE


@pytest.mark.needs("handle checks")
def test_it_counts_since_7_12_and_not_before(hip: Hip) -> None:
    with hip.reservation(SIZE) as address:
        handle = hip.get("hipMemCreate", c_void_p, SIZE, ctypes.byref(prop()), 0)
        with hip.mapping(address, SIZE, handle):
            retained = hip.get("hipMemRetainAllocationHandle", c_void_p, address + SIZE - 1)
            assert retained == handle
            assert hip.hipMemRelease(handle) == SUCCESS
            second = hip.hipMemRelease(retained)

    assert second == (SUCCESS if hip.version >= (7, 12) else INVALID_VALUE)
