"""One table of dtypes, under everybody's names."""

from __future__ import annotations

import numpy
import pytest

from hipplan.files.dtypes import BY_NAME, BYTE, DTYPES, dtype_of


@pytest.mark.parametrize(
    ("given", "name"),
    [("bf16", "bf16"), ("torch.bfloat16", "bf16"), ("__hip_bfloat16", "bf16"), ("BF16", "bf16"),
     (numpy.float32, "f32"), (numpy.dtype("int64"), "i64"), ("np.uint8", "u8"), ("half", "f16"),
     ("torch.float8_e4m3fn", "f8_e4m3fn"), ("__hip_fp8_e4m3", "f8_e4m3fn"), ("F8_E5M2", "f8_e5m2"),
     ("HIP_R_16BF", "bf16"), ("double", "f64"), (bool, "bool"),
     (float, "f64"), (int, "i64"), (complex, "c128"), ("float", "f32"), ("<f4", "f32"), ("|u1", "u8"), ("=i8", "i64"),
     (numpy.dtype("<i2"), "i16"), (numpy.dtype(float), "f64"), (numpy.dtype("long"), "i64"), ("unsigned char", "u8")],
)  # fmt: skip
def test_names_of_everybody(given: object, name: str) -> None:
    assert dtype_of(given).name == name


@pytest.mark.parametrize("given", [bool, int, float, complex, numpy.float16, numpy.uint64])
def test_types_are_what_numpy_means_by_them(given: type) -> None:
    assert dtype_of(given).typestr == numpy.dtype(given).str


@pytest.mark.parametrize(
    ("given", "expected"),
    [("f4", "no dtype 'f4'; NumPy's '<f4' is f32, and 'f32' or '<f4' says so"), (">f4", "no dtype '>f4'; there are"),
     (str, "no dtype 'str'"), (None, "no dtype 'None'"), (numpy.dtype(">f4"), "no dtype '>f4'")],
)  # fmt: skip
def test_what_could_mean_two_things_is_refused(given: object, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        dtype_of(given)


def test_no_name_means_two_things() -> None:
    assert len(BY_NAME) == sum(len({dtype.name, *dtype.names}) for dtype in DTYPES)
    assert BYTE.name == "u8"


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.format], ids=str)
def test_numpy_agrees_on_size_and_kind(dtype) -> None:  # type: ignore[no-untyped-def]
    assert numpy.dtype(dtype.typestr) == numpy.dtype(dtype.names[0])
    assert numpy.dtype(dtype.names[0]).itemsize == dtype.size
    array = numpy.zeros(1, dtype.names[0])
    assert memoryview(array).format in (dtype.format, {"q": "l", "Q": "L"}.get(dtype.format))


def test_an_unknown_name_gets_the_known_names() -> None:
    with pytest.raises(ValueError, match="no dtype 'float17'"):
        dtype_of("float17")
