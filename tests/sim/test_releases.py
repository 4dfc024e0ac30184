"""What only some releases of HIP answer, each in the first one that does and in the one before it."""

from __future__ import annotations

import ctypes

import pytest

from ..conformance.hip import (
    DEFAULT,
    DEVICE_TO_DEVICE,
    HOST,
    HOST_TO_HOST,
    ILLEGAL_ADDRESS,
    INVALID_VALUE,
    MIB,
    NOT_REGISTERED,
    NOT_SUPPORTED,
    SUCCESS,
    TO_DEVICE,
    TO_HOST,
    Hip,
    access,
    prop,
)
from ..conformance.sim import TWO_DEVICES, Simulator

ALREADY_REGISTERED = 712
FABRIC = 8


def become(simulator: Simulator, release: str, more: str = "") -> None:
    simulator.configure(f"hip_version={release}\n{TWO_DEVICES}\n{more}")


@pytest.mark.parametrize(("release", "code"), [("7.14", SUCCESS), ("7.15", ALREADY_REGISTERED)])
def test_registering_twice(hip: Hip, simulator: Simulator, release: str, code: int) -> None:
    become(simulator, release)
    here = ctypes.create_string_buffer(MIB)
    assert [hip.hipHostRegister(here, MIB, 0) for _ in range(2)] == [SUCCESS, code]
    assert [hip.hipHostUnregister(here) for _ in range(2)] == [SUCCESS, NOT_REGISTERED]


@pytest.mark.parametrize(("release", "code"), [("7.14", INVALID_VALUE), ("7.15", ALREADY_REGISTERED)])
def test_registering_too_much(hip: Hip, simulator: Simulator, release: str, code: int) -> None:
    become(simulator, release)
    assert hip.hipHostRegister(ctypes.create_string_buffer(MIB), 1 << 60, 0) == code


@pytest.mark.parametrize(("release", "code"), [("7.14", SUCCESS), ("7.15", INVALID_VALUE)])
def test_the_kind_of_a_copy_fits_the_addresses(hip: Hip, simulator: Simulator, release: str, code: int) -> None:
    """A copy to a device goes to memory that HIP knows, and one to the host comes from such memory."""
    become(simulator, release)
    here = ctypes.create_string_buffer(64)
    with hip.buffer(64) as device, hip.pinned(64) as pinned:
        for known in (device, pinned):
            assert hip.hipMemcpy(here, known, 64, TO_DEVICE) == code
            assert hip.hipMemcpy(known, here, 64, TO_HOST) == code
            assert hip.hipMemcpy(known, here, 64, TO_DEVICE) == SUCCESS
            assert hip.hipMemcpy(here, known, 64, TO_HOST) == SUCCESS
            assert hip.hipMemcpy(here, known, 64, DEFAULT) == SUCCESS
    assert hip.hipMemcpy(here, ctypes.create_string_buffer(64), 64, HOST_TO_HOST) == SUCCESS


@pytest.mark.parametrize(("release", "granularity"), [("7.14", 4096), ("7.15", 2 * MIB)])
def test_the_granularity_recommended_for_the_host(
    hip: Hip, simulator: Simulator, release: str, granularity: int
) -> None:
    become(simulator, release)
    host = ctypes.byref(prop(location=HOST))
    assert hip.get("hipMemGetAllocationGranularity", ctypes.c_size_t, host, 1) == granularity


@pytest.mark.parametrize(("release", "code"), [("7.14", NOT_SUPPORTED), ("7.15", SUCCESS)])
def test_a_fabric_handle_may_be_asked_for(hip: Hip, simulator: Simulator, release: str, code: int) -> None:
    become(simulator, release)
    handle = ctypes.c_void_p()
    assert hip.hipMemCreate(ctypes.byref(handle), MIB, ctypes.byref(prop(handle=FABRIC)), 0) == code
    if code == SUCCESS:
        out = (ctypes.c_char * 64)()
        assert hip.hipMemExportToShareableHandle(out, handle, FABRIC, 0) == INVALID_VALUE
        assert hip.hipMemRelease(handle) == SUCCESS


@pytest.mark.parametrize(("xnack", "code"), [(0, INVALID_VALUE), (1, SUCCESS)])
def test_advice_on_registered_memory_works_with_xnack(hip: Hip, simulator: Simulator, xnack: int, code: int) -> None:
    become(simulator, "6.3", "".join(f"device.{i}.managed=1\ndevice.{i}.xnack={xnack}\n" for i in range(3)))
    here = ctypes.create_string_buffer(MIB)
    assert hip.hipHostRegister(here, MIB, 0) == SUCCESS
    assert hip.hipMemAdvise(here, MIB, 3, 0) == code
    assert hip.hipHostUnregister(here) == SUCCESS


@pytest.mark.parametrize("release", ["6.2", "7.2", "7.15"])
def test_devices_without_a_link_copy_only_where_no_two_have_one(hip: Hip, simulator: Simulator, release: str) -> None:
    """AMD's library crashes where others are linked: the memory through which the bytes go is not made then."""
    for profile, code in (("", INVALID_VALUE), ("link.0.1=none\nlink.1.0=none\n", SUCCESS)):
        become(simulator, release, profile)
        hip.hipSetDevice(2)
        with hip.buffer(64) as there:
            hip.hipSetDevice(0)
            with hip.buffer(64) as here:
                assert hip.hipMemcpy(there, here, 64, DEFAULT) == code
                assert hip.hipMemcpyPeer(here, 0, there, 2, 64) == code
                with hip.mapped(MIB, access(0)) as mapped:  # before 7.0 device 2 would copy, and has no right
                    faults = release == "6.2" and code == SUCCESS
                    expected = ILLEGAL_ADDRESS if faults else code
                    assert hip.hipMemcpy(mapped, there, 64, DEVICE_TO_DEVICE) == expected
                with hip.pinned(64) as pinned:
                    assert hip.hipMemcpy(pinned, there, 64, DEFAULT) == SUCCESS
