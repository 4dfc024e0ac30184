"""hipMemGetAddressRange: the allocation, or the mapped piece, that holds an address."""

import ctypes
from ctypes import c_size_t, c_void_p

import pytest

from .hip import DANGLING, MIB, NOT_FOUND, SUCCESS, Hip, access

pytestmark = pytest.mark.function("hipMemGetAddressRange")


def ask(hip: Hip, address: int) -> tuple[int, int | None, int]:
    base, size = c_void_p(), c_size_t()
    code = hip.hipMemGetAddressRange(ctypes.byref(base), ctypes.byref(size), address)
    return code, base.value, size.value


def test_unknown_addresses_are_not_found(hip: Hip) -> None:
    here = ctypes.create_string_buffer(16)
    assert ask(hip, DANGLING)[0] == NOT_FOUND
    assert ask(hip, ctypes.addressof(here))[0] == NOT_FOUND


def test_the_size_is_as_asked_for_not_rounded(hip: Hip) -> None:
    with hip.buffer(1000) as address:
        assert ask(hip, address + 999) == (SUCCESS, address, 1000)
        assert ask(hip, address + 1000)[0] == NOT_FOUND


def test_host_and_managed_memory_are_found(hip: Hip) -> None:
    with hip.pinned(MIB) as pinned, hip.managed(MIB) as managed:
        assert ask(hip, pinned + 5) == (SUCCESS, pinned, MIB)
        assert ask(hip, managed + 5) == (SUCCESS, managed, MIB)


@pytest.mark.needs("vmm")
def test_mapped_memory_is_the_piece_not_the_reservation(hip: Hip) -> None:
    with (
        hip.reservation(8 * MIB) as address,
        hip.allocation(2 * MIB) as handle,
        hip.mapping(address + 4 * MIB, 2 * MIB, handle, access(0)) as piece,
    ):
        assert ask(hip, piece + MIB) == (SUCCESS, piece, 2 * MIB)
        assert ask(hip, address)[0] == NOT_FOUND


@pytest.mark.needs("handle checks")
def test_each_output_is_optional(hip: Hip) -> None:
    with hip.buffer(MIB) as address:
        size = c_size_t()
        assert hip.hipMemGetAddressRange(None, ctypes.byref(size), address) == SUCCESS
        assert size.value == MIB
        assert hip.hipMemGetAddressRange(None, None, address) == SUCCESS
