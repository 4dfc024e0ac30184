"""hipHostRegister, hipHostUnregister: the program's own memory, pinned."""

import ctypes
from ctypes import c_void_p

import pytest

from .hip import INVALID_VALUE, MIB, NOT_REGISTERED, SUCCESS, Hip, access

REGISTER = pytest.mark.function("hipHostRegister")
UNREGISTER = pytest.mark.function("hipHostUnregister")


def memory(size: int = MIB) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(size)


def register(hip: Hip, flags: int) -> int:
    here = memory()
    code = hip.hipHostRegister(here, MIB, flags)
    if code == SUCCESS:
        assert hip.hipHostUnregister(here) == SUCCESS
    return code


@REGISTER
def test_null_and_size_zero_are_invalid(hip: Hip) -> None:
    assert hip.hipHostRegister(None, MIB, 0) == INVALID_VALUE
    assert hip.hipHostRegister(memory(), 0, 0) == INVALID_VALUE


@REGISTER
@pytest.mark.parametrize("flags", [0, 1, 2, 3, 8, 11])
def test_known_flags_pass(hip: Hip, flags: int) -> None:
    assert register(hip, flags) == SUCCESS


@REGISTER
@pytest.mark.parametrize("flags", [16, 0x100])
def test_unknown_flags_are_invalid(hip: Hip, flags: int) -> None:
    assert register(hip, flags) == INVALID_VALUE


@REGISTER
def test_non_coherent_came_with_7_0(hip: Hip) -> None:
    assert register(hip, 0x80000000) == (SUCCESS if hip.version >= (7, 0) else INVALID_VALUE)


@REGISTER
def test_what_cannot_be_pinned_is_invalid(hip: Hip) -> None:
    assert hip.hipHostRegister(memory(), 1 << 60, 0) == INVALID_VALUE


@REGISTER
def test_an_address_without_memory_is_invalid(hip: Hip) -> None:
    assert hip.hipHostRegister(0x8000, 4096, 0) == INVALID_VALUE  # so low the kernel maps nothing


@REGISTER
@pytest.mark.needs("vmm", "handle checks")
def test_what_hip_itself_holds_cannot_be_pinned(hip: Hip) -> None:
    with hip.buffer(MIB) as buffer, hip.mapped(MIB, access(0)) as mapped, hip.reservation(MIB) as reserved:
        for address in (buffer, buffer + 4096, mapped, reserved + 4096):
            assert hip.hipHostRegister(address, 4096, 0) == INVALID_VALUE
        assert len(hip.read(buffer + 4096, 16)) == 16


@REGISTER
def test_the_same_pointer_again_is_a_success_and_one_registration(hip: Hip) -> None:
    here = memory()
    answers = [hip.hipHostRegister(here, MIB, 0) for _ in range(2)]
    answers += [hip.hipHostUnregister(here) for _ in range(2)]  # whatever it said: nothing may stay registered
    assert answers == [SUCCESS, SUCCESS, SUCCESS, NOT_REGISTERED]


@REGISTER
def test_no_page_alignment_is_needed(hip: Hip) -> None:
    kept = memory()
    inside = ctypes.addressof(kept) + 13
    assert hip.hipHostRegister(inside, 1000, 0) == SUCCESS
    assert hip.hipHostUnregister(inside) == SUCCESS


@REGISTER
def test_registered_memory_has_a_device_pointer_and_flags(hip: Hip) -> None:
    here = memory()
    assert hip.hipHostRegister(here, MIB, 3) == SUCCESS
    try:
        assert hip.get("hipHostGetDevicePointer", c_void_p, here, 0)
        assert (
            hip.hipHostGetFlags(ctypes.byref(ctypes.c_uint()), here) == INVALID_VALUE
        )  # of what hipHostMalloc gave alone
    finally:  # or the next memory at this address is taken for it
        assert hip.hipHostUnregister(here) == SUCCESS


@REGISTER
def test_a_copy_past_its_end_is_invalid(hip: Hip) -> None:
    here = memory(2 * MIB)
    assert hip.hipHostRegister(here, MIB, 0) == SUCCESS
    with hip.buffer(2 * MIB) as device:
        assert hip.hipMemcpy(device, here, MIB, 1) == SUCCESS
        assert hip.hipMemcpy(device, here, MIB + 1, 1) == INVALID_VALUE
    assert hip.hipHostUnregister(here) == SUCCESS


@UNREGISTER
def test_null_is_invalid(hip: Hip) -> None:
    assert hip.hipHostUnregister(None) == INVALID_VALUE


@UNREGISTER
def test_unknown_memory_is_not_registered(hip: Hip) -> None:
    assert hip.hipHostUnregister(memory()) == NOT_REGISTERED


@UNREGISTER
def test_an_address_after_the_registered_bytes_is_not_registered(hip: Hip) -> None:
    here = memory(2 * MIB)
    assert hip.hipHostRegister(here, MIB, 0) == SUCCESS
    assert hip.hipHostUnregister(ctypes.addressof(here) + MIB) == NOT_REGISTERED
    assert hip.hipHostUnregister(here) == SUCCESS


@UNREGISTER
@pytest.mark.needs("handle checks")
def test_an_address_inside_and_pinned_memory_are_not_registered(hip: Hip) -> None:
    here = memory()
    assert hip.hipHostRegister(here, MIB, 0) == SUCCESS
    assert hip.hipHostUnregister(ctypes.addressof(here) + 64) == NOT_REGISTERED
    assert hip.hipHostUnregister(here) == SUCCESS
    with hip.pinned(MIB) as pinned:
        assert hip.hipHostUnregister(pinned) == NOT_REGISTERED
