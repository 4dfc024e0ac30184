"""torch_memory_saver's calls on any runtime: with a stand-in for PyTorch everywhere, with PyTorch on GPUs."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from hipplan.errors import ApplyError
from hipplan.torch_memory_saver import TorchMemorySaver
from hipplan.torch_memory_saver.pools import Pools
from tests.hardware.machine import MIB, Machine, pattern
from tests.torch_memory_saver.stand_in import Torch, put_in_place


@pytest.fixture
def saver(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Iterator[TorchMemorySaver]:
    monkeypatch.setenv("HIPPLAN_RUNTIME", machine.wanted)
    saver = TorchMemorySaver()
    yield saver
    gc.collect()
    if (layout := saver._pools.layout) is not None:
        layout.close()


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Torch:
    monkeypatch.setattr(Pools, "_memory", lambda self, device: 2048 * MIB)  # so that a chunk is 2 MiB
    return put_in_place(monkeypatch)


def test_pause_frees_memory_or_is_refused(saver: TorchMemorySaver, stand_in: Torch, machine: Machine) -> None:
    """Some releases of ROCm free memory only with its addresses: there pause() is refused, and nothing changes."""
    with saver.region("weights", enable_cpu_backup=True):
        weights = stand_in.empty(3 * MIB)
    with saver.region("kv_cache"):
        cache = stand_in.empty(5 * MIB)
    data = pattern(3 * MIB, "weights")
    machine.write_by(0, weights.address, data)
    layout = saver._pools.layout
    assert layout is not None
    taken = sum(pool.mapped for pool in layout.usage())
    slack = 4 * MIB if machine.is_amd_before(7, 0) else 0  # it frees what write_by has freed with a delay
    free = machine.runtime.memory_info(0)[0]
    try:
        saver.pause()
    except ApplyError as refused:
        assert refused.diagnostics[0].code == "HP440" and machine.chosen.kind == "amd"
        print("pause() is refused here")
        assert sum(pool.mapped for pool in layout.usage()) == taken
        assert machine.runtime.memory_info(0)[0] == free
    else:
        assert free + taken <= machine.runtime.memory_info(0)[0] <= free + taken + slack
        with pytest.raises(ApplyError, match="HP441"), saver.region("kv_cache"):
            pass
        assert bytes(saver._pools.host_copy(weights.address, 3 * MIB) or b"") == data
        saver.resume()
        assert free <= machine.runtime.memory_info(0)[0] <= free + slack
    assert machine.read_by(0, weights.address, 3 * MIB) == data
    machine.write_by(0, cache.address, data)


@pytest.fixture
def torch(gpu: Machine) -> Any:
    import torch

    if not hasattr(torch.cuda, "MemPool"):
        pytest.skip("this PyTorch has no MemPool")
    return torch


def region_of(saver: TorchMemorySaver, tensor: Any) -> str:
    layout = saver._pools.layout
    if layout is None:
        return ""
    places = {pool.region: (layout[pool.region].address, pool.reserved) for pool in layout.usage()}
    return next((name for name, (at, size) in places.items() if at <= tensor.data_ptr() < at + size), "")


def test_regions_nest(torch: Any, saver: TorchMemorySaver) -> None:
    with saver.region("outer"):
        first = torch.ones(MIB, device="cuda:0")
        with saver.region("inner", enable_cpu_backup=True):
            second = torch.ones(MIB, device="cuda:0")
        with saver.disable():
            plain = torch.ones(MIB, device="cuda:0")
        third = torch.ones(MIB, device="cuda:0")
    after = torch.ones(MIB, device="cuda:0")
    where = [region_of(saver, tensor) for tensor in (first, second, plain, third, after)]
    assert where == ["outer.0", "inner.kept.0", "", "outer.0", ""]
    del first, second, plain, third, after


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool"])
def test_a_backup_is_a_tensor(dtype: str, torch: Any, saver: TorchMemorySaver) -> None:
    with saver.region(enable_cpu_backup=True):
        small = torch.arange(60, device="cuda:0").reshape(3, 20).to(getattr(torch, dtype))
        scalar = torch.ones((), dtype=getattr(torch, dtype), device="cuda:0")
        empty = torch.ones((0, 3), dtype=getattr(torch, dtype), device="cuda:0")
    expected = [tensor.cpu() for tensor in (small, scalar, empty)]
    assert saver.get_cpu_backup(small) is None
    with pytest.raises(ValueError, match="contiguous tensors on a GPU"):
        saver.get_cpu_backup(expected[0])
    with pytest.raises(ValueError, match="contiguous tensors on a GPU"):
        saver.get_cpu_backup(small.t())
    saver.pause()
    for tensor, wanted in zip((small, scalar, empty), expected, strict=True):
        for zero_copy in (False, True):
            copy = saver.get_cpu_backup(tensor, zero_copy=zero_copy)
            assert torch.equal(copy, wanted) and (copy.dtype, copy.shape) == (wanted.dtype, wanted.shape)
    saver.get_cpu_backup(small, zero_copy=True).zero_()
    shared = saver.get_cpu_backup(small, zero_copy=True)
    del copy
    saver.resume()
    assert not bool(small.any()) and not bool(shared.any())
    del small, scalar, empty, shared


def test_graphs_replay_after_pauses_of_their_memory(torch: Any, saver: TorchMemorySaver) -> None:
    with saver.region("weights", enable_cpu_backup=True):
        x = torch.arange(MIB, dtype=torch.float32, device="cuda:0")
    graphs = [torch.cuda.CUDAGraph() for _ in range(2)]
    handle = torch.cuda.graph_pool_handle()
    results = []
    for number, graph in enumerate(graphs):
        with saver.region("weights", enable_cpu_backup=True), saver.cuda_graph(graph, tag="graph", pool=handle):
            results.append((x * (number + 2) + 1).sum())
    assert {region_of(saver, result) for result in results} == {"graph.0"}
    assert graphs[0].pool() == graphs[1].pool() != handle
    expected = [float((x.double() * (number + 2) + 1).sum()) for number in range(2)]
    for _ in range(3):
        saver.pause("graph")
        saver.pause()
        saver.resume("weights")
        saver.resume()
        for graph, result, wanted in zip(graphs, results, expected, strict=True):
            graph.replay()
            assert float(result) == pytest.approx(wanted)
    torch.cuda.synchronize()
    for graph in graphs:
        graph.reset()
    del graph, result
    del graphs, results, x


AT_THE_END = """
import torch
from torch_memory_saver import torch_memory_saver
with torch_memory_saver.region("weights", enable_cpu_backup=True):
    x = torch.ones(2**20, device="cuda:0")
graph = torch.cuda.CUDAGraph()
with torch_memory_saver.cuda_graph(graph, tag="graph"):
    y = x * 2
graph.replay()
torch_memory_saver.pause()
torch_memory_saver.resume("graph")
backup = torch_memory_saver.get_cpu_backup(x, zero_copy=True)
print(float(backup.sum()))
"""


def test_a_process_may_end_with_all_of_it_alive(torch: Any, machine: Machine) -> None:
    from hipplan.torch_memory_saver import folder

    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder()), *sys.path])}
    surroundings["HIPPLAN_RUNTIME"] = machine.wanted
    ended = subprocess.run([sys.executable, "-c", AT_THE_END], env=surroundings, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "1048576.0\n", "")
