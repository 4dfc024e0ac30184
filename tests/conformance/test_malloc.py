"""hipMalloc and the other ways to get device memory."""

import ctypes
from ctypes import c_size_t, c_void_p

import pytest

from .hip import DANGLING, INVALID_HANDLE, INVALID_VALUE, MIB, OUT_OF_MEMORY, SUCCESS, Hip

MALLOC = pytest.mark.function("hipMalloc")
PITCH = pytest.mark.function("hipMallocPitch")


@MALLOC
def test_a_null_output_is_invalid(hip: Hip) -> None:
    assert hip.hipMalloc(None, MIB) == INVALID_VALUE


@MALLOC
def test_size_zero_is_a_null_pointer(hip: Hip) -> None:
    address = c_void_p(7)

    assert hip.hipMalloc(ctypes.byref(address), 0) == SUCCESS
    assert address.value is None


@MALLOC
@pytest.mark.parametrize("size", [1 << 62, (1 << 64) - 1])
def test_too_much_is_out_of_memory(hip: Hip, size: int) -> None:
    assert hip.hipMalloc(ctypes.byref(c_void_p()), size) == OUT_OF_MEMORY


@MALLOC
def test_a_full_device_is_out_of_memory(hip: Hip) -> None:
    most = hip.free_memory() * 5 // 8
    with hip.buffer(most):
        assert hip.hipMalloc(ctypes.byref(c_void_p()), most) == OUT_OF_MEMORY


@MALLOC
@pytest.mark.parametrize("size", [1, 100, 4097])
def test_addresses_are_aligned_to_256_bytes(hip: Hip, size: int) -> None:
    with hip.buffer(size) as address:
        assert address % 256 == 0


@MALLOC
def test_memory_is_charged_and_returned(hip: Hip) -> None:
    before = hip.free_memory()
    with hip.buffer(64 * MIB):
        assert hip.free_memory() <= before - 64 * MIB
    assert hip.free_memory() == before


@MALLOC
@pytest.mark.needs("two devices")
def test_memory_is_on_the_current_device(hip: Hip) -> None:
    hip.hipSetDevice(1)
    before = hip.free_memory()
    with hip.buffer(64 * MIB):
        assert hip.free_memory() <= before - 64 * MIB


@MALLOC
def test_data_survives_and_buffers_do_not_overlap(hip: Hip) -> None:
    with hip.buffer(4096) as first, hip.buffer(4096) as second:
        hip.write(first, b"1" * 4096)
        hip.write(second, b"2" * 4096)

        assert hip.read(first, 4096) == b"1" * 4096
        assert hip.read(second, 4096) == b"2" * 4096


@pytest.mark.function("hipExtMallocWithFlags")
def test_flags_are_checked(hip: Hip) -> None:
    address = c_void_p()
    assert hip.hipExtMallocWithFlags(ctypes.byref(address), MIB, 99) == INVALID_VALUE
    assert hip.hipExtMallocWithFlags(ctypes.byref(address), MIB, 1) == SUCCESS
    assert hip.hipFree(address) == SUCCESS


@PITCH
def test_rows_are_padded_to_256_bytes(hip: Hip) -> None:
    address, pitch = c_void_p(), c_size_t()

    assert hip.hipMallocPitch(ctypes.byref(address), ctypes.byref(pitch), 300, 10) == SUCCESS
    assert pitch.value == 512
    assert hip.write(address.value or 0, bytes(5120)) == SUCCESS
    assert hip.hipFree(address) == SUCCESS


@PITCH
def test_nulls_and_nothing(hip: Hip) -> None:
    address, pitch = c_void_p(), c_size_t()
    assert hip.hipMallocPitch(None, ctypes.byref(pitch), 1, 1) == INVALID_VALUE
    assert hip.hipMallocPitch(ctypes.byref(address), None, 1, 1) == INVALID_VALUE
    assert hip.hipMallocPitch(ctypes.byref(address), ctypes.byref(pitch), 0, 1) == SUCCESS
    assert address.value is None


