"""hipMemImportFromShareableHandle: the same memory under another handle."""

import contextlib
import ctypes
import os
import tempfile
from collections.abc import Iterator
from ctypes import c_int, c_void_p

import pytest

from .hip import INVALID_VALUE, MIB, POSIX_FD, SUCCESS, AllocationProp, Hip, access, prop
from .sim import Simulator

pytestmark = [pytest.mark.function("hipMemImportFromShareableHandle"), pytest.mark.needs("vmm", "export")]

SIZE = 2 * MIB


@contextlib.contextmanager
def exported(hip: Hip, handle: int) -> Iterator[int]:
    fd = hip.get("hipMemExportToShareableHandle", c_int, handle, POSIX_FD, 0)
    yield fd
    os.close(fd)


def by_value(fd: int) -> object:
    return fd


def by_pointer(fd: int) -> object:
    return ctypes.byref(c_int(fd))


def test_nulls_are_invalid(hip: Hip) -> None:
    assert hip.hipMemImportFromShareableHandle(None, 5, POSIX_FD) == INVALID_VALUE
    handle = ctypes.byref(c_void_p())
    assert hip.hipMemImportFromShareableHandle(handle, None, POSIX_FD) == INVALID_VALUE


@pytest.mark.needs("handle checks")
def test_a_bad_descriptor_is_invalid(hip: Hip) -> None:
    handle = ctypes.byref(c_void_p())
    assert hip.hipMemImportFromShareableHandle(handle, 999_000, POSIX_FD) == INVALID_VALUE
    with tempfile.TemporaryFile() as file:
        assert hip.hipMemImportFromShareableHandle(handle, file.fileno(), POSIX_FD) == INVALID_VALUE


@pytest.mark.needs("handle checks")
@pytest.mark.parametrize("form", [by_value, by_pointer])
def test_both_meanings_of_the_os_handle_are_taken(hip: Hip, form: object) -> None:
    with hip.allocation(SIZE, prop(handle=POSIX_FD)) as handle, exported(hip, handle) as fd:
        imported = hip.get("hipMemImportFromShareableHandle", c_void_p, form(fd), POSIX_FD)  # type: ignore[operator]

        assert imported != handle
        assert hip.hipMemRelease(imported) == SUCCESS


def test_it_is_the_same_memory_and_is_charged_once(hip: Hip, simulator: Simulator) -> None:
    with (
        hip.reservation(2 * SIZE) as address,
        hip.allocation(SIZE, prop(handle=POSIX_FD)) as handle,
        exported(hip, handle) as fd,
    ):
        before = hip.free_memory()
        imported = hip.get("hipMemImportFromShareableHandle", c_void_p, fd, POSIX_FD)
        with (
            hip.mapping(address, SIZE, handle, access(0)),
            hip.mapping(address + SIZE, SIZE, imported, access(0)),
        ):
            hip.write(address, b"shared")
            assert hip.read(address + SIZE, 6) == b"shared"
            assert hip.free_memory() == before
        assert hip.hipMemRelease(imported) == SUCCESS


def test_the_import_outlives_the_exporter_s_handle(hip: Hip, simulator: Simulator) -> None:
    before = hip.free_memory()
    with hip.reservation(SIZE) as address:
        with hip.allocation(SIZE, prop(handle=POSIX_FD)) as handle, exported(hip, handle) as fd:
            imported = hip.get("hipMemImportFromShareableHandle", c_void_p, fd, POSIX_FD)
        assert hip.free_memory() == before - SIZE
        with hip.mapping(address, SIZE, imported, access(0)):
            assert hip.write(address, b"x") == SUCCESS
        assert hip.hipMemRelease(imported) == SUCCESS

    assert hip.free_memory() == before


@pytest.mark.needs("two devices")
def test_its_properties_name_the_importer_s_current_device(hip: Hip, simulator: Simulator) -> None:
    with hip.allocation(SIZE, prop(0, handle=POSIX_FD)) as handle, exported(hip, handle) as fd:
        hip.hipSetDevice(1)
        imported = hip.get("hipMemImportFromShareableHandle", c_void_p, fd, POSIX_FD)
        got = hip.get("hipMemGetAllocationPropertiesFromHandle", AllocationProp, imported)
        assert hip.hipMemRelease(imported) == SUCCESS

    assert (got.type, got.location.type, got.location.id) == (1, 1, 1)
    assert got.handle_type == POSIX_FD
