"""hipMemCreate: physical memory, allocated at once, which no device can access yet."""

import ctypes
from ctypes import c_void_p

import pytest

from .hip import (
    HOST,
    INVALID_DEVICE,
    INVALID_VALUE,
    NOT_SUPPORTED,
    OUT_OF_MEMORY,
    PIECE,
    POSIX_FD,
    SUCCESS,
    UNCACHED,
    WIN32,
    AllocationProp,
    Hip,
    prop,
)
from .sim import Simulator

pytestmark = [pytest.mark.function("hipMemCreate"), pytest.mark.needs("vmm")]


def create(hip: Hip, size: int, properties: AllocationProp | None = None, flags: int = 0) -> int:
    handle = c_void_p()
    code = hip.hipMemCreate(ctypes.byref(handle), size, ctypes.byref(properties or prop()), flags)
    if code == SUCCESS:
        assert hip.hipMemRelease(handle) == SUCCESS
    return code


def bad_device(hip: Hip) -> int:
    return INVALID_DEVICE if hip.version >= (7, 0) else INVALID_VALUE


def test_a_null_handle_is_invalid(hip: Hip) -> None:
    assert hip.hipMemCreate(None, PIECE, ctypes.byref(prop()), 0) == INVALID_VALUE


def test_null_properties_are_invalid(hip: Hip) -> None:
    assert hip.hipMemCreate(ctypes.byref(c_void_p()), PIECE, None, 0) == INVALID_VALUE


def test_size_zero_is_invalid(hip: Hip) -> None:
    assert create(hip, 0) == INVALID_VALUE


def test_flags_are_invalid(hip: Hip) -> None:
    assert create(hip, PIECE, flags=1) == INVALID_VALUE


@pytest.mark.parametrize("kind", [0, 3, 0x7FFFFFFF])
def test_an_unknown_type_is_invalid(hip: Hip, kind: int) -> None:
    assert create(hip, PIECE, prop(kind=kind)) == INVALID_VALUE


def test_uncached_memory_exists_since_7_0(hip: Hip) -> None:
    assert create(hip, PIECE, prop(kind=UNCACHED)) == (SUCCESS if hip.version >= (7, 0) else INVALID_VALUE)


@pytest.mark.parametrize("location", [0, 5])
def test_an_unknown_location_type_is_invalid(hip: Hip, location: int) -> None:
    assert create(hip, PIECE, prop(location=location)) == INVALID_VALUE


def test_memory_on_the_host_exists_since_7_2(hip: Hip) -> None:
    assert create(hip, PIECE, prop(location=HOST)) == (SUCCESS if hip.version >= (7, 2) else INVALID_VALUE)


@pytest.mark.parametrize("device", [-1, 99])
def test_a_bad_device_has_the_release_s_code(hip: Hip, device: int) -> None:
    assert create(hip, PIECE, prop(device)) == bad_device(hip)


def test_a_handle_type_of_windows_is_not_supported(hip: Hip) -> None:
    assert create(hip, PIECE, prop(handle=WIN32)) == NOT_SUPPORTED


@pytest.mark.needs("export")
def test_a_shareable_allocation_can_be_asked_for(hip: Hip) -> None:
    assert create(hip, PIECE, prop(handle=POSIX_FD)) == SUCCESS


def test_the_location_is_checked_before_the_handle_type(hip: Hip) -> None:
    assert create(hip, PIECE, prop(99, handle=WIN32)) == bad_device(hip)


def test_a_size_off_the_buffer_alignment_is_invalid(hip: Hip) -> None:
    assert create(hip, hip.granularity() - 1) == INVALID_VALUE


def test_half_a_page_passes_hip_and_fails_below_it(hip: Hip) -> None:
    assert create(hip, 2048) == OUT_OF_MEMORY


def test_more_than_the_host_s_memory_is_out_of_memory_even_off_the_alignment(hip: Hip) -> None:
    assert create(hip, (1 << 60) + 1) == OUT_OF_MEMORY


def test_more_than_the_device_s_memory_is_out_of_memory(hip: Hip) -> None:
    # CUDA gives out up to some megabytes more than it says is free.
    assert create(hip, hip.free_memory() // PIECE * PIECE + 512 * PIECE) == OUT_OF_MEMORY


def test_memory_is_charged_at_create_and_returned_at_release(hip: Hip) -> None:
    before = hip.free_memory()
    with hip.allocation(32 * PIECE):
        assert hip.free_memory() <= before - 32 * PIECE

    assert hip.free_memory() == before


@pytest.mark.needs("two devices")
def test_memory_is_charged_to_the_device_of_its_location(hip: Hip) -> None:
    hip.hipSetDevice(0)
    before = hip.free_memory()
    with hip.allocation(32 * PIECE, prop(1)):
        hip.hipSetDevice(0)
        assert hip.free_memory() == before


def test_after_a_failure_the_handle_is_untouched(hip: Hip) -> None:
    handle = c_void_p(7)

    hip.hipMemCreate(ctypes.byref(handle), PIECE, ctypes.byref(prop(99)), 0)

    assert handle.value == 7


def test_a_full_device_can_be_filled_to_the_page(hip: Hip, simulator: Simulator) -> None:
    with hip.allocation(hip.free_memory()):
        assert hip.free_memory() == 0
        assert create(hip, 4096) == OUT_OF_MEMORY
