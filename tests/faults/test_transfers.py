"""Fail every driver call of copies, fills and loads in a stream: nothing stays under way, and nothing is lost."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import hipplan
from hipplan import _core
from hipplan.layout.layout import Layout
from tests.conftest import Simulator
from tests.faults.harness import FOR_EVER, ONCE, Phase, as_release, calls_of, chosen

MIB = 2**20
PLAN: dict[str, Any] = {
    "hipplan": 1,
    "devices": {"gpu": {"count": 2}},
    "peers": "all",
    "streams": {"copy": {"device": "gpu.0"}},
    "buffers": {
        "a": {"kind": "device", "device": "gpu.0", "size": MIB},
        "far": {"kind": "device", "device": "gpu.1", "size": MIB},
        "host": {"kind": "pinned", "size": MIB},
    },
    "regions": {"r": {"device": "gpu.0", "tensors": {"x": {"dtype": "f32", "shape": [64, 64]}}}},
}
CALLS = {"hipEventCreateWithFlags", "hipEventRecord", "hipEventQuery", "hipEventDestroy", "hipMemcpyAsync",
         "hipMemcpyPeerAsync", "hipMemsetAsync", "hipStreamSynchronize"}  # fmt: skip


class Transfers(Phase):
    """One of each: what stands in the stream, and what threads do."""

    def __init__(self, sim: Simulator, file: Path) -> None:
        super().__init__(sim)
        self.file = file

    def begin(self) -> Layout:
        layout = hipplan.apply(PLAN, runtime="sim")
        layout.fill("a", 1)  # makes the lanes, and so do the next
        layout.fill("far", 1)
        layout.load("r.x", self.file)
        return layout

    def act(self, layout: Layout) -> None:
        layout.fill("a", 0, stream="copy").wait()
        layout.fill("r.x", 0.5, stream="copy").wait()
        layout.copy("host", "a", stream="copy").wait()
        layout.copy("far", "a", stream="copy").wait()
        layout.load("r.x", self.file, stream="copy").wait()

    def end(self, layout: Layout) -> None:
        layout.close()


def free_events(layout: Layout, leaks: list[str]) -> None:
    hip = ctypes.CDLL(layout.runtime.path)
    for event in re.findall("event=(0x[0-9a-f]+)", "".join(leaks)):
        assert hip.hipEventDestroy(ctypes.c_void_p(int(event, 16))) == 0


@pytest.fixture
def phase(sim: Simulator, tmp_path: Path) -> Iterator[Transfers]:
    numpy.save(tmp_path / "x.npy", numpy.ones((64, 64), "f4"))
    sim.runtime.set_retry_pause(1)
    yield Transfers(sim, tmp_path / "x.npy")
    sim.runtime.set_retry_pause(1000)


@pytest.mark.in_parts
@pytest.mark.parametrize("release", ["6.4.0", "7.3.0"])
@pytest.mark.parametrize(("code", "mode"), [("hipErrorOutOfMemory", ONCE), ("hipErrorUnknown", FOR_EVER)])
def test_any_call_may_fail(code: str, mode: str, release: str, phase: Transfers, tmp_path: Path) -> None:
    sim = phase.sim
    with as_release(sim, release):
        calls = calls_of(phase, tmp_path / "trace")
        assert {*calls} >= CALLS
        for n, call in chosen(calls):
            layout = phase.begin()
            before = sim.alive()
            sim.runtime.arm_faults(f"*@{n}{mode}={code}")
            try:
                phase.act(layout)
                failed = False
            except hipplan.ApplyError as error:
                failed = True
                assert code in str(error), (n, call)
            sim.runtime.arm_faults("")
            leaks = _core.take_leaks()
            free_events(layout, leaks)

            assert failed or mode == ONCE, (n, call)
            assert failed or call in ("hipEventDestroy", "hipSetDevice"), (n, call)
            assert [line for line in leaks if "event" not in line and "current device" not in line] == [], (n, call)
            assert layout.leases == 0, (n, call)
            assert sim.alive() == before, (n, call)
            phase.act(layout)
            phase.end(layout)


def test_not_ready_is_the_answer_of_a_query_and_nothing_to_retry(phase: Transfers) -> None:
    layout = phase.begin()
    retries = layout.runtime.retries
    layout.runtime.arm_faults("hipEventQuery@1=hipErrorNotReady; hipEventQuery@2=hipErrorNotReady")
    transfer = layout.fill("a", 1, stream="copy")
    assert not transfer.done
    transfer.wait()
    assert layout.runtime.retries == retries
    layout.runtime.arm_faults("hipEventRecord@1=hipErrorNotReady")
    layout.fill("a", 1, stream="copy").wait()
    assert layout.runtime.retries == retries + 1
    layout.runtime.arm_faults("")
    phase.end(layout)
