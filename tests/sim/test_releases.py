"""What only some releases of HIP answer, each in the first one that does and in the one before it."""

from __future__ import annotations

import ctypes

import pytest

from ..conformance.hip import (
    CPU,
    DEFAULT,
    DEVICE,
    DEVICE_TO_DEVICE,
    HOST,
    HOST_TO_HOST,
    ILLEGAL_ADDRESS,
    INVALID_DEVICE,
    INVALID_VALUE,
    MIB,
    NOT_REGISTERED,
    NOT_SUPPORTED,
    SUCCESS,
    TO_DEVICE,
    TO_HOST,
    Hip,
    Location,
    access,
    prop,
)
from ..conformance.sim import TWO_DEVICES, Simulator

ALREADY_REGISTERED = 712
FABRIC = 8
PREFERRED = 3
PAGE = 4096


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


@pytest.mark.parametrize(("release", "code"), [("7.13", NOT_SUPPORTED), ("7.14", SUCCESS), ("7.17", SUCCESS)])
def test_a_fabric_handle_may_be_asked_for(hip: Hip, simulator: Simulator, release: str, code: int) -> None:
    become(simulator, release)
    handle = ctypes.c_void_p()
    assert hip.hipMemCreate(ctypes.byref(handle), MIB, ctypes.byref(prop(handle=FABRIC)), 0) == code
    if code == SUCCESS:
        out = (ctypes.c_char * 64)()
        assert hip.hipMemExportToShareableHandle(out, handle, FABRIC, 0) == INVALID_VALUE
        assert hip.hipMemImportFromShareableHandle(ctypes.byref(handle), out, FABRIC) == INVALID_VALUE
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


def discard(hip: Hip, function: str, stream: object, *ranges: tuple[int, int], flags: int = 0) -> int:
    """The code of a call that discards ranges of an address and a size."""
    addresses = (ctypes.c_void_p * len(ranges))(*[address for address, _ in ranges])
    sizes = (ctypes.c_size_t * len(ranges))(*[size for _, size in ranges])
    code: int = getattr(hip, function)(addresses, sizes, len(ranges), flags, stream)
    return code


@pytest.mark.parametrize("function", ["hipMemDiscardBatchAsync", "hipDrvMemDiscardBatchAsync"])
def test_managed_memory_may_be_discarded_since_7_14(hip: Hip, simulator: Simulator, function: str) -> None:
    """Codes as AMD's own tests of the call have them; pages that were discarded read as zeros, others stay."""
    managed = "".join(f"device.{i}.managed=1\n" for i in range(3))
    for release in ("7.13", "7.14", "7.17"):
        become(simulator, release, managed)
        with hip.managed(4 * PAGE) as memory, hip.buffer(PAGE) as device, hip.stream() as stream:
            ctypes.memset(memory, 7, 4 * PAGE)
            good = (memory + 1, 3 * PAGE)
            if release == "7.13":
                assert discard(hip, function, stream, good) == NOT_SUPPORTED
                continue
            assert discard(hip, function, stream, good, (memory, 4 * PAGE + 1)) == INVALID_VALUE
            assert discard(hip, function, stream, good, (0, PAGE)) == INVALID_VALUE
            assert discard(hip, function, stream, good, (memory, 0)) == INVALID_VALUE
            assert discard(hip, function, stream, good, flags=1) == INVALID_VALUE
            assert discard(hip, function, stream) == INVALID_VALUE
            assert discard(hip, function, None, good) == INVALID_VALUE
            assert discard(hip, function, stream, (device, PAGE)) == NOT_SUPPORTED
            assert ctypes.string_at(memory, 4 * PAGE) == b"\7" * 4 * PAGE
            assert discard(hip, function, stream, good) == SUCCESS
            assert ctypes.string_at(memory, 4 * PAGE) == b"\7" * PAGE + bytes(2 * PAGE) + b"\7" * PAGE


def test_memory_is_not_discarded_where_managed_memory_is_the_host_s(hip: Hip, simulator: Simulator) -> None:
    become(simulator, "7.14", "".join(f"device.{i}.managed=0\n" for i in range(3)))
    with hip.managed(PAGE) as memory, hip.stream() as stream:
        assert discard(hip, "hipMemDiscardBatchAsync", stream, (memory, PAGE)) == NOT_SUPPORTED


def advise(hip: Hip, function: str, memory: int, device: int) -> int:
    place: object = device if function == "hipMemAdvise" else Location(HOST if device == CPU else DEVICE, device)
    code: int = getattr(hip, function)(memory, PAGE, PREFERRED, place)
    return code


@pytest.mark.parametrize("release", ["7.16", "7.17"])
@pytest.mark.parametrize("function", ["hipMemAdvise", "hipMemAdvise_v2"])
def test_advice_by_device_is_advice_by_location(hip: Hip, simulator: Simulator, function: str, release: str) -> None:
    """The library has both calls; since 7.17 AMD's headers send the first to the second."""
    become(simulator, release, "".join(f"device.{i}.managed=1\n" for i in range(3)))
    with hip.managed(PAGE) as memory:
        for device in (0, 1, CPU):
            assert advise(hip, function, memory, device) == SUCCESS
            assert hip.get("hipMemRangeGetAttribute", ctypes.c_int, 4, 2, memory, PAGE) == device
        assert advise(hip, function, memory, 77) == INVALID_DEVICE
