"""hipMemAddressFree: the whole reservation, whatever the size says, unless something is mapped."""

import pytest

from .hip import DANGLING, INVALID_VALUE, PIECE, SUCCESS, UNKNOWN, Hip, access

pytestmark = [pytest.mark.function("hipMemAddressFree"), pytest.mark.needs("vmm")]


def reserve(hip: Hip, size: int) -> int:
    from ctypes import c_void_p

    address: int = hip.get("hipMemAddressReserve", c_void_p, size, 0, None, 0)
    return address


def test_null_is_invalid(hip: Hip) -> None:
    assert hip.hipMemAddressFree(None, PIECE) == INVALID_VALUE


def test_size_zero_is_invalid_and_frees_nothing(hip: Hip) -> None:
    with hip.reservation(PIECE) as address:
        assert hip.hipMemAddressFree(address, 0) == INVALID_VALUE


@pytest.mark.needs("handle checks")
def test_an_unknown_address_is_invalid(hip: Hip) -> None:
    assert hip.hipMemAddressFree(DANGLING, PIECE) == INVALID_VALUE


@pytest.mark.needs("handle checks")
def test_a_second_free_finds_nothing(hip: Hip) -> None:
    address = reserve(hip, PIECE)

    assert hip.hipMemAddressFree(address, PIECE) == SUCCESS
    assert hip.hipMemAddressFree(address, PIECE) == INVALID_VALUE


def test_the_size_is_ignored(hip: Hip) -> None:
    assert hip.hipMemAddressFree(reserve(hip, 2 * PIECE), PIECE) == SUCCESS


@pytest.mark.needs("handle checks")
def test_an_interior_address_frees_from_the_base(hip: Hip) -> None:
    address = reserve(hip, 2 * PIECE)

    assert hip.hipMemAddressFree(address + PIECE, PIECE) == SUCCESS
    assert hip.hipMemAddressFree(address, PIECE) == INVALID_VALUE


def test_a_range_with_a_mapping_is_in_use(hip: Hip) -> None:
    with hip.mapped(PIECE, access(0)) as address:
        assert hip.hipMemAddressFree(address, PIECE) == UNKNOWN


def test_after_the_failure_the_range_still_works(hip: Hip) -> None:
    with hip.mapped(PIECE, access(0)) as address:
        hip.hipMemAddressFree(address, PIECE)

        assert hip.write(address, b"still here") == SUCCESS


def test_a_freed_range_can_be_reserved_again(hip: Hip) -> None:
    for _ in range(3):
        assert hip.hipMemAddressFree(reserve(hip, 1 << 34), 1 << 34) == SUCCESS
