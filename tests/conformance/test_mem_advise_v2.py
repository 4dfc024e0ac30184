"""hipMemAdvise_v2: the same by location, since 7.1."""

import pytest

from .hip import DEVICE, HOST, INVALID_DEVICE, INVALID_VALUE, MIB, NOT_SUPPORTED, SUCCESS, Hip, Location

pytestmark = [pytest.mark.function("hipMemAdvise_v2"), pytest.mark.needs("managed")]


def test_it_is_not_there_before_7_1(hip: Hip) -> None:
    with hip.managed(MIB) as address:
        code = hip.hipMemAdvise_v2(address, MIB, 3, Location(DEVICE, 0))

        assert code == (SUCCESS if hip.version >= (7, 1) else NOT_SUPPORTED)


@pytest.mark.needs("location calls")
def test_pointer_then_location_type_then_device_are_checked(hip: Hip) -> None:
    with hip.managed(MIB) as address:
        assert hip.hipMemAdvise_v2(None, MIB, 3, Location(9, 99)) == INVALID_VALUE
        assert hip.hipMemAdvise_v2(address, MIB, 3, Location(9, 99)) == INVALID_VALUE
        assert hip.hipMemAdvise_v2(address, MIB, 3, Location(DEVICE, 99)) == INVALID_DEVICE


@pytest.mark.needs("location calls")
def test_a_host_location_is_the_cpu(hip: Hip) -> None:
    from ctypes import c_int

    with hip.managed(MIB) as address:
        assert hip.hipMemAdvise_v2(address, MIB, 3, Location(HOST, 0)) == SUCCESS
        assert hip.get("hipMemRangeGetAttribute", c_int, 4, 2, address, MIB) == -1
