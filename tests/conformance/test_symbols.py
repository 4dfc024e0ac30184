"""Variables of kernels: only what is answered without one."""

import ctypes
from ctypes import c_uint64, c_void_p

import pytest

from .hip import INVALID_VALUE, Hip

INVALID_SYMBOL = 13
FUNCTIONS = [
    pytest.param(name, marks=pytest.mark.function(name)) for name in ("hipGetSymbolAddress", "hipGetSymbolSize")
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_null_arguments_are_checked_in_order(hip: Hip, function: str) -> None:
    ask, out = getattr(hip, function), c_uint64(7)
    some = ctypes.addressof(out)

    assert ask(None, None) == ask(None, c_void_p(some)) == INVALID_VALUE
    assert ask(ctypes.byref(out), None) == INVALID_SYMBOL
    assert out.value == 7
