"""PyTorch allocates in a pool that takes chunks as tensors come, on a real GPU."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import hipplan
from hipplan import _core
from hipplan.errors import ApplyError, LayoutInUse
from hipplan.layout.pools_asleep import pool_of
from tests.descriptors import descriptors
from tests.hardware.machine import MIB, Machine

CHUNK = 8 * MIB
PLAN: dict[str, Any] = {
    "hipplan": 1,
    "regions": {
        "weights": {"size": 0, "reserve": "512MiB", "chunk": CHUNK, "torch": {"tag": "weights"}},
        "kv": {"size": 0, "reserve": "64MiB", "chunk": CHUNK, "torch": {"tag": "kv"}},
        "other": {"size": 0, "reserve": "512MiB", "chunk": "2MiB"},
    },
}
DEVICE = "cuda:0"


@pytest.fixture
def torch(gpu: Machine) -> Any:
    import torch

    if not hasattr(torch.cuda, "MemPool"):
        pytest.skip("this PyTorch has no MemPool")
    return torch


@pytest.fixture
def layout(torch: Any, machine: Machine) -> Iterator[Any]:
    with hipplan.apply(PLAN, runtime=machine.wanted) as layout:
        yield layout
        gc.collect()


def of(layout: Any, region: str = "weights") -> Any:
    return next(pool for pool in layout.usage() if pool.region == region)


def inside(layout: Any, tensor: Any, region: str = "weights") -> bool:
    base = layout[region].address
    return bool(base <= tensor.data_ptr() and tensor.data_ptr() + tensor.nbytes <= base + of(layout, region).reserved)


def test_chunks_come_with_tensors_and_go_with_trim(torch: Any, layout: Any) -> None:
    assert of(layout).mapped == 0
    with layout.torch_pool("weights"):
        small = [torch.full((MIB // 4,), float(n), device=DEVICE) for n in range(8)]
        large = torch.full((32 * MIB // 4,), 9.0, device=DEVICE)
    assert all(inside(layout, tensor) for tensor in (*small, large))
    assert [float(tensor.sum()) for tensor in small] == [n * (MIB // 4) for n in range(8)]
    assert float(large[-1]) == 9.0
    mapped = of(layout).mapped
    assert mapped >= 40 * MIB
    del large
    assert layout.trim("weights") > 0
    assert of(layout).mapped <= of(layout).used + CHUNK
    assert [float(tensor[0]) for tensor in small] == [float(n) for n in range(8)]
    del small
    layout.trim()
    assert (of(layout).mapped, of(layout).blocks) == (0, 0)


def test_gradients_of_all_threads_are_inside(torch: Any, layout: Any) -> None:
    with layout.torch_pool("weights", threads="all"):
        weight = torch.ones(MIB, device=DEVICE, requires_grad=True)
        (weight * 2).sum().backward()
    assert inside(layout, weight) and inside(layout, weight.grad)
    assert float(weight.grad.sum()) == 2 * MIB
    del weight


def test_tensors_live_through_sleep_and_graphs_replay(torch: Any, layout: Any) -> None:
    graph = torch.cuda.CUDAGraph()
    with layout.torch_pool("weights") as pool:
        x = torch.arange(MIB, dtype=torch.float32, device=DEVICE)
        weight = torch.full((MIB,), 3.0, device=DEVICE)
    chunks = of(layout).chunks
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, pool=pool.id):
        parts = [x * weight + n for n in range(16)]  # maps chunks while it is captured
        y = sum(parts)
        del parts
    assert of(layout).chunks > chunks
    graph.replay()
    before, address = y.clone(), y.data_ptr()
    mapped = of(layout).mapped
    layout.sleep("weights")
    assert (of(layout).mapped, of(layout).state) == (0, "host")
    layout.wake("weights", retain=True)
    assert (of(layout).mapped, y.data_ptr()) == (mapped, address)
    assert torch.equal(y, before) and float(weight.sum()) == 3.0 * MIB
    y.zero_()
    graph.replay()
    assert torch.equal(y, before)
    layout.sleep("weights", to="drop")
    layout.wake()
    x.copy_(torch.arange(MIB, dtype=torch.float32))
    weight.fill_(3.0)
    graph.replay()
    assert torch.equal(y, before)
    torch.cuda.synchronize()
    graph.reset()
    del graph, x, weight, y, before, pool


def test_a_capture_survives_what_the_pool_does(torch: Any, layout: Any) -> None:
    """A free that waited for the device would end it."""
    pool = pool_of(layout._holding, "weights")
    exports, number = ctypes.CDLL(_core.__file__), f"{pool.native.slot:03x}"
    malloc, free = exports[f"hipplan_chunks_malloc_{number}"], exports[f"hipplan_chunks_free_{number}"]
    malloc.restype = ctypes.c_void_p
    x = torch.ones(1024, device=DEVICE)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        y = x + 1
        block = malloc(ctypes.c_ssize_t(2 * CHUNK), 0, None)
        free(ctypes.c_void_p(block), ctypes.c_ssize_t(2 * CHUNK), 0, None)
    assert block == layout["weights"].address
    graph.replay()
    assert float(y.sum()) == 2048.0
    assert of(layout).mapped == 2 * CHUNK
    layout.trim()
    assert of(layout).mapped == 0
    del y
    graph.reset()


def test_a_graph_keeps_its_memory_through_trim_and_sleep(torch: Any, layout: Any) -> None:
    graph = torch.cuda.CUDAGraph()
    with layout.torch_pool("weights") as pool:
        x = torch.ones(MIB, device=DEVICE)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, pool=pool.id):
        y = (x + 1) * 2
    del pool
    with layout.torch_pool("weights"):
        beside = torch.zeros(MIB, device=DEVICE)  # in no block that the graph writes to
    layout.trim()
    layout.sleep("weights")
    layout.wake()
    y.zero_()
    graph.replay()
    assert (float(y.sum()), float(beside.sum())) == (4.0 * MIB, 0.0)
    torch.cuda.synchronize()
    graph.reset()
    del graph, x, y, beside


def test_who_is_inside_keeps_it_awake_and_sleep_keeps_out(torch: Any, layout: Any) -> None:
    with layout.torch_pool("weights"), pytest.raises(LayoutInUse, match="PyTorch allocates in it"):
        layout.sleep("weights")
    with layout.torch_pool("weights"):
        kept = torch.ones(MIB, device=DEVICE)
        dies = torch.ones(16 * MIB, device=DEVICE)
    layout.sleep("weights")
    assert layout.asleep == {"weights": "host"}
    with pytest.raises(ApplyError, match="asleep"), layout.torch_pool("weights"):
        pass
    del dies
    layout.wake("weights")
    layout.trim("weights")
    assert float(kept.sum()) == MIB
    assert of(layout).mapped <= of(layout).used + CHUNK
    del kept


def test_no_room_is_pytorchs_error_with_the_region(torch: Any, layout: Any) -> None:
    with layout.torch_pool("kv"):
        kept = torch.ones(8 * MIB // 4, device=DEVICE)
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(80 * MIB, dtype=torch.uint8, device=DEVICE)
    with pytest.raises(torch.OutOfMemoryError, match=r"no room in the pool 'kv': .*reserves"), layout.torch_pool("kv"):
        torch.empty(80 * MIB, dtype=torch.uint8, device=DEVICE)
    assert float(kept.sum()) == 8 * MIB // 4
    del kept


def test_threads_allocate_while_the_layout_changes(torch: Any, layout: Any) -> None:
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            with layout.torch_pool("weights"):
                for n in range(50):
                    tensor = torch.full((MIB // 4 * (1 + (seed + n) % 4),), float(seed), device=DEVICE)
                    assert float(tensor[-1]) == seed
                    del tensor
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        layout.grow("other", by="2MiB")
    for thread in threads:
        thread.join()
    assert not errors
    assert layout["other"].size == 40 * MIB
    layout.trim()
    assert of(layout).blocks == 0


def test_many_cycles_leave_everything_as_it_was(torch: Any, layout: Any) -> None:
    with layout.torch_pool("kv"):
        kept = torch.arange(MIB, dtype=torch.int32, device=DEVICE)
    whole = kept.clone()
    for _ in range(20):
        layout.sleep("kv")
        layout.wake("kv", retain=True)
    assert torch.equal(kept, whole)  # its kernels take memory when they are first run
    address, free = kept.data_ptr(), torch.cuda.mem_get_info()[0]
    open_files = descriptors()
    for _ in range(int(os.environ.get("HIPPLAN_POOL_CYCLES", "1000"))):
        layout.sleep("kv")
        layout.wake("kv", retain=True)
    assert torch.equal(kept, whole) and kept.data_ptr() == address
    assert torch.cuda.mem_get_info()[0] == free
    assert descriptors() == open_files
    del kept


def test_a_dropped_layout_is_freed_after_its_last_tensor(torch: Any, machine: Machine) -> None:
    free = torch.cuda.mem_get_info()[0]
    layout = hipplan.apply(PLAN, runtime=machine.wanted)
    with layout.torch_pool("weights"):
        kept = torch.full((64 * MIB,), 5.0, device=DEVICE)
    del layout
    gc.collect()
    assert float(kept.sum()) == 5.0 * 64 * MIB
    del kept
    torch.cuda.empty_cache()
    hipplan.apply({"hipplan": 1, "regions": {"a": {"size": "2MiB"}}}, runtime=machine.wanted).close()
    assert torch.cuda.mem_get_info()[0] >= free - 32 * MIB
