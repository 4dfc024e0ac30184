"""Primary contexts: on AMD, the device itself."""

import ctypes
from ctypes import c_int, c_uint, c_void_p

import pytest

from .hip import INVALID_DEVICE, INVALID_VALUE, NOT_SUPPORTED, SUCCESS, Hip


@pytest.mark.function("hipDevicePrimaryCtxRetain")
def test_a_context_is_active_after_the_first_allocation(hip: Hip) -> None:
    flags, active = c_uint(), c_int()

    def state() -> int:
        code = hip.hipDevicePrimaryCtxGetState(0, ctypes.byref(flags), ctypes.byref(active))
        assert code == SUCCESS
        return active.value

    before = state()
    assert hip.get("hipDevicePrimaryCtxRetain", c_void_p, 0)
    assert state() == before
    with hip.buffer(4096):
        assert state() == 1
    assert hip.hipDevicePrimaryCtxRelease(0) == SUCCESS
    assert hip.hipDevicePrimaryCtxRetain(None, 0) == INVALID_VALUE
    assert hip.hipDevicePrimaryCtxRetain(ctypes.byref(c_void_p()), 99) == INVALID_DEVICE


@pytest.mark.function("hipCtxSetCurrent")
@pytest.mark.needs("two devices")
def test_setting_a_context_current_chooses_its_device(hip: Hip) -> None:
    context = hip.get("hipDevicePrimaryCtxRetain", c_void_p, 1)
    assert hip.hipCtxSetCurrent(context) == SUCCESS
    assert hip.get("hipGetDevice", c_int) == hip.get("hipCtxGetDevice", c_int) == 1
    assert hip.get("hipCtxGetCurrent", c_void_p) == context
    assert hip.hipCtxSynchronize() == NOT_SUPPORTED
    assert hip.hipDevicePrimaryCtxRelease(1) == SUCCESS
