"""Transfers in streams of a plan: the bytes, the order, and copy and compute at the same time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest

import hipplan
from tests.conftest import ROOT
from tests.hardware.machine import MIB, Machine, pattern
from tests.hardware.test_cycles import same_after

SIZE = 16 * MIB
LONG_CYCLES = 6_000_000_000
"""Of a kernel that only waits: seconds, and thousands of times as long as the copy beside it."""


def plan(devices: int) -> dict[str, Any]:
    buffers: dict[str, Any] = {"inbox": {"kind": "pinned", "size": SIZE}, "outbox": {"kind": "pinned", "size": SIZE}}
    for n in range(devices):
        buffers[f"on_{n}"] = {"kind": "device", "device": f"gpu.{n}", "size": SIZE}
    tensors = {"x": {"dtype": "f32", "shape": [SIZE // 4]}}
    return {
        "hipplan": 1,
        "devices": {"gpu": {"count": devices}},
        "peers": "all",
        "streams": {"copy": {"device": "gpu.0"}, "compute": {"device": "gpu.0"}},
        "buffers": buffers,
        "regions": {"r": {"device": "gpu.0", "tensors": tensors}},
    }


def through_a_stream(machine: Machine, data: Any, file: Path) -> None:
    """Bytes by all kinds of transfers; data: what the file has."""
    with hipplan.apply(plan(1), runtime=machine.wanted) as layout:
        layout.write("inbox", data)
        layout.copy("inbox", "on_0", stream="copy")  # without a wait: each is queued behind the one before
        there = layout.copy("on_0", "outbox", stream="copy")
        there.wait()
        assert there.ordered
        assert (layout.read("outbox") == data).all()
        layout.fill("r.x", 1.5, stream="copy").wait()
        assert (layout.read("r.x") == 1.5).all()
        layout.fill("on_0", 0, stream="copy")
        layout.load("on_0", file, stream="copy").wait()
        assert (layout.read("on_0") == data).all()


def test_bytes_arrive_through_a_stream(machine: Machine, tmp_path: Path) -> None:
    """Every time, and however often: nothing is left in the end."""
    data = numpy.frombuffer(pattern(SIZE, "stream"), "u1")
    file = tmp_path / "bytes"
    file.write_bytes(data.tobytes())
    same_after(machine, 10, lambda _: through_a_stream(machine, data, file))
    if not machine.simulated:
        machine.slack = 2 * MIB  # NVIDIA's driver takes up to that the first time, and no more later


def test_bytes_go_from_device_to_device(pair: Machine) -> None:
    data = numpy.frombuffer(pattern(SIZE, "peer"), "u1")
    with hipplan.apply(plan(2), runtime=pair.wanted) as layout:
        layout.write("on_1", data)
        layout.copy("on_1", "on_0", stream="copy").wait()
        assert (layout.read("on_0") == data).all()


def test_a_failed_query_is_reported_at_wait(machine: Machine) -> None:
    with hipplan.apply(plan(1), runtime=machine.wanted) as layout:
        machine.runtime.arm_faults("hipEventQuery@1=hipErrorUnknown")
        transfer = layout.copy("inbox", "on_0", stream="copy")
        with pytest.raises(hipplan.ApplyError, match="hipEventQuery"):
            transfer.wait()
        machine.disarm()
        assert layout.leases == 0


@pytest.fixture
def torch(gpu: Machine) -> Any:
    import torch

    gpu.wavers()
    return torch


def test_copy_and_compute_at_the_same_time(torch: Any, gpu: Machine) -> None:
    """The copy is done while a kernel in the other stream still runs."""
    with hipplan.apply(ROOT / "plans" / "double-buffering.yaml", runtime=gpu.wanted) as layout:
        compute = torch.cuda.ExternalStream(layout["compute"].handle)
        inbox = numpy.frombuffer(pattern(layout["inbox.0"].size, "inbox"), "u1")
        layout.write("inbox.0", inbox)
        with torch.cuda.stream(compute):
            torch.cuda._sleep(LONG_CYCLES)
        layout.copy("inbox.0", "batch.0", stream="copy").wait()
        still_runs = not compute.query()
        compute.synchronize()

        assert still_runs
        assert (layout.read("batch.0") == inbox).all()


def test_kernels_and_copies_keep_the_order_of_their_stream(torch: Any, gpu: Machine) -> None:
    with hipplan.apply(plan(1), runtime=gpu.wanted) as layout:
        stream = torch.cuda.ExternalStream(layout["copy"].handle)
        view = torch.from_dlpack(layout["r.x"])
        layout.write("inbox", numpy.full(SIZE // 4, 2.0, "f4"))
        view.add_(1)  # loads the kernel, which waits for all streams the first time
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(LONG_CYCLES // 10)
            first = layout.copy("inbox", "r.x", stream="copy")
            view.add_(1)
            second = layout.copy("r.x", "outbox", stream="copy")
            assert not first.done
            second.wait()
            assert first.done
        assert (layout.read("outbox").view("f4") == 3.0).all()
        del view


def test_close_waits_for_the_copy_behind_a_kernel(torch: Any, gpu: Machine) -> None:
    layout = hipplan.apply(plan(1), runtime=gpu.wanted)
    with torch.cuda.stream(torch.cuda.ExternalStream(layout["copy"].handle)):
        torch.cuda._sleep(LONG_CYCLES // 10)
    transfer = layout.copy("inbox", "on_0", stream="copy")
    layout.close()
    assert transfer.done
    transfer.wait()
