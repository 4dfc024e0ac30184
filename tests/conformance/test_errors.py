"""hipGetLastError and its relatives: what is remembered, per thread and release."""

import ctypes
import threading
from typing import Any

import pytest

from .hip import INVALID_DEVICE, INVALID_VALUE, SUCCESS, Hip

LAST = pytest.mark.function("hipGetLastError")
PEEK = pytest.mark.function("hipPeekAtLastError")
EXT = pytest.mark.function("hipExtGetLastError")


@LAST
def test_an_error_is_returned_once(hip: Hip) -> None:
    hip.hipSetDevice(99)

    assert (hip.hipGetLastError(), hip.hipGetLastError()) == (INVALID_DEVICE, SUCCESS)


@LAST
def test_a_later_success_erases_it_up_to_6_x_only(hip: Hip) -> None:
    hip.hipSetDevice(99)
    hip.hipSetDevice(0)

    assert hip.hipGetLastError() == (INVALID_DEVICE if hip.version >= (7, 0) else SUCCESS)


@LAST
def test_a_later_error_replaces_it(hip: Hip) -> None:
    hip.hipSetDevice(99)
    hip.hipMalloc(None, 1)

    assert hip.hipGetLastError() == INVALID_VALUE


@LAST
def test_errors_belong_to_their_thread(hip: Hip) -> None:
    seen: list[int] = []
    hip.hipSetDevice(99)
    thread = threading.Thread(target=lambda: seen.append(hip.hipGetLastError()))
    thread.start()
    thread.join()

    assert seen == [SUCCESS]
    assert hip.hipGetLastError() == INVALID_DEVICE


@PEEK
def test_peek_leaves_it(hip: Hip) -> None:
    hip.hipSetDevice(99)

    assert [hip.hipPeekAtLastError(), hip.hipPeekAtLastError()] == [INVALID_DEVICE] * 2
    assert hip.hipGetLastError() == INVALID_DEVICE


@EXT
def test_ext_is_the_last_command_s_own_result_once(hip: Hip) -> None:
    """Up to 6.3 it is hipGetLastError by another name."""
    hip.hipSetDevice(99)
    assert hip.hipExtGetLastError() == INVALID_DEVICE
    assert hip.hipExtGetLastError() == SUCCESS
    assert hip.hipGetLastError() == (INVALID_DEVICE if hip.version >= (6, 4) else SUCCESS)
    hip.hipSetDevice(0)
    assert hip.hipExtGetLastError() == SUCCESS


@EXT
def test_the_last_error_s_question_is_no_command(hip: Hip) -> None:
    hip.hipSetDevice(99)
    assert hip.hipGetLastError() == INVALID_DEVICE
    assert hip.hipGetLastError() == SUCCESS
    assert hip.hipExtGetLastError() == (INVALID_DEVICE if hip.version >= (6, 4) else SUCCESS)
    assert hip.hipExtGetLastError() == SUCCESS


@pytest.mark.function("hipGetErrorName")
def test_names(hip: Hip) -> None:
    for function in ("hipGetErrorName", "hipGetErrorString"):
        named: Any = getattr(hip, function)
        named.restype = ctypes.c_char_p
    assert hip.library.hipGetErrorName(2) in (b"hipErrorOutOfMemory", b"hipErrorMemoryAllocation")
    assert hip.library.hipGetErrorName(0) == b"hipSuccess"
    assert hip.library.hipGetErrorString(2) == b"out of memory"
    assert hip.library.hipGetErrorName(123456) == b"hipErrorUnknown"
    assert hip.library.hipGetErrorString(123456) == b"unknown error"


@pytest.mark.function("hipDrvGetErrorName")
def test_driver_names(hip: Hip) -> None:
    text = ctypes.c_char_p()
    for call in (hip.hipDrvGetErrorName, hip.hipDrvGetErrorString):
        assert call(1, ctypes.byref(text)) == SUCCESS
        assert text.value
        assert call(123456, ctypes.byref(text)) == INVALID_VALUE
    assert hip.hipDrvGetErrorName(1, None) == INVALID_VALUE
