"""hipMemGetAccess: the right of one device on the piece at an address."""

import ctypes
from ctypes import c_ulonglong

import pytest

from .hip import DANGLING, HOST, INVALID_VALUE, MIB, NONE, READ, READ_WRITE, Hip, Location, access

pytestmark = [pytest.mark.function("hipMemGetAccess"), pytest.mark.needs("vmm")]

SIZE = 2 * MIB


def ask(hip: Hip, address: int, device: int = 0, location: int = 1) -> tuple[int, int]:
    flags = c_ulonglong(77)
    code = hip.hipMemGetAccess(ctypes.byref(flags), ctypes.byref(Location(location, device)), address)
    return code, flags.value


def test_nulls_are_invalid(hip: Hip) -> None:
    flags, location = c_ulonglong(), Location(1, 0)
    with hip.mapped(SIZE) as address:
        assert hip.hipMemGetAccess(None, ctypes.byref(location), address) == INVALID_VALUE
        assert hip.hipMemGetAccess(ctypes.byref(flags), None, address) == INVALID_VALUE
        assert hip.hipMemGetAccess(ctypes.byref(flags), ctypes.byref(location), None) == INVALID_VALUE


@pytest.mark.parametrize("device", [-1, 99])
def test_a_bad_device_is_invalid(hip: Hip, device: int) -> None:
    with hip.mapped(SIZE) as address:
        assert ask(hip, address, device)[0] == INVALID_VALUE


@pytest.mark.parametrize("location", [0, HOST, 3])
def test_the_host_cannot_be_asked_for(hip: Hip, location: int) -> None:
    with hip.mapped(SIZE) as address:
        assert ask(hip, address, location=location)[0] == INVALID_VALUE


def test_an_address_without_a_piece_is_invalid(hip: Hip) -> None:
    with hip.reservation(SIZE) as address:
        assert ask(hip, address)[0] == INVALID_VALUE
    assert ask(hip, DANGLING)[0] == INVALID_VALUE


def test_a_device_never_named_has_none(hip: Hip) -> None:
    with hip.mapped(SIZE) as address:
        assert ask(hip, address) == (0, NONE)


@pytest.mark.parametrize("flags", [NONE, READ, READ_WRITE])
def test_the_granted_right_is_reported(hip: Hip, flags: int) -> None:
    with hip.mapped(SIZE, access(0, flags)) as address:
        assert ask(hip, address) == (0, flags)


def test_any_address_inside_the_piece_will_do(hip: Hip) -> None:
    with hip.mapped(SIZE, access(0)) as address:
        assert ask(hip, address + SIZE - 1) == (0, READ_WRITE)


@pytest.mark.needs("peers")
def test_rights_are_per_device(hip: Hip) -> None:
    with hip.mapped(SIZE, access(0), access(1, READ)) as address:
        assert (ask(hip, address, 0)[1], ask(hip, address, 1)[1]) == (READ_WRITE, READ)
