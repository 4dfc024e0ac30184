"""hipMemSetAccess: who may touch a piece; whole pieces, one right per piece and device."""

import ctypes
from collections.abc import Sequence

import pytest

from .hip import (
    DANGLING,
    HOST,
    ILLEGAL_ADDRESS,
    INVALID_VALUE,
    MIB,
    NONE,
    READ,
    READ_WRITE,
    SUCCESS,
    AccessDesc,
    Hip,
    Location,
    access,
    prop,
)
from .sim import Simulator

pytestmark = [pytest.mark.function("hipMemSetAccess"), pytest.mark.needs("vmm")]

SIZE = 2 * MIB


def grant(hip: Hip, address: int, size: int, descs: Sequence[AccessDesc]) -> int:
    return hip.hipMemSetAccess(address, size, (AccessDesc * len(descs))(*descs), len(descs))


def right(hip: Hip, address: int, device: int) -> int:
    value: int = hip.get("hipMemGetAccess", ctypes.c_ulonglong, ctypes.byref(Location(1, device)), address)
    return value


def test_nulls_and_zeros_are_invalid(hip: Hip) -> None:
    with hip.mapped(SIZE) as address:
        desc = ctypes.byref(access(0))
        assert hip.hipMemSetAccess(None, SIZE, desc, 1) == INVALID_VALUE
        assert hip.hipMemSetAccess(address, 0, desc, 1) == INVALID_VALUE
        assert hip.hipMemSetAccess(address, SIZE, None, 1) == INVALID_VALUE
        assert hip.hipMemSetAccess(address, SIZE, desc, 0) == INVALID_VALUE


@pytest.mark.parametrize("device", [-1, 99])
def test_a_bad_device_is_invalid(hip: Hip, device: int) -> None:
    with hip.mapped(SIZE) as address:
        assert grant(hip, address, SIZE, [access(device)]) == INVALID_VALUE


@pytest.mark.parametrize("flags", [2, 4, 8])
def test_bad_flags_are_invalid(hip: Hip, flags: int) -> None:
    with hip.mapped(SIZE) as address:
        assert grant(hip, address, SIZE, [access(0, flags)]) == INVALID_VALUE


@pytest.mark.parametrize("location", [0, 7])
def test_the_location_type_is_checked_since_7_0(hip: Hip, location: int) -> None:
    with hip.mapped(SIZE) as address:
        code = grant(hip, address, SIZE, [access(0, location=location)])

        assert code == (INVALID_VALUE if hip.version >= (7, 0) else SUCCESS)


def test_an_unmapped_or_unreserved_address_is_invalid(hip: Hip) -> None:
    with hip.reservation(SIZE) as address:
        assert grant(hip, address, SIZE, [access(0)]) == INVALID_VALUE
    assert grant(hip, DANGLING, SIZE, [access(0)]) == INVALID_VALUE


@pytest.mark.parametrize("off", [-1, -4096])
def test_less_than_whole_pieces_is_invalid_since_7_0_and_rounded_up_before(hip: Hip, off: int) -> None:
    with hip.mapped(SIZE) as address:
        code = grant(hip, address, SIZE + off, [access(0)])

        assert code == (INVALID_VALUE if hip.version >= (7, 0) else SUCCESS)
        assert right(hip, address, 0) == (NONE if hip.version >= (7, 0) else READ_WRITE)


@pytest.mark.parametrize("off", [1, 4096, SIZE])
def test_more_than_the_pieces_is_invalid(hip: Hip, off: int) -> None:
    with hip.mapped(SIZE) as address:
        assert grant(hip, address, SIZE + off, [access(0)]) == INVALID_VALUE


def test_an_address_inside_a_piece_is_invalid(hip: Hip) -> None:
    with hip.mapped(SIZE) as address:
        assert grant(hip, address + MIB, MIB, [access(0)]) == INVALID_VALUE


def test_several_contiguous_pieces_take_one_call(hip: Hip) -> None:
    with (
        hip.reservation(2 * SIZE) as address,
        hip.allocation(SIZE) as handle,
        hip.mapping(address, SIZE, handle),
        hip.mapping(address + SIZE, SIZE, handle),
    ):
        assert grant(hip, address, 2 * SIZE, [access(0)]) == SUCCESS
        assert right(hip, address, 0) == right(hip, address + SIZE, 0) == READ_WRITE


