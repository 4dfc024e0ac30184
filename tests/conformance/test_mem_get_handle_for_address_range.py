"""hipMemGetHandleForAddressRange: device memory as a dma-buf, from HIP 7.0 on.

HIP's reference names the memory of hipMalloc and mapped virtual memory, one type of handle and no flags. It demands no
alignment. A dma-buf is of a whole allocation.
"""

import ctypes
import os
from ctypes import c_int

import pytest

from .hip import DANGLING, INVALID_VALUE, MIB, PIECE, SUCCESS, Hip, access

pytestmark = [pytest.mark.function("hipMemGetHandleForAddressRange"), pytest.mark.needs("dma-buf of any memory")]

DMA_BUF = 1


def ask(hip: Hip, address: int, size: int, kind: int = DMA_BUF, flags: int = 0) -> tuple[int, int]:
    """The code, and the size of the dma-buf, or -1."""
    descriptor = c_int(-1)
    code = hip.hipMemGetHandleForAddressRange(ctypes.byref(descriptor), address, size, kind, flags)
    if descriptor.value < 0:
        return code, -1
    with os.fdopen(descriptor.value, "rb") as dma_buf:
        assert not os.get_inheritable(dma_buf.fileno())
        return code, os.lseek(dma_buf.fileno(), 0, os.SEEK_END)


def test_bad_arguments_are_invalid(hip: Hip) -> None:
    with hip.buffer(PIECE) as address:
        for arguments in ((0, PIECE), (address, 0), (address, PIECE, 0), (address, PIECE, 2), (address, PIECE, 1, 1)):
            assert ask(hip, *arguments) == (INVALID_VALUE, -1)


def test_only_device_memory_is_exported(hip: Hip) -> None:
    here = ctypes.create_string_buffer(8192)
    with hip.pinned(MIB) as pinned, hip.reservation(PIECE) as reserved:
        for address in (DANGLING, ctypes.addressof(here), pinned, reserved):
            assert ask(hip, address, 4096) == (INVALID_VALUE, -1)


@pytest.mark.needs("managed")
def test_managed_memory_is_invalid(hip: Hip) -> None:
    with hip.managed(MIB) as address:
        assert ask(hip, address, MIB) == (INVALID_VALUE, -1)


@pytest.mark.parametrize(("offset", "size"), [(0, 2 * PIECE), (0, 4096), (4096, 4096), (1, 4095), (0, 1000)])
def test_any_part_of_hip_malloc_s_memory_is_the_whole_of_it(hip: Hip, offset: int, size: int) -> None:
    with hip.buffer(2 * PIECE) as address:
        code, whole = ask(hip, address + offset, size)

        assert code == SUCCESS
        assert whole >= 2 * PIECE


@pytest.mark.parametrize("offset", [0, 4096])
def test_a_part_past_the_end_is_invalid(hip: Hip, offset: int) -> None:
    with hip.buffer(2 * PIECE) as address:
        assert ask(hip, address + offset, 2 * PIECE - offset + 1) == (INVALID_VALUE, -1)


@pytest.mark.needs("vmm")
@pytest.mark.parametrize("size", [4096, 2 * PIECE])
def test_a_mapping_is_exported_from_its_start(hip: Hip, size: int) -> None:
    with hip.mapped(2 * PIECE, access(0)) as address:
        code, whole = ask(hip, address, size)

        assert code == SUCCESS
        assert whole >= 2 * PIECE
        assert ask(hip, address + 4096, 4096) == (INVALID_VALUE, -1)


@pytest.mark.needs("vmm", "handle checks")
def test_past_the_end_of_a_mapping_is_invalid(hip: Hip) -> None:
    with hip.mapped(PIECE, access(0)) as address:
        assert ask(hip, address, PIECE + 4096) == (INVALID_VALUE, -1)


def test_the_bytes_stay_where_they_were(hip: Hip) -> None:
    with hip.buffer(PIECE) as address:
        assert hip.write(address + 4096, b"before") == SUCCESS
        assert ask(hip, address, PIECE)[0] == SUCCESS
        assert hip.read(address + 4096, 6) == b"before"
        assert hip.write(address, b"after") == SUCCESS
        assert hip.read(address, 5) == b"after"


@pytest.mark.needs("two devices")
def test_another_device_may_be_current(hip: Hip) -> None:
    with hip.buffer(PIECE) as address:
        hip.hipSetDevice(1)
        assert ask(hip, address, PIECE)[0] == SUCCESS
        hip.hipSetDevice(0)


def test_the_memory_lives_as_long_as_its_descriptor(hip: Hip) -> None:
    free = hip.free_memory()
    with hip.buffer(2 * PIECE) as address:  # AMD's library keeps smaller blocks for the next caller
        descriptor = hip.get("hipMemGetHandleForAddressRange", c_int, address, 2 * PIECE, DMA_BUF, 0)
        taken = hip.free_memory()
    assert hip.free_memory() == taken < free
    os.close(descriptor)
    assert hip.free_memory() == free
