"""hipMemMapArrayAsync: refused on AMD in every release."""

import ctypes

import pytest

from .hip import INVALID_VALUE, NOT_SUPPORTED, Hip

pytestmark = pytest.mark.function("hipMemMapArrayAsync")


def test_an_empty_list_is_invalid(hip: Hip) -> None:
    some = ctypes.create_string_buffer(256)
    assert hip.hipMemMapArrayAsync(None, 1, None) == INVALID_VALUE
    assert hip.hipMemMapArrayAsync(some, 0, None) == INVALID_VALUE


def test_anything_else_is_not_supported(hip: Hip) -> None:
    assert hip.hipMemMapArrayAsync(ctypes.create_string_buffer(256), 1, None) == NOT_SUPPORTED
