"""hipMemGetAllocationGranularity: the page as minimum; a large page as recommendation since 7.11."""

import ctypes
from ctypes import c_size_t

import pytest

from .hip import HOST, INVALID_VALUE, MINIMUM, RECOMMENDED, SUCCESS, UNCACHED, AllocationProp, Hip, prop
from .sim import Simulator

pytestmark = [pytest.mark.function("hipMemGetAllocationGranularity"), pytest.mark.needs("vmm")]


def ask(hip: Hip, properties: AllocationProp, option: int = MINIMUM) -> int:
    return hip.hipMemGetAllocationGranularity(ctypes.byref(c_size_t()), ctypes.byref(properties), option)


def test_nulls_are_invalid(hip: Hip) -> None:
    assert hip.hipMemGetAllocationGranularity(None, ctypes.byref(prop()), MINIMUM) == INVALID_VALUE
    assert hip.hipMemGetAllocationGranularity(ctypes.byref(c_size_t()), None, MINIMUM) == INVALID_VALUE


@pytest.mark.parametrize("option", [2, 255])
def test_an_unknown_option_is_invalid(hip: Hip, option: int) -> None:
    assert ask(hip, prop(), option) == INVALID_VALUE


def test_a_bad_type_or_location_or_device_is_invalid(hip: Hip) -> None:
    for properties in (prop(kind=0), prop(location=0), prop(-1), prop(99)):
        assert ask(hip, properties) == INVALID_VALUE


def test_uncached_and_host_follow_the_release(hip: Hip) -> None:
    assert ask(hip, prop(kind=UNCACHED)) == (SUCCESS if hip.version >= (7, 0) else INVALID_VALUE)
    assert ask(hip, prop(location=HOST)) == (SUCCESS if hip.version >= (7, 2) else INVALID_VALUE)


def test_the_minimum_is_a_page(hip: Hip, simulator: Simulator) -> None:
    assert hip.granularity(option=MINIMUM) == 4096


def test_the_recommendation_is_a_page_up_to_7_2_and_two_mebibytes_from_7_11(hip: Hip, simulator: Simulator) -> None:
    assert hip.granularity(option=RECOMMENDED) == (2 << 20 if hip.version >= (7, 11) else 4096)


def test_the_recommendation_is_a_multiple_of_the_minimum(hip: Hip) -> None:
    assert hip.granularity(option=RECOMMENDED) % hip.granularity(option=MINIMUM) == 0
