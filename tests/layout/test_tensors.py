"""Many tensors of a layout in one call."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

import hipplan
from hipplan.layout.layout import Layout
from tests.conftest import Simulator

TENSORS = {"a.weight": {"dtype": "f32", "shape": [2, 3]}, "b.weight": {"dtype": "i64", "shape": [4]}}
PLAN: dict[str, Any] = {
    "hipplan": 1,
    "devices": {"gpu": {"count": 1}},
    "regions": {
        "first": {"device": "gpu.0", "access": {"gpu.0": "rw", "host": "rw"}, "tensors": TENSORS},
        "second": {"device": "gpu.0", "tensors": {"b.weight": {"dtype": "u8", "shape": [8]}}},
        "bare": {"device": "gpu.0", "size": "2MiB"},
    },
    "contents": {"first.a.weight": {"value": 7}},
}


@pytest.fixture
def layout(sim: Simulator) -> Iterator[Layout]:
    with hipplan.apply(PLAN, runtime="sim", answer=False) as layout:
        yield layout


def test_the_tensors_of_a_region_have_their_names_in_it(layout: Layout) -> None:
    arrays = layout.tensors("first", convert=numpy.asarray)
    assert {name: (array.shape, str(array.dtype)) for name, array in arrays.items()} == {
        "a.weight": ((2, 3), "float32"),
        "b.weight": ((4,), "int64"),
    }
    assert set(arrays["a.weight"].ravel().tolist()) == {7.0}
    arrays["b.weight"][:] = 5  # the memory itself, not a copy
    assert layout.read("first.b.weight").tolist() == [5, 5, 5, 5]
    assert layout.leases == 2
    del arrays


def test_a_pattern_chooses_tensors_by_their_whole_names(layout: Layout) -> None:
    pieces = layout.tensors("*.b.weight", convert=lambda piece: piece.size)
    assert pieces == {"first.b.weight": 32, "second.b.weight": 8}


@pytest.mark.parametrize(("name", "hint"), [("fist", "did you mean 'first'"), ("*.bias", "first")])
def test_no_such_tensors(name: str, hint: str, layout: Layout) -> None:
    with pytest.raises(KeyError, match=f"no tensors '{name.replace('*', '[*]')}'.*{hint}"):
        layout.tensors(name, convert=numpy.asarray)


def test_a_region_may_have_no_tensors(layout: Layout) -> None:
    with pytest.raises(KeyError, match="the region 'bare' has no tensors"):
        layout.tensors("bare", convert=numpy.asarray)


@pytest.mark.parametrize("name", [None, ["first"]])
def test_tensors_are_named_by_a_text(name: Any, layout: Layout) -> None:
    with pytest.raises(TypeError, match="expected the name of a region, or a pattern of names of tensors, not"):
        layout.tensors(name, convert=numpy.asarray)


def test_one_that_cannot_be_converted_is_an_error_and_nothing_is_kept(layout: Layout) -> None:
    def convert(piece: Any) -> Any:
        if piece.size == 32:
            raise BufferError("no view of this one")
        return numpy.asarray(piece)

    with pytest.raises(BufferError, match="no view of this one"):
        layout.tensors("first", convert=convert)
    assert layout.leases == 0


def test_without_pytorch_the_error_says_what_to_pass(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(RuntimeError, match=r"pass convert=numpy\.asarray"):
        layout.tensors("first")
