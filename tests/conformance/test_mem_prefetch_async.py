"""hipMemPrefetchAsync and _v2: where a range was last sent."""

import ctypes
from ctypes import c_int

import pytest

from .hip import (
    CONTEXT_DESTROYED,
    CPU,
    DANGLING,
    DEVICE,
    HOST,
    INVALID_DEVICE,
    INVALID_VALUE,
    MIB,
    NOT_SUPPORTED,
    NOWHERE,
    SUCCESS,
    Hip,
    Location,
)

pytestmark = [pytest.mark.function("hipMemPrefetchAsync"), pytest.mark.needs("managed")]


def last(hip: Hip, address: int, size: int) -> int:
    assert hip.hipDeviceSynchronize() == SUCCESS
    value: int = hip.get("hipMemRangeGetAttribute", c_int, 4, 4, address, size)
    return value


def test_null_and_count_zero_are_invalid(hip: Hip) -> None:
    with hip.managed(MIB) as address:
        assert hip.hipMemPrefetchAsync(None, MIB, 0, None) == INVALID_VALUE
        assert hip.hipMemPrefetchAsync(address, 0, 0, None) == INVALID_VALUE


def test_more_than_the_allocation_is_invalid(hip: Hip) -> None:
    with hip.managed(MIB) as address:
        assert hip.hipMemPrefetchAsync(address, MIB + 1, 0, None) == INVALID_VALUE


@pytest.mark.parametrize("device", [-2, 99])
def test_a_bad_device_is_invalid_device(hip: Hip, device: int) -> None:
    with hip.managed(MIB) as address:
        assert hip.hipMemPrefetchAsync(address, MIB, device, None) == INVALID_DEVICE


def test_the_range_is_looked_at_before_the_device(hip: Hip) -> None:
    with hip.managed(MIB) as address:
        assert hip.hipMemPrefetchAsync(address, MIB + 1, 99, None) == INVALID_VALUE


@pytest.mark.needs("handle checks")
def test_a_bad_stream_has_the_release_s_code(hip: Hip) -> None:
    with hip.managed(MIB) as address:
        code = hip.hipMemPrefetchAsync(address, MIB, 0, DANGLING)

        assert code == (INVALID_VALUE if hip.version >= (7, 0) else CONTEXT_DESTROYED)


@pytest.mark.needs("pageable refused")
def test_pageable_memory_to_a_device_is_not_supported_without_xnack(hip: Hip) -> None:
    here = ctypes.create_string_buffer(8192)
    assert hip.hipMemPrefetchAsync(here, 8192, 0, None) == NOT_SUPPORTED


def test_before_any_prefetch_there_is_no_place(hip: Hip) -> None:
    with hip.managed(MIB) as address:
        assert last(hip, address, MIB) == NOWHERE


@pytest.mark.parametrize("device", [0, CPU])
def test_the_location_is_reported_after_synchronising(hip: Hip, device: int) -> None:
    with hip.managed(MIB) as address, hip.stream() as stream:
        assert hip.hipMemPrefetchAsync(address, MIB, device, stream) == SUCCESS
        assert hip.hipStreamSynchronize(stream) == SUCCESS

        assert last(hip, address, MIB) == device


def test_ranges_are_rounded_outward_to_pages(hip: Hip) -> None:
    with hip.managed(3 * 4096) as address:
        hip.hipMemPrefetchAsync(address + 4097, 1, 0, None)

        assert [last(hip, address + page * 4096, 4096) for page in range(3)] == [NOWHERE, 0, NOWHERE]


def test_data_stays_what_it_was(hip: Hip) -> None:
    with hip.managed(MIB) as address:
        ctypes.memset(address, 0x42, MIB)
        hip.hipMemPrefetchAsync(address, MIB, 0, None)
        hip.hipMemPrefetchAsync(address, MIB, CPU, None)

        assert hip.read(address, 2) == b"BB"


def test_ordinary_device_memory_passes_and_nothing_happens(hip: Hip) -> None:
    with hip.buffer(MIB) as address:
        assert hip.hipMemPrefetchAsync(address, MIB, 0, None) == SUCCESS


@pytest.mark.function("hipMemPrefetchAsync_v2")
def test_v2_is_not_there_before_7_1(hip: Hip) -> None:
    with hip.managed(MIB) as address:
        code = hip.hipMemPrefetchAsync_v2(address, MIB, Location(DEVICE, 0), 0, None)

        assert code == (SUCCESS if hip.version >= (7, 1) else NOT_SUPPORTED)


@pytest.mark.function("hipMemPrefetchAsync_v2")
@pytest.mark.needs("location calls")
def test_v2_refuses_flags_and_takes_unknown_locations_for_devices(hip: Hip) -> None:
    with hip.managed(MIB) as address:
        assert hip.hipMemPrefetchAsync_v2(address, MIB, Location(DEVICE, 0), 1, None) == INVALID_VALUE
        assert hip.hipMemPrefetchAsync_v2(address, MIB, Location(9, 0), 0, None) == SUCCESS
        assert last(hip, address, MIB) == 0
        assert hip.hipMemPrefetchAsync_v2(address, MIB, Location(9, 99), 0, None) == INVALID_DEVICE


@pytest.mark.function("hipMemPrefetchAsync_v2")
@pytest.mark.needs("location calls")
@pytest.mark.parametrize(("location", "place"), [((DEVICE, 0), 0), ((HOST, 0), CPU), ((4, 0), CPU)])
def test_v2_takes_devices_and_the_host(hip: Hip, location: tuple[int, int], place: int) -> None:
    with hip.managed(MIB) as address:
        assert hip.hipMemPrefetchAsync_v2(address, MIB, Location(*location), 0, None) == SUCCESS
        assert last(hip, address, MIB) == place
