"""hipHostMalloc, its other names, and what can be asked about pinned memory."""

import ctypes
from ctypes import c_uint, c_void_p

import pytest

from .hip import INVALID_VALUE, MIB, OUT_OF_MEMORY, SUCCESS, Hip
from .sim import Simulator

COHERENT, NON_COHERENT, UNCACHED = 0x40000000, 0x80000000, 0x10000000
MALLOC = pytest.mark.function("hipHostMalloc")
POINTER = pytest.mark.function("hipHostGetDevicePointer")
FLAGS = pytest.mark.function("hipHostGetFlags")


def allocate(hip: Hip, size: int, flags: int = 0, function: str = "hipHostMalloc") -> int:
    address = c_void_p()
    code: int = getattr(hip, function)(ctypes.byref(address), size, flags)
    if code == SUCCESS:
        assert hip.hipHostFree(address) == SUCCESS
    return code


@MALLOC
def test_a_null_output_is_invalid(hip: Hip) -> None:
    assert hip.hipHostMalloc(None, MIB, 0) == INVALID_VALUE


@MALLOC
def test_size_zero_is_a_null_pointer(hip: Hip) -> None:
    address = c_void_p(7)
    assert hip.hipHostMalloc(ctypes.byref(address), 0, 0) == SUCCESS
    assert address.value is None


@MALLOC
def test_coherent_and_non_coherent_together_are_invalid(hip: Hip) -> None:
    assert allocate(hip, MIB, COHERENT | NON_COHERENT) == INVALID_VALUE


@MALLOC
@pytest.mark.parametrize("other", [COHERENT, NON_COHERENT])
def test_uncached_with_either_is_invalid_since_7_0(hip: Hip, other: int) -> None:
    assert allocate(hip, MIB, UNCACHED | other) == (INVALID_VALUE if hip.version >= (7, 0) else SUCCESS)


@MALLOC
@pytest.mark.parametrize("flags", [1, 2, 4, 7, 0x20000000, COHERENT, NON_COHERENT, 0x100])
def test_known_flags_and_unknown_bits_pass(hip: Hip, flags: int) -> None:
    assert allocate(hip, MIB, flags) == SUCCESS


@MALLOC
@pytest.mark.parametrize("size", [1 << 62, (1 << 64) - 1])
def test_more_than_host_memory_is_out_of_memory(hip: Hip, size: int) -> None:
    assert allocate(hip, size) == OUT_OF_MEMORY


@MALLOC
def test_host_and_copies_see_the_same_bytes(hip: Hip) -> None:
    with hip.pinned(MIB) as address, hip.buffer(MIB) as device:
        ctypes.memset(address, 0x43, MIB)
        assert hip.hipMemcpy(device, address, MIB, 1) == SUCCESS
        assert hip.read(device, 2) == b"CC"


@MALLOC
@pytest.mark.needs("two devices")
def test_every_device_may_touch_it(hip: Hip, simulator: Simulator) -> None:
    with hip.pinned(MIB) as address:
        assert simulator.touch(0, address, MIB) == simulator.touch(1, address, MIB) == 0


@pytest.mark.function("hipHostAlloc")
def test_hip_host_alloc_refuses_flags_above_7(hip: Hip) -> None:
    assert allocate(hip, MIB, 7, "hipHostAlloc") == SUCCESS
    assert allocate(hip, MIB, 8, "hipHostAlloc") == INVALID_VALUE
    expected = SUCCESS if hip.version >= (7, 0) else INVALID_VALUE
    assert allocate(hip, MIB, UNCACHED, "hipHostAlloc") == expected


@pytest.mark.parametrize(
    "function", [pytest.param(n, marks=pytest.mark.function(n)) for n in ("hipMallocHost", "hipMemAllocHost")]
)
def test_the_old_names(hip: Hip, function: str) -> None:
    assert getattr(hip, function)(None, MIB) == INVALID_VALUE
    assert hip.hipHostFree(hip.get(function, c_void_p, MIB)) == SUCCESS


@pytest.mark.parametrize(
    ("function", "left"),
    [
        pytest.param(name, left, marks=pytest.mark.function(name))
        for name, left in (("hipMallocHost", 7), ("hipMemAllocHost", None), ("hipHostMalloc", None))
    ],
)
def test_what_the_output_is_without_memory(hip: Hip, function: str, left: int | None) -> None:
    address = c_void_p(7)
    flags = [0] if function == "hipHostMalloc" else []
    assert getattr(hip, function)(ctypes.byref(address), 2**62, *flags) == OUT_OF_MEMORY
    assert address.value == left


@POINTER
def test_the_device_pointer_keeps_the_offset(hip: Hip) -> None:
    with hip.pinned(MIB) as address:
        base = hip.get("hipHostGetDevicePointer", c_void_p, address, 0)
        assert hip.get("hipHostGetDevicePointer", c_void_p, address + 100, 0) == base + 100


@POINTER
def test_device_pointer_of_bad_arguments(hip: Hip) -> None:
    here, out = ctypes.create_string_buffer(16), ctypes.byref(c_void_p())
    with hip.pinned(MIB) as address:
        assert hip.hipHostGetDevicePointer(None, address, 0) == INVALID_VALUE
        assert hip.hipHostGetDevicePointer(out, address, 1) == INVALID_VALUE
        assert hip.hipHostGetDevicePointer(out, here, 0) == INVALID_VALUE
        assert hip.hipHostGetDevicePointer(out, None, 0) == INVALID_VALUE


@FLAGS
@pytest.mark.parametrize("flags", [0, 1, 6, COHERENT])
def test_the_flags_are_reported(hip: Hip, flags: int) -> None:
    with hip.pinned(MIB, flags) as address:
        assert hip.get("hipHostGetFlags", c_uint, address) == flags


@FLAGS
def test_flags_of_bad_arguments(hip: Hip) -> None:
    here, out = ctypes.create_string_buffer(16), ctypes.byref(c_uint())
    with hip.pinned(MIB) as address, hip.buffer(MIB) as device:
        assert hip.hipHostGetFlags(None, address) == INVALID_VALUE
        assert hip.hipHostGetFlags(out, None) == INVALID_VALUE
        assert hip.hipHostGetFlags(out, here) == INVALID_VALUE
        assert hip.hipHostGetFlags(out, device) == INVALID_VALUE
