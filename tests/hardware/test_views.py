"""Views on a real GPU: PyTorch and CuPy see the very bytes, by address; read-only stays read-only."""

from __future__ import annotations

import importlib
from typing import Any

import numpy
import pytest

import hipplan
from hipplan.errors import LayoutInUse
from tests.hardware.machine import MIB, Machine


def library(name: str) -> Any:
    """A framework that sees the GPU, or a skip."""
    result = pytest.importorskip(name)
    if name == "cupy":
        try:
            result.cuda.runtime.getDeviceCount()
            result.zeros(1).sum()  # compiles a kernel
        except Exception as error:
            pytest.skip(f"CuPy cannot be used here: {error}")
    return result


def plan(**more: Any) -> dict[str, Any]:
    tensors = {"a": {"dtype": "f32", "shape": [64, 1024]}, "b": {"dtype": "bf16", "shape": [128, 8]}}
    return {
        "hipplan": 1,
        "regions": {"r": {"tensors": tensors}},
        "buffers": {
            "scratch": {"kind": "device", "size": MIB},
            "staging": {"kind": "pinned", "size": MIB},
            "fresh": {"kind": "registered", "anonymous": {"size": MIB}},
        },
        **more,
    }


@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_dlpack_round_trip_of_device_memory(name: str, gpu: Machine) -> None:
    framework = library(name)
    with hipplan.apply(plan(), runtime=gpu.wanted) as layout:
        piece = layout["r.a"]
        gpu.runtime.fill(piece.address, 0, piece.nbytes)
        view = framework.from_dlpack(piece)
        address = view.data_ptr() if name == "torch" else view.data.ptr
        view += 1.5
        importlib.import_module("torch").cuda.synchronize()

        assert address == piece.address
        assert tuple(view.shape) == (64, 1024)
        assert numpy.frombuffer(gpu.runtime.read(piece.address, piece.nbytes), "<f4").tolist() == [1.5] * 65536
        assert layout.leases == 1
        with pytest.raises(LayoutInUse):
            layout.close()
        back = framework.from_dlpack(view)
        assert (back.data_ptr() if name == "torch" else back.data.ptr) == address
        del view, back
    assert layout.closed


@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_the_cuda_array_interface(name: str, gpu: Machine) -> None:
    framework = library(name)
    with hipplan.apply(plan(), runtime=gpu.wanted) as layout:
        piece = layout["scratch"].view("i32", (-1, 16))
        layout.fill("scratch", 3, dtype="i32")
        view = framework.as_tensor(piece, device="cuda") if name == "torch" else framework.asarray(piece)

        assert (view.data_ptr() if name == "torch" else view.data.ptr) == piece.address
        assert int(view.sum()) == 3 * MIB // 4
        del view, piece
    assert layout.closed


def test_bfloat16_goes_to_pytorch(gpu: Machine) -> None:
    torch = library("torch")
    with hipplan.apply(plan(contents={"r.b": {"value": 2.5}}), runtime=gpu.wanted) as layout:
        view = torch.from_dlpack(layout["r.b"])

        assert (view.dtype, tuple(view.shape), view.data_ptr()) == (torch.bfloat16, (128, 8), layout["r.b"].address)
        assert float(view.float().sum()) == 2.5 * 1024
        del view


@pytest.mark.parametrize("buffer", ["staging", "fresh"])
def test_pinned_and_registered_memory_is_cpu_memory_to_pytorch(buffer: str, gpu: Machine) -> None:
    torch = library("torch")
    with hipplan.apply(plan(), runtime=gpu.wanted) as layout:
        view = torch.from_dlpack(layout[buffer].view("f32"))
        view.fill_(4.0)

        assert (view.device.type, view.data_ptr()) == ("cpu", layout[buffer].address)
        assert numpy.asarray(layout[buffer].view("f32")).sum() == MIB
        del view


def test_read_only_stays_read_only(gpu: Machine) -> None:
    """DLPack's read-only flag for readers of version 1; older readers are refused."""
    torch, document = library("torch"), plan()
    document["regions"]["r"]["access"] = {"gpu.0": "r"}
    with hipplan.apply(document, runtime=gpu.wanted) as layout:
        piece = layout["r.a"]
        assert piece.read_only
        assert piece.__cuda_array_interface__["data"] == (piece.address, True)
        with pytest.raises(BufferError, match="read-only"):
            piece.__dlpack__(max_version=None)
        assert "dltensor_versioned" in repr(piece.__dlpack__(max_version=(1, 0)))
        try:
            view = torch.from_dlpack(piece)
        except (BufferError, RuntimeError):  # a PyTorch that takes no read-only memory: refused, not written
            pass
        else:
            assert view.data_ptr() == piece.address
            del view
        del piece


@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_growing_keeps_views_valid(name: str, gpu: Machine) -> None:
    framework = library(name)
    cache = {"reserve": 64 * MIB, "chunk": 8 * MIB, "size": 8 * MIB,
             "tensors": {"pages": {"dtype": "f32", "shape": [-1, 1024]}}}  # fmt: skip
    with hipplan.apply({"hipplan": 1, "regions": {"cache": cache}}, runtime=gpu.wanted) as layout:
        layout.fill("cache.pages", 1.0)
        old = framework.from_dlpack(layout["cache.pages"])
        layout.grow("cache", to=32 * MIB)
        new = framework.from_dlpack(layout["cache.pages"])
        old += 1
        addresses = [item.data_ptr() if name == "torch" else item.data.ptr for item in (old, new)]

        assert addresses == [layout["cache"].address] * 2
        assert (tuple(old.shape), tuple(new.shape)) == ((2048, 1024), (8192, 1024))
        assert float(new[:2048].sum()) == 2.0 * 2048 * 1024
        new[2048:] = 3
        assert float(new[-1].sum()) == 3.0 * 1024
        del old, new
