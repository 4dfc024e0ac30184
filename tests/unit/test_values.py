"""One element's bytes: against NumPy where it has the type, against the formats' definitions where not."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipplan.files.dtypes import DTYPES
from hipplan.files.values import encode

NUMPY = [dtype for dtype in DTYPES if dtype.typestr and dtype.name != "bool"]


@pytest.mark.parametrize("dtype", NUMPY, ids=str)
def test_as_numpy_writes_it(dtype: object) -> None:
    for value in (0, 1, 7):
        assert encode(str(dtype), value) == numpy.array(value, dtype.typestr).tobytes()  # type: ignore[attr-defined]


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_bfloat16_is_the_nearest_one(value: float) -> None:
    try:
        (got,) = struct.unpack("<f", b"\0\0" + encode("bf16", value))
    except ValueError:
        assert abs(value) >= 3.3895e38
        return
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    around = (bits & ~0xFFFF, (bits & ~0xFFFF) + 0x10000)
    low, high = (struct.unpack("<f", struct.pack("<I", near))[0] for near in around)
    assert abs(got - value) <= min(abs(low - value), abs(high - value) if math.isfinite(high) else math.inf)


@pytest.mark.parametrize(
    ("dtype", "value", "code"),
    [
        ("f8_e4m3fn", 1.0, 0x38), ("f8_e4m3fn", 448.0, 0x7E), ("f8_e4m3fn", -0.5, 0xB0), ("f8_e4m3fn", 2**-9, 0x01),
        ("f8_e4m3fn", math.nan, 0x7F), ("f8_e4m3fn", 1.0624, 0x38), ("f8_e4m3fn", 1.0626, 0x39),
        ("f8_e4m3fn", 1.0625, 0x38), ("f8_e4m3fn", 1.1875, 0x3A),
        ("f8_e5m2", 1.0, 0x3C), ("f8_e5m2", math.inf, 0x7C), ("f8_e5m2", -math.inf, 0xFC), ("f8_e5m2", 57344, 0x7B),
        ("f8_e4m3fnuz", 1.0, 0x40), ("f8_e4m3fnuz", 240.0, 0x7F), ("f8_e4m3fnuz", math.nan, 0x80),
        ("f8_e5m2fnuz", 1.0, 0x40), ("f8_e8m0fnu", 1.0, 127), ("f8_e8m0fnu", 0.5, 126),
        ("bool", True, 1), ("bf16", math.nan, 0xC0),
    ],
)  # fmt: skip
def test_small_floats(dtype: str, value: float, code: int) -> None:
    assert encode(dtype, value)[0] == code


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("i8", 128), ("u8", -1), ("i32", 1.5), ("bool", 1), ("i8", True), ("f8_e4m3fn", 449), ("f8_e4m3fn", math.inf),
        ("f16", 70000.0), ("bf16", 3.4e38), ("f8_e8m0fnu", 0.0), ("f8_e8m0fnu", -1.0), ("u64", 2**64), ("f32", 10**400),
    ],
)  # fmt: skip
def test_what_a_type_cannot_hold(dtype: str, value: float) -> None:
    with pytest.raises(ValueError, match=r"out of range|whole numbers|bool"):
        encode(dtype, value)


@pytest.mark.parametrize("dtype", ["u8", "f32", "bool", "bf16", "f8_e5m2"])
@pytest.mark.parametrize(("value", "told"), [("x", "text"), (None, "nothing"), ([1], "a list"), (1j, "a complex")])
def test_what_is_no_number_is_called_that_and_not_too_large(dtype: str, value: Any, told: str) -> None:
    with pytest.raises(ValueError, match=f"expected a number, true or false, not {told}"):
        encode(dtype, value)


def test_numbers_of_numpy_are_numbers() -> None:
    numpy = pytest.importorskip("numpy")

    assert encode("f32", numpy.float32(0.5)) == encode("f32", 0.5)
    assert encode("u8", numpy.int64(3)) == b"\x03"