@PITCH
def test_a_pitch_is_written_only_where_there_are_rows(hip: Hip) -> None:
    address, pitch = c_void_p(7), c_size_t(7)
    ask = hip.hipMallocPitch
    assert ask(ctypes.byref(address), ctypes.byref(pitch), 300, 0) == SUCCESS
    assert (address.value, pitch.value) == (None, 7)
    assert ask(ctypes.byref(address), ctypes.byref(pitch), 2**64 - 1, 2) == INVALID_VALUE
    assert pitch.value == 7
    assert ask(ctypes.byref(address), ctypes.byref(pitch), 2**40, 1) == OUT_OF_MEMORY
    assert pitch.value == 2**40


@PITCH
def test_a_pitch_times_a_height_may_overflow(hip: Hip) -> None:
    """As in AMD's library: to 0, which is an error, or to less than the rows need, which is none."""
    address, pitch = c_void_p(), c_size_t()
    ask = hip.hipMallocPitch
    assert ask(ctypes.byref(address), ctypes.byref(pitch), 2**63, 2) == OUT_OF_MEMORY
    assert ask(ctypes.byref(address), ctypes.byref(pitch), 2**63 + 1, 2) == SUCCESS
    assert pitch.value == 2**63 + 256
    size = c_size_t()
    assert hip.hipMemPtrGetInfo(address, ctypes.byref(size)) == SUCCESS
    assert size.value == 512
    assert hip.hipFree(address) == SUCCESS


@pytest.mark.function("hipMemAllocPitch")
@pytest.mark.parametrize(("width", "height"), [(0, 1), (1, 0)])
def test_rows_of_nothing_are_invalid(hip: Hip, width: int, height: int) -> None:
    address, pitch = c_void_p(), c_size_t()
    ask = hip.hipMemAllocPitch
    assert ask(ctypes.byref(address), ctypes.byref(pitch), width, height, 4) == INVALID_VALUE


@pytest.mark.function("hipMemAllocPitch")
def test_the_element_size_is_4_8_or_16(hip: Hip) -> None:
    address, pitch = c_void_p(), c_size_t()
    assert hip.hipMemAllocPitch(ctypes.byref(address), ctypes.byref(pitch), 1, 1, 3) == INVALID_VALUE
    assert hip.hipMemAllocPitch(ctypes.byref(address), ctypes.byref(pitch), 1, 1, 4) == SUCCESS
    assert hip.hipFree(address) == SUCCESS


@pytest.mark.function("hipMallocAsync")
def test_stream_ordered_memory(hip: Hip) -> None:
    address = c_void_p()
    with hip.stream() as stream:
        assert hip.hipMallocAsync(None, MIB, stream) == INVALID_VALUE
        assert hip.hipMallocAsync(ctypes.byref(address), MIB, stream) == SUCCESS
        assert hip.hipFreeAsync(address, stream) == SUCCESS


@pytest.mark.function("hipFreeAsync")
@pytest.mark.needs("handle checks")
def test_stream_ordered_free_checks_pointer_and_stream(hip: Hip) -> None:
    bad_stream = INVALID_VALUE if hip.version >= (7, 0) else INVALID_HANDLE
    assert hip.hipFreeAsync(None, None) == (SUCCESS if hip.version >= (7, 0) else INVALID_VALUE)
    with hip.buffer(MIB) as address:
        assert hip.hipFreeAsync(address, DANGLING) == bad_stream


@pytest.mark.function("hipMallocAsync")
@pytest.mark.needs("stream checks")
def test_an_invalid_stream_has_a_code_of_its_own_before_7(hip: Hip) -> None:
    address = c_void_p(MIB)
    assert hip.hipMallocAsync(None, 1, DANGLING) == INVALID_VALUE
    for size in (0, MIB, 1 << 50):
        assert hip.hipMallocAsync(ctypes.byref(address), size, DANGLING) == INVALID_HANDLE
    assert address.value == MIB
    for pointer in (None, address):
        assert hip.hipFreeAsync(pointer, DANGLING) == INVALID_HANDLE
