"""Fail every driver call that a program of torch_memory_saver causes: the process goes on, no tensor is lost, nothing
leaks, and a pause that failed has freed nothing."""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan import _core
from hipplan.layout.undo import wait_until_freed
from hipplan.torch_memory_saver import TorchMemorySaver
from tests.conftest import Simulator
from tests.faults.harness import (
    DEFECTS,
    FOR_EVER,
    ONCE,
    RELEASES,
    RELEASING,
    as_release,
    chosen,
    require_reported,
    require_turn,
)
from tests.torch_memory_saver.stand_in import Graph, OutOfMemoryError, Tensor, Torch

pytestmark = pytest.mark.in_parts

MIB = 2**20
CODES = ("HP401", "HP402", "HP403", "HP406", "HP407", "HP440", "HP442")


class Program:
    """What the examples do: weights with a backup, a cache without one, and a graph."""

    def __init__(self, sim: Simulator, torch: Torch) -> None:
        self.sim, self.torch, self.saver = sim, torch, TorchMemorySaver()
        self.kept: dict[int, tuple[Tensor, int]] = {}
        self.dropped: list[Tensor] = []
        self.graph: Graph | None = None

    def weights(self) -> None:
        with self.saver.region("weights", enable_cpu_backup=True):
            for _ in range(2):
                tensor = self.torch.empty(3 * MIB)
                self.kept[tensor.address] = (tensor, len(self.kept) + 1)

    def fill(self) -> None:
        """Each tensor with a backup gets a number in all of its bytes."""
        for address, (tensor, number) in self.kept.items():
            self.sim.fill(address, number, tensor.nbytes)

    def cache(self) -> None:
        with self.saver.region("kv_cache"):
            self.dropped.append(self.torch.empty(5 * MIB))

    def capture(self) -> None:
        graph = Graph()
        with self.saver.cuda_graph(graph, tag="graph"):
            self.dropped.append(self.torch.empty(MIB))
        self.graph = graph

    def everything(self) -> None:
        self.weights()
        self.fill()
        self.cache()
        self.capture()

    def require_whole(self) -> None:
        """Every tensor is mapped; those with a backup have their bytes."""
        for address, (tensor, number) in self.kept.items():
            assert self.sim.read(address, tensor.nbytes) == bytes([number]) * tensor.nbytes
        for tensor in self.dropped:
            self.sim.fill(tensor.address, 9, tensor.nbytes)
        with self.saver.region("weights", enable_cpu_backup=True):
            self.torch.empty(MIB)

    def close(self) -> None:
        self.kept.clear()
        self.dropped.clear()
        if self.graph is not None:
            self.graph.reset()
        gc.collect()
        if (layout := self.saver._pools.layout) is not None:
            layout.close()

    @property
    def paused(self) -> set[str]:
        layout = self.saver._pools.layout
        return set() if layout is None else {*layout.asleep}


Act = Callable[[Program], Any]


def filled(program: Program) -> None:
    program.weights()
    program.fill()


def paused(program: Program) -> None:
    program.everything()
    program.saver.pause()


def kept_a_copy(program: Program) -> None:
    program.everything()
    program.saver.retain_cpu_backup = True
    program.saver.pause()
    program.saver.resume()


def nothing(program: Program) -> None:
    pass


ACTS: dict[str, tuple[Act, Act]] = {
    "the first region": (nothing, Program.weights),
    "another tag": (filled, Program.cache),
    "a graph": (filled, Program.capture),
    "pause": (Program.everything, lambda program: program.saver.pause()),
    "pause one tag": (Program.everything, lambda program: program.saver.pause("weights")),
    "pause into a copy that was kept": (kept_a_copy, lambda program: program.saver.pause()),
    "resume": (paused, lambda program: program.saver.resume()),
    "resume one tag": (paused, lambda program: program.saver.resume("kv_cache")),
}
"""What comes before, in which no call fails; and what calls fail in."""


@pytest.fixture(params=RELEASES)
def release(sim: Simulator, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulator]:
    monkeypatch.setenv("HIPPLAN_RUNTIME", "sim")
    with as_release(sim, request.param, *DEFECTS.get(request.param, ())):
        sim.runtime.set_retry_pause(1)
        yield sim
        sim.runtime.set_retry_pause(1000)


