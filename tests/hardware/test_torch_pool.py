"""PyTorch allocates inside a region, on a real GPU."""

from __future__ import annotations

from typing import Any

import pytest

import hipplan
from hipplan.errors import LayoutInUse
from tests.hardware.machine import MIB, Machine


@pytest.fixture
def torch(gpu: Machine) -> Any:
    import torch

    if not hasattr(torch.cuda, "MemPool"):
        pytest.skip("this PyTorch has no MemPool")
    return torch


PLAN: dict[str, Any] = {"hipplan": 1, "regions": {"scratch": {"size": 256 * MIB}}}


def inside(layout: Any, tensor: Any) -> bool:
    base = layout["scratch"].address
    return bool(base <= tensor.data_ptr() and tensor.data_ptr() + tensor.nbytes <= base + 256 * MIB)


def test_tensors_are_placed_in_the_region_and_kernels_use_them(torch: Any, machine: Machine) -> None:
    with hipplan.apply(PLAN, runtime=machine.wanted) as layout:
        with layout.torch_pool("scratch"):
            a = torch.arange(2**20, dtype=torch.float32, device="cuda:0")
            b = a * 2 + 1
            outside = torch.arange(8)  # on the CPU
        c = torch.ones(16, device="cuda:0")

        assert inside(layout, a) and inside(layout, b)
        assert not inside(layout, c)
        assert float(b[1000]) == 2001.0
        assert layout.leases > 0
        with pytest.raises(LayoutInUse, match="scratch"):
            layout.close()
        del a, b, c, outside
    assert layout.closed


def test_no_room_is_pytorchs_out_of_memory_error(torch: Any, machine: Machine) -> None:
    with hipplan.apply(PLAN, runtime=machine.wanted) as layout:
        with layout.torch_pool("scratch"):
            held = torch.empty(200 * MIB, dtype=torch.uint8, device="cuda:0")
            with pytest.raises(torch.OutOfMemoryError):
                torch.empty(200 * MIB, dtype=torch.uint8, device="cuda:0")
            del held
            again = torch.empty(200 * MIB, dtype=torch.uint8, device="cuda:0")  # what was freed is used again
            assert inside(layout, again)
            del again
        assert float(torch.ones(4, device="cuda:0").sum()) == 4.0  # the process goes on


def test_the_pool_is_used_again_and_fragments_join(torch: Any, machine: Machine) -> None:
    with hipplan.apply(PLAN, runtime=machine.wanted) as layout:
        for size in (100, 60, 30):
            with layout.torch_pool("scratch"):
                tensors = [torch.full((size * MIB // 4,), float(n), device="cuda:0") for n in range(2)]
            assert [float(tensor[-1]) for tensor in tensors] == [0.0, 1.0]
            assert all(inside(layout, tensor) for tensor in tensors)
            del tensors
            torch.cuda.empty_cache()


def test_a_tensor_that_lives_on_keeps_the_layout_open(torch: Any, machine: Machine) -> None:
    layout = hipplan.apply(PLAN, runtime=machine.wanted)
    with layout.torch_pool("scratch"):
        kept = torch.full((MIB,), 7.0, device="cuda:0")
    with pytest.raises(LayoutInUse):
        layout.close()
    assert float(kept.sum()) == 7.0 * MIB
    del kept
    layout.close()
