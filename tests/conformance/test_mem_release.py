"""hipMemRelease: one reference less; the memory goes when mappings have gone too."""

import ctypes
from ctypes import c_void_p

import pytest

from .hip import DANGLING, INVALID_VALUE, MIB, SUCCESS, Hip, access, prop

pytestmark = [pytest.mark.function("hipMemRelease"), pytest.mark.needs("vmm")]

SIZE = 2 * MIB


def create(hip: Hip) -> int:
    handle: int = hip.get("hipMemCreate", c_void_p, SIZE, ctypes.byref(prop()), 0)
    return handle


def test_null_is_invalid(hip: Hip) -> None:
    assert hip.hipMemRelease(None) == INVALID_VALUE


@pytest.mark.needs("handle checks")
def test_what_is_no_handle_is_invalid(hip: Hip) -> None:
    assert hip.hipMemRelease(DANGLING) == INVALID_VALUE


@pytest.mark.needs("handle checks")
def test_a_second_release_is_invalid(hip: Hip) -> None:
    handle = create(hip)

    assert hip.hipMemRelease(handle) == SUCCESS
    assert hip.hipMemRelease(handle) == INVALID_VALUE


def test_release_right_after_map_keeps_the_memory(hip: Hip) -> None:
    with hip.reservation(SIZE) as address:
        handle = create(hip)
        assert hip.hipMemMap(address, SIZE, 0, handle, 0) == SUCCESS
        assert hip.hipMemRelease(handle) == SUCCESS
        assert hip.hipMemSetAccess(address, SIZE, ctypes.byref(access(0)), 1) == SUCCESS
        assert hip.write(address, b"alive") == SUCCESS

        assert hip.read(address, 5) == b"alive"
        assert hip.hipMemUnmap(address, SIZE) == SUCCESS


def test_memory_comes_back_with_the_last_unmap_after_release(hip: Hip) -> None:
    before = hip.free_memory()
    with hip.reservation(SIZE) as address:
        handle = create(hip)
        hip.hipMemMap(address, SIZE, 0, handle, 0)
        hip.hipMemRelease(handle)
        while_mapped = hip.free_memory()
        hip.hipMemUnmap(address, SIZE)

        assert while_mapped <= before - SIZE
        assert hip.free_memory() == before


def test_memory_comes_back_with_release_after_unmap(hip: Hip) -> None:
    before = hip.free_memory()
    with hip.reservation(SIZE) as address:
        handle = create(hip)
        hip.hipMemMap(address, SIZE, 0, handle, 0)
        hip.hipMemUnmap(address, SIZE)
        assert hip.free_memory() <= before - SIZE
        hip.hipMemRelease(handle)

        assert hip.free_memory() == before


@pytest.mark.needs("handle checks")
def test_release_of_a_handle_that_only_a_mapping_holds_is_invalid(hip: Hip) -> None:
    with hip.reservation(SIZE) as address:
        handle = create(hip)
        hip.hipMemMap(address, SIZE, 0, handle, 0)
        hip.hipMemRelease(handle)

        assert hip.hipMemRelease(handle) == INVALID_VALUE
        assert hip.hipMemUnmap(address, SIZE) == SUCCESS


@pytest.mark.needs("handle checks")
def test_new_memory_is_zero_where_old_memory_was(hip: Hip) -> None:
    """Not a promise of HIP; here it shows that released pages are freed."""
    for _ in range(2):
        with hip.mapped(SIZE, access(0)) as address:
            assert hip.read(address, 4) == bytes(4)
            assert hip.write(address, b"dirt") == SUCCESS
