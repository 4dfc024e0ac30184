"""Variables of kernels: only what is answered without one."""

import ctypes
from ctypes import c_uint64, c_void_p

import pytest

from .hip import INVALID_VALUE, NOT_SUPPORTED, Hip
from .sim import Simulator

INVALID_SYMBOL = 13
FUNCTIONS = [
    pytest.param(name, marks=pytest.mark.function(name)) for name in ("hipGetSymbolAddress", "hipGetSymbolSize")
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_arguments_are_checked_in_order(hip: Hip, function: str) -> None:
    ask, out = getattr(hip, function), c_uint64(7)
    some = ctypes.addressof(out)

    assert ask(None, None) == ask(None, c_void_p(some)) == INVALID_VALUE
    for unknown in (None, c_void_p(some)):
        assert ask(ctypes.byref(out), unknown) == INVALID_SYMBOL
    assert out.value == 7


def test_a_variable_that_is_registered_is_refused_by_the_simulator(hip: Hip, simulator: Simulator) -> None:
    """As kernels are: their variables have no memory here."""
    variable, out = c_uint64(), c_uint64()
    getattr(hip.library, "__hipRegisterVar")(None, ctypes.byref(variable))
    for function in ("hipGetSymbolAddress", "hipGetSymbolSize"):
        assert getattr(hip, function)(ctypes.byref(out), ctypes.byref(variable)) == NOT_SUPPORTED
