"""PyTorch's CPU build sees host memory of a layout in place. With a GPU: tests/cuda/with_torch.py."""

from __future__ import annotations

import gc

import pytest

import hipplan
from hipplan.files.dtypes import DTYPES
from tests.conftest import Simulator

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

PLAN = """
hipplan: 1
buffers:
  staging: {kind: pinned, size: 1MiB}
  fresh: {kind: registered, anonymous: {size: 64KiB}}
  table: {kind: managed, size: 64KiB}
  scratch: {kind: device, size: 64KiB}
"""


@pytest.mark.parametrize("name", ["staging", "fresh"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_goes_round_without_a_copy(name: str, dtype, sim: Simulator) -> None:  # type: ignore[no-untyped-def]
    with hipplan.apply(PLAN, runtime="sim") as layout:
        piece = layout[name].view(dtype, (4, -1))
        tensor = torch.from_dlpack(piece)
        assert tensor.dtype == getattr(torch, dtype.torch)
        assert tensor.data_ptr() == piece.address
        assert tuple(tensor.shape) == piece.shape
        assert layout.leases == 1

        tensor.view(torch.uint8).reshape(-1)[:4] = torch.tensor([1, 0, 1, 1], dtype=torch.uint8)
        assert layout.runtime.read(piece.address, 4) == b"\1\0\1\1"
        del tensor
        assert layout.leases == 0


def test_managed_memory_as_the_cpus(sim: Simulator) -> None:
    with hipplan.apply(PLAN, runtime="sim") as layout:
        tensor = torch.from_dlpack(layout["table"].on("host").view("f32"))

        assert tensor.data_ptr() == layout["table"].address
        del tensor


def test_device_memory_is_never_taken_for_the_cpus(sim: Simulator) -> None:
    if torch.cuda.is_available():
        pytest.skip("the simulator's addresses are not for a real GPU")
    with hipplan.apply(PLAN, runtime="sim") as layout:
        with pytest.raises((AssertionError, RuntimeError)):
            torch.from_dlpack(layout["scratch"])

        assert layout.leases == 0


def test_a_tensor_that_outlives_the_block_is_reported(sim: Simulator) -> None:
    layout = hipplan.apply(PLAN, runtime="sim")
    part = torch.from_dlpack(layout["staging"])[100:200].reshape(10, 10)
    with pytest.raises(hipplan.LayoutInUse):
        layout.close()
    del part
    gc.collect()
    layout.close()
