"""hipMemAdvise: flags on whole pages of a managed range; no data moves."""

import ctypes
from ctypes import c_int

import pytest

from .hip import CPU, INVALID_DEVICE, INVALID_VALUE, MIB, NOWHERE, SUCCESS, Hip
from .sim import Simulator

pytestmark = [pytest.mark.function("hipMemAdvise"), pytest.mark.needs("managed")]

SET_READ_MOSTLY, UNSET_READ_MOSTLY, SET_PREFERRED, UNSET_PREFERRED, SET_ACCESSED_BY, UNSET_ACCESSED_BY = range(1, 7)
SET_COARSE, UNSET_COARSE = 100, 101
READ_MOSTLY, PREFERRED, ACCESSED_BY, LAST_PREFETCH, COHERENCY = 1, 2, 3, 4, 100
ALL = [1, 2, 3, 4, 5, 6, 100, 101]


def ask(hip: Hip, attribute: int, address: int, size: int) -> int:
    value: int = hip.get("hipMemRangeGetAttribute", c_int, 4, attribute, address, size)
    return value


def test_null_and_count_zero_are_invalid(hip: Hip) -> None:
    with hip.managed(MIB) as address:
        assert hip.hipMemAdvise(None, MIB, SET_READ_MOSTLY, 0) == INVALID_VALUE
        assert hip.hipMemAdvise(address, 0, SET_READ_MOSTLY, 0) == INVALID_VALUE


def test_the_device_is_checked_first_before_7_1(hip: Hip) -> None:
    code = hip.hipMemAdvise(None, 0, SET_PREFERRED, 99)

    assert code == (INVALID_VALUE if hip.version >= (7, 1) else INVALID_DEVICE)


@pytest.mark.parametrize("device", [-2, 99])
@pytest.mark.parametrize("advice", [3, 4, 5, 6, 100, 101])
def test_a_bad_device_is_invalid_device(hip: Hip, advice: int, device: int) -> None:
    with hip.managed(MIB) as address:
        assert hip.hipMemAdvise(address, MIB, advice, device) == INVALID_DEVICE


@pytest.mark.parametrize("advice", [SET_READ_MOSTLY, UNSET_READ_MOSTLY])
def test_read_mostly_ignores_the_device(hip: Hip, advice: int) -> None:
    with hip.managed(MIB) as address:
        assert hip.hipMemAdvise(address, MIB, advice, 99) == SUCCESS


@pytest.mark.parametrize("advice", [0, 7, 99, 102])
def test_an_unknown_advice_is_invalid(hip: Hip, advice: int) -> None:
    with hip.managed(MIB) as address:
        assert hip.hipMemAdvise(address, MIB, advice, 0) == INVALID_VALUE


def test_more_than_the_allocation_is_invalid(hip: Hip) -> None:
    with hip.managed(MIB) as address:
        assert hip.hipMemAdvise(address, MIB + 1, SET_READ_MOSTLY, 0) == INVALID_VALUE
        assert hip.hipMemAdvise(address + 4096, MIB, SET_READ_MOSTLY, 0) == INVALID_VALUE


@pytest.mark.parametrize("advice", ALL)
@pytest.mark.parametrize("device", [CPU, 0])
def test_every_advice_is_taken_for_the_cpu_and_a_device(hip: Hip, advice: int, device: int) -> None:
    with hip.managed(MIB) as address:
        assert hip.hipMemAdvise(address, MIB, advice, device) == SUCCESS


def test_advice_never_moves_data(hip: Hip) -> None:
    with hip.managed(MIB) as address:
        for advice in ALL:
            hip.hipMemAdvise(address, MIB, advice, 0)

        assert ask(hip, LAST_PREFETCH, address, MIB) == NOWHERE


def test_ranges_are_rounded_outward_to_pages(hip: Hip) -> None:
    with hip.managed(4 * 4096) as address:
        assert hip.hipMemAdvise(address + 4100, 10, SET_READ_MOSTLY, 0) == SUCCESS

        pages = [ask(hip, READ_MOSTLY, address + page * 4096, 4096) for page in range(4)]
        assert pages == [0, 1, 0, 0]


def test_unset_takes_back_part_of_what_set_gave(hip: Hip) -> None:
    with hip.managed(4 * 4096) as address:
        hip.hipMemAdvise(address, 4 * 4096, SET_READ_MOSTLY, 0)
        hip.hipMemAdvise(address + 4096, 2 * 4096, UNSET_READ_MOSTLY, 0)

        pages = [ask(hip, READ_MOSTLY, address + page * 4096, 4096) for page in range(4)]
        assert pages == [1, 0, 0, 1]


def test_the_flags_do_not_disturb_one_another(hip: Hip) -> None:
    with hip.managed(MIB) as address:
        hip.hipMemAdvise(address, MIB, SET_READ_MOSTLY, 0)
        hip.hipMemAdvise(address, MIB, SET_PREFERRED, CPU)
        hip.hipMemAdvise(address, MIB, SET_ACCESSED_BY, 0)
        hip.hipMemAdvise(address, MIB, SET_COARSE, 0)

        got = [ask(hip, a, address, MIB) for a in (READ_MOSTLY, PREFERRED, ACCESSED_BY, COHERENCY)]
        assert got == [1, CPU, 0, 1]


def test_unset_preferred_location_says_nowhere(hip: Hip) -> None:
    with hip.managed(MIB) as address:
        hip.hipMemAdvise(address, MIB, SET_PREFERRED, 0)
        hip.hipMemAdvise(address, MIB, UNSET_PREFERRED, 0)

        assert ask(hip, PREFERRED, address, MIB) == NOWHERE


def test_advice_goes_with_the_memory(hip: Hip) -> None:
    for _ in range(2):
        with hip.managed(MIB) as address:
            assert ask(hip, READ_MOSTLY, address, MIB) == 0
            hip.hipMemAdvise(address, MIB, SET_READ_MOSTLY, 0)


@pytest.mark.needs("pageable refused")
def test_memory_that_is_not_managed_is_invalid(hip: Hip, simulator: Simulator) -> None:
    with hip.buffer(MIB) as address:
        assert hip.hipMemAdvise(address, MIB, SET_READ_MOSTLY, 0) == INVALID_VALUE
    here = ctypes.create_string_buffer(8192)
    assert hip.hipMemAdvise(here, 8192, SET_READ_MOSTLY, 0) == INVALID_VALUE
