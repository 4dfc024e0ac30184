"""hipMemMap: a handle's memory at an address, which no device may access yet."""

import ctypes

import pytest

from .hip import DANGLING, ILLEGAL_ADDRESS, INVALID_VALUE, MIB, SUCCESS, Hip, access, prop
from .sim import Simulator

pytestmark = [pytest.mark.function("hipMemMap"), pytest.mark.needs("vmm")]

SIZE = 2 * MIB


@pytest.mark.parametrize(
    ("size", "offset", "flags"), [(0, 0, 0), (SIZE, 4096, 0), (SIZE, 0, 1)], ids=["size", "offset", "flags"]
)
def test_bad_numbers_are_invalid(hip: Hip, size: int, offset: int, flags: int) -> None:
    with hip.reservation(SIZE) as address, hip.allocation(SIZE) as handle:
        assert hip.hipMemMap(address, size, offset, handle, flags) == INVALID_VALUE


def test_nulls_are_invalid(hip: Hip) -> None:
    with hip.reservation(SIZE) as address, hip.allocation(SIZE) as handle:
        assert hip.hipMemMap(None, SIZE, 0, handle, 0) == INVALID_VALUE
        assert hip.hipMemMap(address, SIZE, 0, None, 0) == INVALID_VALUE


@pytest.mark.needs("handle checks")
def test_what_is_no_handle_is_invalid(hip: Hip) -> None:
    with hip.reservation(SIZE) as address:
        assert hip.hipMemMap(address, SIZE, 0, DANGLING, 0) == INVALID_VALUE


@pytest.mark.needs("handle checks")
def test_an_address_outside_all_reservations_is_refused(hip: Hip) -> None:
    with hip.reservation(SIZE) as address:
        pass
    with hip.allocation(SIZE) as handle:
        assert hip.hipMemMap(address, SIZE, 0, handle, 0) == INVALID_VALUE


@pytest.mark.needs("handle checks")
def test_a_range_past_the_end_of_its_reservation_is_refused(hip: Hip) -> None:
    with hip.reservation(SIZE) as address, hip.allocation(SIZE) as handle:
        assert hip.hipMemMap(address + MIB, SIZE, 0, handle, 0) == INVALID_VALUE


@pytest.mark.needs("handle checks")
def test_a_range_that_wraps_round_is_refused(hip: Hip) -> None:
    with hip.reservation(SIZE) as address, hip.allocation(SIZE) as handle:
        assert hip.hipMemMap(address, (1 << 64) - 4096, 0, handle, 0) == INVALID_VALUE


@pytest.mark.needs("handle checks")
def test_more_than_the_handle_holds_is_refused(hip: Hip) -> None:
    with hip.reservation(2 * SIZE) as address, hip.allocation(SIZE) as handle:
        assert hip.hipMemMap(address, 2 * SIZE, 0, handle, 0) == INVALID_VALUE


@pytest.mark.needs("handle checks")
@pytest.mark.parametrize("where", [0, MIB, -MIB], ids=["same", "tail", "head"])
def test_a_mapped_range_is_not_replaced(hip: Hip, where: int) -> None:
    with (
        hip.reservation(3 * SIZE) as address,
        hip.allocation(SIZE) as first,
        hip.allocation(SIZE) as second,
        hip.mapping(address + SIZE, SIZE, first),
    ):
        assert hip.hipMemMap(address + SIZE + where, SIZE, 0, second, 0) == INVALID_VALUE


@pytest.mark.needs("handle checks")
def test_an_address_off_the_page_is_refused(hip: Hip) -> None:
    with hip.reservation(2 * SIZE) as address, hip.allocation(SIZE) as handle:
        assert hip.hipMemMap(address + 16, SIZE, 0, handle, 0) == INVALID_VALUE


def test_after_map_no_device_has_access_not_even_the_owner(hip: Hip, simulator: Simulator) -> None:
    with hip.mapped(SIZE) as address:
        assert hip.write(address, b"x") == ILLEGAL_ADDRESS