def test_the_tail_alone_can_be_granted(hip: Hip, simulator: Simulator) -> None:
    """7.0 to 7.2 get this wrong on hardware: the quirk set_access_sums_in_heap_order."""
    with (
        hip.reservation(3 * SIZE) as address,
        hip.allocation(2 * SIZE) as big,
        hip.allocation(SIZE) as small,
        hip.mapping(address, 2 * SIZE, big),
        hip.mapping(address + 2 * SIZE, SIZE, small),
    ):
        assert grant(hip, address + 2 * SIZE, SIZE, [access(0)]) == SUCCESS
        assert right(hip, address, 0) == NONE


def test_pieces_with_a_hole_between_them_are_invalid(hip: Hip) -> None:
    with (
        hip.reservation(3 * SIZE) as address,
        hip.allocation(SIZE) as handle,
        hip.mapping(address, SIZE, handle),
        hip.mapping(address + 2 * SIZE, SIZE, handle),
    ):
        assert grant(hip, address, 3 * SIZE, [access(0)]) == INVALID_VALUE
        assert grant(hip, address, 2 * SIZE, [access(0)]) == INVALID_VALUE


def test_the_range_must_be_in_one_reservation(hip: Hip) -> None:
    with (
        hip.reservation(SIZE) as first,
        hip.reservation(SIZE, hint=first + SIZE) as second,
        hip.allocation(SIZE) as handle,
        hip.mapping(first, SIZE, handle),
        hip.mapping(second, SIZE, handle),
    ):
        assert grant(hip, min(first, second), 2 * SIZE, [access(0)]) == INVALID_VALUE


def test_descriptors_before_a_bad_one_stay_applied(hip: Hip) -> None:
    with hip.mapped(SIZE) as address:
        assert grant(hip, address, SIZE, [access(0), access(99)]) == INVALID_VALUE
        assert right(hip, address, 0) == READ_WRITE


def test_the_same_right_again_changes_nothing(hip: Hip) -> None:
    with hip.mapped(SIZE, access(0), access(0)) as address:
        assert right(hip, address, 0) == READ_WRITE


def test_none_takes_the_right_away(hip: Hip) -> None:
    with hip.mapped(SIZE, access(0), access(0, NONE)) as address:
        assert right(hip, address, 0) == NONE


def test_without_the_right_copies_are_refused(hip: Hip, simulator: Simulator) -> None:
    with hip.mapped(SIZE, access(0), access(0, NONE)) as address:
        assert hip.write(address, b"x") == ILLEGAL_ADDRESS


def test_a_read_only_piece_can_be_read_and_not_written(hip: Hip, simulator: Simulator) -> None:
    with hip.mapped(SIZE, access(0, READ)) as address:
        assert hip.read(address, 4) == bytes(4)
        assert hip.write(address, b"x") == ILLEGAL_ADDRESS
        assert hip.hipMemset(address, 1, 16) == ILLEGAL_ADDRESS


@pytest.mark.needs("peers")
def test_a_peer_needs_no_peer_access_for_mapped_memory(hip: Hip, simulator: Simulator) -> None:
    with hip.mapped(SIZE, access(1)) as address:
        assert simulator.touch(1, address, SIZE) == 0
        assert simulator.touch(0, address, SIZE) == 700


@pytest.mark.needs("a device out of reach")
def test_a_device_out_of_reach_is_invalid(hip: Hip) -> None:
    with hip.mapped(SIZE) as address:
        assert grant(hip, address, SIZE, [access(2)]) == INVALID_VALUE


@pytest.mark.needs("host location")
def test_the_host_may_have_host_memory_only_before_10_0(hip: Hip) -> None:
    """That is the manual's word; the library gives it device memory since 7.2."""
    with hip.mapped(SIZE) as address:
        expected = SUCCESS if hip.version >= (7, 2) else INVALID_VALUE
        assert grant(hip, address, SIZE, [access(0, location=HOST)]) == expected
    with (
        hip.reservation(SIZE) as address,
        hip.allocation(SIZE, prop(location=HOST)) as handle,
        hip.mapping(address, SIZE, handle),
    ):
        assert grant(hip, address, SIZE, [access(0, location=HOST), access(0)]) == SUCCESS
        for no_device in (-1, hip.devices):
            assert grant(hip, address, SIZE, [access(no_device, location=HOST)]) == INVALID_VALUE
        ctypes.memset(address, 0x41, 16)
        assert hip.read(address, 4) == b"AAAA"
