"""hipMemExportToShareableHandle: a new descriptor for every export; the memory lives as long as any of them."""

import ctypes
import os
from ctypes import c_int

import pytest

from .hip import DANGLING, INVALID_VALUE, PIECE, POSIX_FD, WIN32, Hip, prop
from .sim import Simulator

pytestmark = [pytest.mark.function("hipMemExportToShareableHandle"), pytest.mark.needs("vmm", "export")]


def test_bad_arguments_are_invalid(hip: Hip) -> None:
    fd = ctypes.byref(c_int())
    with hip.allocation(PIECE, prop(handle=POSIX_FD)) as handle:
        assert hip.hipMemExportToShareableHandle(fd, handle, POSIX_FD, 1) == INVALID_VALUE
        assert hip.hipMemExportToShareableHandle(fd, None, POSIX_FD, 0) == INVALID_VALUE
        assert hip.hipMemExportToShareableHandle(None, handle, POSIX_FD, 0) == INVALID_VALUE


def test_another_type_than_was_requested_is_invalid(hip: Hip) -> None:
    fd = ctypes.byref(c_int())
    with hip.allocation(PIECE, prop(handle=POSIX_FD)) as handle:
        assert hip.hipMemExportToShareableHandle(fd, handle, WIN32, 0) == INVALID_VALUE
    with hip.allocation(PIECE) as handle:
        assert hip.hipMemExportToShareableHandle(fd, handle, POSIX_FD, 0) == INVALID_VALUE


@pytest.mark.needs("handle checks")
def test_what_is_no_handle_is_invalid(hip: Hip) -> None:
    fd = ctypes.byref(c_int())
    assert hip.hipMemExportToShareableHandle(fd, DANGLING, POSIX_FD, 0) == INVALID_VALUE


def test_every_export_is_a_descriptor_of_its_own(hip: Hip) -> None:
    with hip.allocation(PIECE, prop(handle=POSIX_FD)) as handle:
        first = hip.get("hipMemExportToShareableHandle", c_int, handle, POSIX_FD, 0)
        second = hip.get("hipMemExportToShareableHandle", c_int, handle, POSIX_FD, 0)

        assert first != second
        os.close(first)
        os.close(second)


def test_the_descriptor_is_not_inherited(hip: Hip, simulator: Simulator) -> None:
    with hip.allocation(PIECE, prop(handle=POSIX_FD)) as handle:
        fd = hip.get("hipMemExportToShareableHandle", c_int, handle, POSIX_FD, 0)

        assert not os.get_inheritable(fd)
        os.close(fd)