def calls_of(sim: Simulator, torch: Torch, first: Act, act: Act, to: Path) -> list[str]:
    program = Program(sim, torch)
    first(program)
    to.unlink(missing_ok=True)
    sim.runtime.trace_to(str(to))
    act(program)
    wait_until_freed()
    sim.runtime.trace_to("")
    program.saver.resume()
    program.close()
    return [json.loads(line)["call"] for line in to.read_text().splitlines()]


def failed_calls(trace: Path) -> set[str]:
    """Which calls failed: the n-th one differs from run to run, because a thread frees copies behind a resume."""
    calls = map(json.loads, trace.read_text().splitlines())
    return {call["call"] for call in calls if call["result"] == "hipErrorOutOfMemory"}


@pytest.mark.parametrize("mode", [ONCE, FOR_EVER])
@pytest.mark.parametrize("what", ACTS)
def test_any_call_may_fail(
    what: str, mode: str, release: Simulator, torch: Torch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    require_turn(release, mode, [*ACTS].index(what))
    sim, (first, act) = release, ACTS[what]
    calls = calls_of(sim, torch, first, act, tmp_path / "trace")
    assert len(calls) >= 4
    for n, call in chosen(calls):
        caplog.clear()
        empty, program = sim.alive(), Program(sim, torch)
        first(program)
        before = program.paused
        (tmp_path / "trace").unlink(missing_ok=True)
        sim.runtime.trace_to(str(tmp_path / "trace"))
        sim.runtime.arm_faults(f"*@{n}{mode}=hipErrorOutOfMemory")
        error = attempt(lambda program=program: act(program))
        wait_until_freed()
        sim.runtime.trace_to("")
        failed = failed_calls(tmp_path / "trace")
        assert sim.runtime.faults_fired(), (n, call)
        sim.runtime.arm_faults("")
        if error and what.startswith(("pause", "resume")):
            (line,) = re.findall("paused now: (.*)", error)
            assert {*line.split(", ")} - {"nothing"} == program.paused, (n, call, error)
            if mode == ONCE and "pause" in what and "HP403" not in error:  # of all of it, or of none
                assert program.paused == before, (n, call, error)
        if "region" in what:
            program.fill()
        more = attempt(program.saver.resume)
        known = "\n".join([error, more, *caplog.messages, *_core.take_leaks()])
        if mode == ONCE or "hipMemUnmap(" not in known:
            # The copies of a pause that failed may be reported later.
            assert more == "" or (mode == FOR_EVER and "HP401" not in more and "HP442" not in more), (n, call)
            program.require_whole()
        known += "\n".join([attempt(program.close), *caplog.messages, *_core.take_leaks()])
        may_be_left = mode == FOR_EVER or bool(failed & {*RELEASING})
        require_reported(sim, empty, known, may_be_left=may_be_left, failed=(n, call, failed))


def attempt(act: Callable[[], Any]) -> str:
    """The error of a call, in full."""
    try:
        act()
    except hipplan.HipplanError as error:
        assert {diagnostic.code for diagnostic in error.diagnostics} <= {*CODES}, error
        return str(error)
    except OutOfMemoryError as error:
        return str(error)
    return ""


def test_a_pause_that_would_free_nothing_is_refused(
    sim: Simulator, torch: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ROCm issue 6021: memory comes back only with its addresses."""
    monkeypatch.setenv("HIPPLAN_RUNTIME", "sim")
    with as_release(sim, "7.2.53211", "free_memory_with_reservation"):
        program = Program(sim, torch)
        program.everything()
        free = sim.runtime.memory_info(0)[0]
        for tag in ("weights", "kv_cache", None):
            with pytest.raises(hipplan.ApplyError, match=r"HP440.*\n.*issue 6021.*\n.*\n  paused now: nothing"):
                program.saver.pause(tag)
            assert (program.paused, sim.runtime.memory_info(0)[0]) == (set(), free)
        program.require_whole()
        program.close()