def test_less_than_the_handle_may_be_mapped_from_its_start(hip: Hip) -> None:
    with (
        hip.reservation(2 * SIZE) as address,
        hip.allocation(2 * SIZE) as handle,
        hip.mapping(address, SIZE, handle, access(0)),
    ):
        assert hip.write(address + SIZE - 1, b"x") == SUCCESS


def test_one_handle_at_two_addresses_is_one_memory(hip: Hip) -> None:
    with (
        hip.reservation(2 * SIZE) as address,
        hip.allocation(SIZE) as handle,
        hip.mapping(address, SIZE, handle, access(0)) as first,
        hip.mapping(address + SIZE, SIZE, handle, access(0)) as second,
    ):
        hip.write(first + 100, b"alias")

        assert hip.read(second + 100, 5) == b"alias"


@pytest.mark.needs("two devices")
def test_one_reservation_holds_pieces_of_several_devices(hip: Hip) -> None:
    with (
        hip.reservation(2 * SIZE) as address,
        hip.allocation(SIZE, prop(0)) as first,
        hip.allocation(SIZE, prop(1)) as second,
        hip.mapping(address, SIZE, first, access(0)),
        hip.mapping(address + SIZE, SIZE, second, access(1)),
    ):
        hip.hipSetDevice(0)
        assert hip.write(address, b"a" * SIZE) == SUCCESS
        hip.hipSetDevice(1)
        assert hip.write(address + SIZE, b"b" * SIZE) == SUCCESS
        assert hip.read(address + SIZE, 2) == b"bb"


@pytest.mark.needs("two devices")
def test_one_gpu_carries_out_a_copy_over_pieces_of_several_devices(hip: Hip, simulator: Simulator) -> None:
    """HIP returns Success and the GPU faults where it has no access, so nothing of it may pass for done."""
    with (
        hip.reservation(2 * SIZE) as address,
        hip.allocation(SIZE, prop(0)) as first,
        hip.allocation(SIZE, prop(1)) as second,
        hip.mapping(address, SIZE, first, access(0)),
        hip.mapping(address + SIZE, SIZE, second, access(1)),
    ):
        assert hip.write(address, b"a" * 2 * SIZE) == ILLEGAL_ADDRESS


def test_the_same_range_can_be_mapped_again_after_unmap(hip: Hip) -> None:
    with hip.reservation(SIZE) as address, hip.allocation(SIZE) as handle:
        with hip.mapping(address, SIZE, handle, access(0)):
            hip.write(address, b"kept")
        with hip.mapping(address, SIZE, handle, access(0)):
            assert hip.read(address, 4) == b"kept"


def test_a_remapped_piece_starts_without_access(hip: Hip, simulator: Simulator) -> None:
    with hip.reservation(SIZE) as address, hip.allocation(SIZE) as handle:
        with hip.mapping(address, SIZE, handle, access(0)):
            pass
        with hip.mapping(address, SIZE, handle):
            assert hip.write(address, b"x") == ILLEGAL_ADDRESS


def test_mapping_charges_nothing(hip: Hip) -> None:
    with hip.reservation(SIZE) as address, hip.allocation(SIZE) as handle:
        before = hip.free_memory()
        with hip.mapping(address, SIZE, handle, access(0)):
            assert hip.free_memory() == before


def test_a_refused_map_leaves_the_handle_s_count_alone(hip: Hip, simulator: Simulator) -> None:
    before = hip.free_memory()
    with hip.reservation(SIZE) as address, hip.allocation(SIZE) as handle:
        hip.hipMemMap(address, 2 * SIZE, 0, handle, 0)

    assert hip.free_memory() == before


def test_all_arguments_are_checked_before_the_handle(hip: Hip) -> None:
    assert hip.hipMemMap(ctypes.c_void_p(4096), 0, 0, None, 0) == INVALID_VALUE
