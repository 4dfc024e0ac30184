"""Arguments that the program cannot read are an error, not the end of the process."""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections.abc import Iterator
from ctypes import byref, c_int, c_size_t, c_void_p

import pytest

from ..conformance.hip import INVALID_VALUE, SUCCESS, Hip, prop

PROT_NONE = 0


@pytest.fixture
def last_readable() -> Iterator[int]:
    """The end of a page with nothing that can be read behind it."""
    pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    assert protect(c_void_p(begin + mmap.PAGESIZE), c_size_t(mmap.PAGESIZE), PROT_NONE) == 0
    yield begin + mmap.PAGESIZE
    assert protect(c_void_p(begin + mmap.PAGESIZE), c_size_t(mmap.PAGESIZE), 3) == 0


def test_a_struct_that_ends_where_nothing_can_be_read_is_invalid(hip: Hip, last_readable: int) -> None:
    wanted = prop(0)
    size = ctypes.sizeof(wanted)
    for inside in (size, size - 1, 8, 1, 0):
        place = last_readable - inside
        ctypes.memmove(place, byref(wanted), inside)
        granularity = c_size_t()
        code = hip.hipMemGetAllocationGranularity(byref(granularity), c_void_p(place), 0)
        assert code == (SUCCESS if inside == size else INVALID_VALUE), inside


def test_an_answer_cannot_go_where_nothing_is(hip: Hip, last_readable: int) -> None:
    for place in (last_readable, last_readable - 2, 8, 2**47, 2**64 - 4):
        assert hip.hipGetDeviceCount(c_void_p(place)) == INVALID_VALUE, hex(place)
    assert hip.hipGetDeviceCount(c_void_p(last_readable - 4)) == SUCCESS


def test_each_thread_has_a_stack_of_its_own(hip: Hip, last_readable: int) -> None:
    """What is on another thread's is asked of the kernel."""
    codes: list[int] = []

    def ask() -> None:
        count = c_int()
        codes.append(hip.hipGetDeviceCount(byref(count)))
        codes.append(hip.hipGetDeviceCount(c_void_p(last_readable)))

    for _ in range(2):
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    assert codes == [SUCCESS, INVALID_VALUE] * 2
