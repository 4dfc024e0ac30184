"""hipMemAddressReserve: address space, nothing behind it."""

import ctypes
from ctypes import c_void_p

import pytest

from .hip import INVALID_VALUE, MIB, OUT_OF_MEMORY, PIECE, SUCCESS, Hip
from .sim import Simulator

pytestmark = [pytest.mark.function("hipMemAddressReserve"), pytest.mark.needs("vmm")]


def reserve(hip: Hip, size: int, alignment: int = 0, hint: int = 0, flags: int = 0) -> int:
    return hip.hipMemAddressReserve(ctypes.byref(c_void_p()), size, alignment, hint, flags)


def bad_size(hip: Hip) -> int:
    return INVALID_VALUE if hip.version >= (7, 0) else OUT_OF_MEMORY


def test_a_null_output_is_invalid(hip: Hip) -> None:
    assert hip.hipMemAddressReserve(None, MIB, 0, None, 0) == INVALID_VALUE


def test_flags_are_invalid(hip: Hip) -> None:
    assert reserve(hip, MIB, flags=1) == INVALID_VALUE


def test_flags_are_checked_before_the_size(hip: Hip) -> None:
    assert reserve(hip, 0, flags=1) == INVALID_VALUE


def test_size_zero_has_the_release_s_code(hip: Hip) -> None:
    assert reserve(hip, 0) == bad_size(hip)


def test_a_size_off_the_granularity_has_the_release_s_code(hip: Hip) -> None:
    assert reserve(hip, hip.granularity() + 1) == bad_size(hip)


@pytest.mark.parametrize("alignment", [3, 4097, 3 * MIB])
def test_an_alignment_that_is_no_power_of_two_has_the_release_s_code(hip: Hip, alignment: int) -> None:
    assert reserve(hip, MIB, alignment) == bad_size(hip)


def test_more_than_the_address_space_is_out_of_memory_and_nulls_the_output(hip: Hip) -> None:
    address = c_void_p(0x1000)

    code = hip.hipMemAddressReserve(ctypes.byref(address), 1 << 62, 0, None, 0)

    assert (code, address.value) == (OUT_OF_MEMORY, None)


def test_the_address_is_page_aligned(hip: Hip) -> None:
    with hip.reservation(hip.granularity()) as address:
        assert address % 4096 == 0


def test_the_size_need_not_equal_any_allocation(hip: Hip) -> None:
    with hip.reservation(64 << 30):
        pass


def test_a_free_hint_is_taken(hip: Hip, simulator: Simulator) -> None:
    with hip.reservation(64 * MIB) as probe:
        pass
    with hip.reservation(64 * MIB, hint=probe) as address:
        assert address == probe


def test_a_taken_hint_is_a_success_elsewhere(hip: Hip) -> None:
    with hip.reservation(64 * MIB) as first, hip.reservation(64 * MIB, hint=first) as second:
        assert second != first


@pytest.mark.parametrize("hint", [(1 << 64) - 4096, 1 << 60, 12345])
def test_a_hint_that_cannot_be_is_a_success_elsewhere(hip: Hip, hint: int) -> None:
    with hip.reservation(PIECE) as first, hip.reservation(PIECE, hint=hint) as second:
        assert second != hint
        assert abs(first - second) >= PIECE


def test_two_reservations_do_not_overlap(hip: Hip) -> None:
    size = 8 * MIB
    with hip.reservation(size) as first, hip.reservation(size) as second:
        assert abs(first - second) >= size


def test_reserving_costs_no_device_memory(hip: Hip) -> None:
    before = hip.free_memory()
    with hip.reservation(1 << 36):
        assert hip.free_memory() == before


def test_a_copy_into_a_reserved_unmapped_range_is_refused(hip: Hip, simulator: Simulator) -> None:
    with hip.reservation(MIB) as address:
        assert hip.write(address, b"x") == INVALID_VALUE


def test_a_small_reservation_succeeds(hip: Hip) -> None:
    address = c_void_p()
    assert hip.hipMemAddressReserve(ctypes.byref(address), hip.granularity(), 0, None, 0) == SUCCESS
    assert hip.hipMemAddressFree(address, hip.granularity()) == SUCCESS
