"""layout.read and layout.write: memory of any kind as NumPy arrays, nothing converted."""

from __future__ import annotations

import sys
from typing import Any

import numpy
import pytest

import hipplan
from tests.conftest import Simulator

PLAN: dict[str, Any] = {
    "hipplan": 1,
    "devices": {"gpu": {"count": 2}},
    "streams": {"copy": {"device": "gpu.0"}},
    "allocations": {"one": {"device": "gpu.1", "size": "2MiB"}},
    "reservations": {"range": {"access": {"gpu.1": "rw"}, "mappings": [{"allocation": "one"}]}},
    "buffers": {
        "device": {"kind": "device", "device": "gpu.1", "size": 4096},
        "pinned": {"kind": "pinned", "size": 4096},
        "fresh": {"kind": "registered", "anonymous": {"size": 4096}},
        "table": {"kind": "managed", "size": 4096},
    },
    "regions": {
        "r": {
            "device": "gpu.0",
            "tensors": {
                "x": {"dtype": "f32", "shape": [3, 5]},
                "b": {"dtype": "bf16", "shape": [2, 4]},
                "e": {"dtype": "f8_e4m3fn", "shape": [8]},
                "c": {"dtype": "c64", "shape": [2]},
                "t": {"dtype": "bool", "shape": [7]},
            },
        },
        "wide": {"devices": ["gpu.*"], "spread": "interleave", "chunk": "2MiB",
                 "tensors": {"t": {"dtype": "u16", "shape": [5, 2**20]}}},
        "locked": {"device": "gpu.0", "size": 4096, "seal": True},
    },
}  # fmt: skip


@pytest.fixture
def layout(sim: Simulator) -> Any:
    with hipplan.apply(PLAN | {"contents": {"locked": {"value": 3}}}, runtime="sim") as made:
        yield made


@pytest.mark.parametrize("name", ["device", "pinned", "fresh", "table", "range[0]"])
def test_bytes_come_back_from_every_kind_of_memory(name: str, layout: hipplan.Layout) -> None:
    data = numpy.random.default_rng(3).integers(0, 256, layout[name].size, dtype="u1")
    layout.write(name, data.view("i4"))
    back = layout.read(name)

    assert back.dtype == "uint8"
    assert back.shape == (layout[name].size,)
    assert (back == data).all()
    assert layout.leases == 0


@pytest.mark.parametrize("name", ["r.x", "r.c", "r.t", "wide.t"])
def test_tensors_keep_dtype_and_shape(name: str, layout: hipplan.Layout) -> None:
    shape = layout[name].shape
    data = numpy.arange(numpy.prod(shape)).reshape(shape).astype(layout[name].dtype.torch)
    layout.write(name, data)
    back = layout.read(name)

    assert (back.dtype, back.shape) == (data.dtype, shape)
    assert (back == data).all()
    assert back.flags.owndata
    back[:] = 0
    assert (layout.read(name) == data).all()


def test_an_array_need_not_be_contiguous(layout: hipplan.Layout) -> None:
    data = numpy.arange(15, dtype="f4").reshape(5, 3).T
    layout.write("r.x", data)
    assert (layout.read("r.x") == data).all()


def test_lists_are_taken_as_numpy_takes_them(layout: hipplan.Layout) -> None:
    layout.write("r.t", [True, False, True, True, False, False, True])
    assert layout.read("r.t").tolist() == [True, False, True, True, False, False, True]


def test_what_numpy_has_no_type_for_is_refused_or_read_as_bits(
    layout: hipplan.Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(hipplan.ApplyError, match=r"NumPy has no bf16, of which 'r\.b' is") as caught:
        layout.read("r.b")
    assert caught.value.diagnostics[0].hint.endswith("read('r.b', dtype='u16')")
    layout.write("r.b", numpy.full((2, 4), 0x3F80, "u2"))
    layout.write("r.e", numpy.full(8, 0x38, "u1"))

    assert (layout.read("r.b", dtype="u16") == 0x3F80).all()
    assert layout.read("r.b", dtype="u8").shape == (2, 8)
    assert (layout.read("r.e", dtype="u8") == 0x38).all()
    with pytest.raises(hipplan.ApplyError, match=r"HP421.*'r\.b' is of bf16, the array of float16"):
        layout.write("r.b", numpy.zeros((2, 4), "f2"))


@pytest.mark.parametrize(("name", "dtype"), [("r.b", "bfloat16"), ("r.e", "float8_e4m3fn")])
def test_ml_dtypes_has_the_others(name: str, dtype: str, layout: hipplan.Layout) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    shape = layout[name].shape
    data = numpy.linspace(-2, 2, 8).reshape(shape).astype(getattr(ml_dtypes, dtype))
    layout.write(name, data)
    back = layout.read(name)

    assert back.dtype == data.dtype
    assert (back == data).all()


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("r.x", numpy.zeros((5, 3), "f4"), r"HP421.*'r.x' has the shape \[3, 5\], the array \[5, 3\]"),
        ("r.x", numpy.zeros((3, 5)), r"HP421.*'r.x' is of f32, the array of float64\n  hint: .*astype\('float32'\)"),
        ("r.x", numpy.zeros((3, 5), ">f4"), r"HP421.*big-endian.*\n.*astype\('<f4'\)"),
        ("r.x", numpy.zeros((3, 5), "u4"), "HP421.*'r.x' is of f32, the array of uint32"),
        ("device", numpy.zeros(3, object), "HP421.*an array of object has no bytes for 'device'"),
        ("device", numpy.zeros(4095, "u1"), "HP421.*'device' has 4096 bytes, the array 4095"),
        ("locked", numpy.zeros(4096, "u1"), "HP213.*may write 'locked'"),
        ("copy", numpy.zeros(1), "HP213.*'copy' has no bytes of its own"),
        ("none", numpy.zeros(1), "HP420.*no 'none'"),
    ],
)
def test_what_does_not_fit_is_refused(name: str, array: Any, message: str, layout: hipplan.Layout) -> None:
    with pytest.raises(hipplan.ApplyError, match=message):
        layout.write(name, array)
    assert layout.leases == 0


@pytest.mark.parametrize(("dtype", "message"), [("c128", "a row of 'r.x' has 20 bytes"), ("what", "no dtype 'what'")])
def test_a_dtype_that_does_not_fit_is_refused(dtype: str, message: str, layout: hipplan.Layout) -> None:
    with pytest.raises(hipplan.ApplyError, match=message):
        layout.read("r.x", dtype=dtype)


def test_what_sleeps_or_is_closed_is_refused(sim: Simulator) -> None:
    with hipplan.apply(PLAN, runtime="sim") as layout:
        layout.sleep("r")
        with pytest.raises(hipplan.ApplyError, match="HP441"):
            layout.read("r.x")
    with pytest.raises(ValueError, match="closed"):
        layout.write("r.x", numpy.zeros((3, 5), "f4"))


def test_without_numpy_a_sentence(layout: hipplan.Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(RuntimeError, match="read needs NumPy, which is not installed"):
        layout.read("r.x")


def test_a_refused_copy_leaves_the_layout(layout: hipplan.Layout) -> None:
    layout.read("device")
    for call in (layout.read, lambda name: layout.write(name, numpy.zeros(4096, "u1"))):
        layout.runtime.arm_faults("hipMemcpyAsync@1=hipErrorUnknown")
        with pytest.raises(hipplan.ApplyError, match=r"HP401.*'device'"):
            call("device")
        layout.runtime.arm_faults("")
    assert layout.leases == 0
