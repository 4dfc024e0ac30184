"""hipMemUnmap: whole pieces only; the reservation stays."""

import pytest

from .hip import DANGLING, INVALID_VALUE, MIB, SUCCESS, Hip, access

pytestmark = [pytest.mark.function("hipMemUnmap"), pytest.mark.needs("vmm")]

SIZE = 2 * MIB


def test_null_and_size_zero_are_invalid(hip: Hip) -> None:
    with hip.mapped(SIZE) as address:
        assert hip.hipMemUnmap(None, SIZE) == INVALID_VALUE
        assert hip.hipMemUnmap(address, 0) == INVALID_VALUE


@pytest.mark.needs("handle checks")
def test_an_unknown_address_is_invalid(hip: Hip) -> None:
    assert hip.hipMemUnmap(DANGLING, SIZE) == INVALID_VALUE


@pytest.mark.needs("handle checks")
def test_a_reserved_unmapped_address_is_invalid(hip: Hip) -> None:
    with hip.reservation(SIZE) as address:
        assert hip.hipMemUnmap(address, SIZE) == INVALID_VALUE


@pytest.mark.needs("handle checks")
def test_unmapping_twice_is_invalid(hip: Hip) -> None:
    with hip.reservation(SIZE) as address, hip.allocation(SIZE) as handle:
        with hip.mapping(address, SIZE, handle):
            pass
        assert hip.hipMemUnmap(address, SIZE) == INVALID_VALUE


@pytest.mark.needs("handle checks")
@pytest.mark.parametrize("size", [SIZE - 1, SIZE - 4096, SIZE + 4096, 2 * SIZE])
def test_part_of_a_piece_or_more_than_it_is_invalid(hip: Hip, size: int) -> None:
    with hip.mapped(SIZE, access(0)) as address:
        assert hip.hipMemUnmap(address, size) == INVALID_VALUE
        assert hip.write(address, b"still mapped") == SUCCESS


@pytest.mark.needs("handle checks")
def test_an_address_inside_a_piece_is_invalid(hip: Hip) -> None:
    with hip.mapped(SIZE) as address:
        assert hip.hipMemUnmap(address + MIB, MIB) == INVALID_VALUE


@pytest.mark.needs("handle checks")
@pytest.mark.parametrize("at", [1, MIB, SIZE - 1])
def test_since_7_0_the_size_counts_from_the_start_of_the_piece(hip: Hip, at: int) -> None:
    """Whatever address of the piece is given; before, AMD's process ends."""
    with hip.reservation(SIZE) as address, hip.allocation(SIZE) as handle:
        assert hip.hipMemMap(address, SIZE, 0, handle, 0) == SUCCESS
        unmapped = hip.version >= (7, 0)
        assert hip.hipMemUnmap(address + at, SIZE) == (SUCCESS if unmapped else INVALID_VALUE)
        assert hip.hipMemUnmap(address, SIZE) == (INVALID_VALUE if unmapped else SUCCESS)


@pytest.mark.needs("handle checks")
def test_several_contiguous_pieces_in_one_call_work_since_7_0(hip: Hip) -> None:
    with hip.reservation(2 * SIZE) as address, hip.allocation(SIZE) as handle:
        hip.hipMemMap(address, SIZE, 0, handle, 0)
        hip.hipMemMap(address + SIZE, SIZE, 0, handle, 0)
        code = hip.hipMemUnmap(address, 2 * SIZE)
        if code != SUCCESS:
            hip.hipMemUnmap(address, SIZE)
            hip.hipMemUnmap(address + SIZE, SIZE)

        assert code == (SUCCESS if hip.version >= (7, 0) else INVALID_VALUE)


@pytest.mark.needs("handle checks")
def test_pieces_with_a_hole_between_them_are_invalid_and_stay(hip: Hip) -> None:
    with (
        hip.reservation(3 * SIZE) as address,
        hip.allocation(SIZE) as handle,
        hip.mapping(address, SIZE, handle, access(0)),
        hip.mapping(address + 2 * SIZE, SIZE, handle, access(0)),
    ):
        assert hip.hipMemUnmap(address, 3 * SIZE) == INVALID_VALUE
        assert hip.write(address, b"x") == SUCCESS


@pytest.mark.needs("handle checks")
def test_pieces_of_two_adjacent_reservations_are_invalid(hip: Hip) -> None:
    with (
        hip.reservation(SIZE) as one,
        hip.reservation(SIZE, hint=one + SIZE) as two,
        hip.allocation(SIZE) as handle,
        hip.mapping(one, SIZE, handle),
        hip.mapping(two, SIZE, handle),
    ):
        first = min(one, two)
        if abs(one - two) != SIZE:
            pytest.skip("the runtime placed the reservations apart")
        assert hip.hipMemUnmap(first, 2 * SIZE) == INVALID_VALUE


def test_the_reservation_stays(hip: Hip) -> None:
    with hip.reservation(SIZE) as address, hip.allocation(SIZE) as handle:
        for _ in range(3):
            with hip.mapping(address, SIZE, handle, access(0)):
                assert hip.write(address, b"x") == SUCCESS


def test_other_pieces_stay(hip: Hip) -> None:
    with (
        hip.reservation(2 * SIZE) as address,
        hip.allocation(SIZE) as handle,
        hip.mapping(address + SIZE, SIZE, handle, access(0)) as kept,
    ):
        with hip.mapping(address, SIZE, handle):
            pass
        assert hip.write(kept, b"x") == SUCCESS
