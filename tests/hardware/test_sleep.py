"""Memory goes while its addresses stay, on real memory: views, graphs and modules are good again after a wake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan import _core
from hipplan.errors import ApplyError, HipplanError, LayoutInUse
from hipplan.layout.layout import Layout
from tests.faults.harness import woken
from tests.hardware.machine import MIB, Machine, pattern
from tests.parts import ALL

SIZE = 64 * MIB
PLAN: dict[str, Any] = {
    "hipplan": 1,
    "devices": {"gpu": {"count": 1}},
    "regions": {"weights": {"device": "gpu.0", "size": SIZE, "chunk": "16MiB", "reserve": "256MiB"}},
}


def at(layout: Layout, name: str = "weights") -> int:
    return layout[name].address


def apply(machine: Machine, plan: dict[str, Any] = PLAN) -> Layout:
    return hipplan.apply(plan, runtime=machine.wanted)


def free(machine: Machine, device: int = 0) -> int:
    return machine.runtime.memory_info(device)[0]


@pytest.mark.parametrize("to", ["host", "file"])
def test_memory_comes_free_and_comes_back_with_its_bytes(to: str, machine: Machine, tmp_path: Path) -> None:
    with apply(machine) as layout:
        base, content = at(layout), pattern(SIZE, 1)
        layout.sleep("weights")  # what moves bytes takes some memory, and stays
        layout.wake()
        machine.write_by(0, base, content)
        before = free(machine)
        layout.sleep("weights", to=tmp_path / "copy.bin" if to == "file" else to, checksum=True)
        assert free(machine) - before >= SIZE
        assert layout.drift() == []
        layout.wake(retain=True)  # the staging that a file needs stays with the layout
        assert at(layout) == base
        assert machine.read_by(0, base, SIZE) == content
        assert layout.drift() == []


def test_a_hundred_cycles_end_with_as_much_free_memory(machine: Machine) -> None:
    with apply(machine) as layout:
        content = pattern(SIZE, 2)
        machine.write_by(0, at(layout), content)
        layout.sleep("weights")
        layout.wake(retain=True)
        before = free(machine)
        for _ in range(100 if ALL else 10):
            layout.sleep("weights")
            layout.wake(retain=True)
        assert free(machine) == before
        assert machine.read_by(0, at(layout), SIZE) == content


def test_a_copy_is_freed_behind_a_wake_and_the_next_sleep_has_its_memory(machine: Machine) -> None:
    with apply(machine) as layout:
        content = pattern(SIZE, 4)
        machine.write_by(0, at(layout), content)
        for _ in range(3):
            layout.sleep("weights")
            layout.wake()
            assert machine.read_by(0, at(layout), MIB) == content[:MIB]
        layout.sleep("weights")
        layout.wake()
        assert machine.read_by(0, at(layout), SIZE) == content
    assert _core.wait_until_freed(0)  # close has waited for it


def test_sealed_parts_of_two_devices_sleep_together(pair: Machine) -> None:
    wide = {"devices": ["gpu.*"], "size": SIZE, "seal": True, "access": {"owner": "rw", "others": "r"}}
    plan = {"hipplan": 1, "devices": {"gpu": {"count": 2}}, "regions": {"weights": wide}}
    with apply(pair, plan | {"contents": {"weights": {"value": 7}}}) as layout:
        layout.sleep("weights")
        layout.wake()
        before = [free(pair, device) for device in (0, 1)]
        layout.sleep("weights")
        assert all(free(pair, device) - was >= SIZE // 2 for device, was in enumerate(before))
        layout.wake()
        for device in (0, 1):
            assert {pair.runtime.access(device, at(layout))} == {1}
            part = at(layout) + device * SIZE // 2  # of HIP 7 a copy of the other's would make its right rw
            assert pair.read_by(device, part, SIZE // 2) == b"\7" * (SIZE // 2)
        assert layout.drift() == []


def test_a_wake_without_room_is_refused_and_it_still_sleeps(machine: Machine) -> None:
    with apply(machine) as layout:
        content = pattern(MIB, 3)
        machine.write_by(0, at(layout), content)
        layout.sleep("weights")
        taken = (free(machine) - SIZE // 2) // (2 * MIB) * 2 * MIB
        with machine.scratch(0, taken):
            if free(machine) >= SIZE:
                pytest.skip("the driver keeps memory that it says is taken")
            with pytest.raises(ApplyError, match=r"HP442|HP401"):
                layout.wake()
            assert layout.asleep == {"weights": "host"}
        layout.wake()
        assert machine.read_by(0, at(layout), MIB) == content


@pytest.mark.in_parts
@pytest.mark.parametrize("code", ["hipErrorOutOfMemory", "hipErrorUnknown"])
@pytest.mark.parametrize("act", ["sleep", "wake"])
def test_a_call_that_fails_leaves_it_awake_or_asleep(act: str, code: str, machine: Machine) -> None:
    """Every call, once each."""
    content = pattern(64 * 1024, 8)
    plan = PLAN | {"regions": {"weights": {"device": "gpu.0", "size": "8MiB", "chunk": "4MiB"}}}
    n, fired = 0, 1
    while fired:
        n += 1
        layout = apply(machine, plan)
        base = at(layout)
        machine.write_by(0, base, content)
        if act == "wake":
            layout.sleep("weights")
        machine.runtime.arm_faults(f"*@{n}={code}")
        error: HipplanError | None = None
        try:
            woken(layout, names="weights") if act == "wake" else layout.sleep("weights")
        except HipplanError as raised:
            error = raised
        fired = machine.runtime.faults_fired()
        machine.disarm()
        undone = getattr(error, "undone", None)
        failures = () if undone is None else undone.failures
        assert layout.drift() == []
        if not any(failure.call == "hipMemUnmap" for failure in failures):
            layout.wake()
            assert at(layout) == base
            assert machine.read_by(0, base, len(content)) == content
        layout.close()
        machine.free_retired(failures)
    assert n > 15


def test_a_view_refuses_it_unless_by_force(machine: Machine) -> None:
    with apply(machine) as layout:
        view = layout["weights"].__dlpack__(max_version=(1, 0))
        with pytest.raises(LayoutInUse):
            layout.sleep("weights")
        layout.sleep("weights", force=True)
        layout.wake()
        del view


def test_a_graph_captured_before_a_sleep_replays_the_same_bits(gpu: Machine) -> None:
    import torch

    tensors = {"w": {"dtype": "f32", "shape": [1024, 1024]}}
    plan = PLAN | {"regions": {"weights": PLAN["regions"]["weights"] | {"tensors": tensors}}}
    with apply(gpu, plan) as layout:
        weights = torch.from_dlpack(layout["weights.w"])
        weights.copy_(torch.randn(1024, 1024, generator=torch.Generator().manual_seed(5)).to(weights.device))
        given = torch.randn(64, 1024, device=weights.device)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # what libraries make at their first call is not captured
            given @ weights
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = (given @ weights).relu()
        graph.replay()
        torch.cuda.synchronize()
        expected = out.clone()
        for to in ("host", "host"):
            layout.sleep("weights", to=to, force=True)
            layout.wake()
            out.zero_()
            graph.replay()
            torch.cuda.synchronize()
            assert torch.equal(out, expected)
        del graph, weights, out, expected, given


def test_a_modules_parameters_compute_the_same_after_a_sleep_by_force(gpu: Machine) -> None:
    import torch

    shapes = {"a": [512, 256], "b": [32, 512]}
    tensors = {name: {"dtype": "f32", "shape": shape} for name, shape in shapes.items()}
    plan = PLAN | {"regions": {"weights": PLAN["regions"]["weights"] | {"tensors": tensors}}}
    with apply(gpu, plan) as layout:
        views = {name: torch.from_dlpack(layout[f"weights.{name}"]) for name in shapes}
        device = views["a"].device
        module = torch.nn.Sequential(
            torch.nn.Linear(256, 512, bias=False, device=device), torch.nn.ReLU(),
            torch.nn.Linear(512, 32, bias=False, device=device),
        )  # fmt: skip
        for layer, name in ((module[0], "a"), (module[2], "b")):
            views[name].copy_(layer.weight.data)
            layer.weight = torch.nn.Parameter(views[name], requires_grad=False)
        given = torch.randn(8, 256, device=device)
        logits = module(given).clone()
        with pytest.raises(LayoutInUse):
            layout.sleep("weights")
        layout.sleep("weights", force=True)
        layout.wake()
        assert torch.equal(module(given), logits)
        del module, views, layer, given, logits


def test_a_torch_pool_sleeps_with_its_region(gpu: Machine) -> None:
    import torch

    if not hasattr(torch.cuda, "MemPool"):
        pytest.skip("this PyTorch has no MemPool")
    with apply(gpu) as layout:
        with layout.torch_pool("weights"):
            kept = torch.arange(2**20, dtype=torch.float32, device="cuda:0")
        total = float(kept.sum())
        layout.sleep("weights", force=True)
        layout.wake()
        assert float(kept.sum()) == total
        with layout.torch_pool("weights"):
            more = kept * 2
        assert float(more[1000]) == 2000.0
        del kept, more
        torch.cuda.empty_cache()
