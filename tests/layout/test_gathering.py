"""Chunks that growing adds one by one become runs: what is done beside them then costs nothing, and nothing moves."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

import hipplan
from hipplan.layout import gathering
from hipplan.program import on_demand
from hipplan.program.on_demand import LEAST
from hipplan.program.program import Program
from hipplan.program.runs import runs, written_out
from tests.conftest import Simulator
from tests.faults.harness import as_release
from tests.python_calls import CHUNK, instructions_of

RELEASES = ("6.2.41133", "6.4.43484", "7.2.53211", "7.15.0")
REGIONS: dict[str, dict[str, Any]] = {
    "on one device": {"device": "gpu.1"},
    "on two": {"devices": ["gpu.0", "gpu.1"], "spread": "interleave", "access": {"owner": "rw"}},
    "nobody has a right": {"device": "gpu.0", "access": {"gpu.0": "none"}},
    "with a tensor": {"device": "gpu.0", "tensors": {"t": {"dtype": "u8", "shape": [-1]}}},
    "empty at first": {"device": "gpu.0", "size": 0},
}


@pytest.fixture(autouse=True)
def _least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_demand, "LEAST", LEAST)


def layout_of(**regions: dict[str, Any]) -> hipplan.Layout:
    room = {"size": 2 * CHUNK, "chunk": CHUNK, "reserve": 4096 * CHUNK}
    plan = {"hipplan": 1, "devices": {"gpu": {"count": 2}}, "buffers": {"b": {"kind": "device", "device": "gpu.0",
            "size": "64KiB"}}, "regions": {name: room | region for name, region in regions.items()}}  # fmt: skip
    return hipplan.apply(plan, runtime="sim", answer=False)


def in_no_run(program: Program) -> int:
    return sum(len(part) for _, part in written_out(program.steps))


def places(layout: hipplan.Layout) -> dict[str, int | None]:
    """The address or the handle of each object."""
    state = layout._holding.state
    slots = state.program.slots
    return {
        name: state.snapshot.handle(slot)
        if state.program.makers[name].makes == "allocation"
        else state.address_of(name)
        for name, slot in slots.items()
        if state.program.makers[name].makes in ("allocation", "mapping", "reservation", "device")
    }


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("kind", REGIONS)
def test_chunks_added_one_by_one_become_runs_and_stay_where_they_are(kind: str, release: str, sim: Simulator) -> None:
    before = sim.alive()
    with as_release(sim, release), layout_of(kv=REGIONS[kind], beside={"device": "gpu.0"}) as layout:
        was: dict[str, Any] = {}
        makers: dict[str, Any] = {}
        for number in range(200):
            layout.grow("kv", by=CHUNK)
            now = places(layout)
            assert {name: now[name] for name in was} == was
            was, makers = now, makers | {name: layout.program.makers[name] for name in now}
            if number == 90:
                layout.fill("b", 7)  # adds streams behind what is there
        assert in_no_run(layout.program) < 40 + 6 * LEAST
        assert {name: layout.program.makers[name] for name in makers} == makers
        assert sorted(layout.program.slots.values()) == [*range(len(layout.program.slots))]
        assert layout.drift() == []
        layout.shrink("kv", by=60 * CHUNK)
        layout.remap("kv", part=(CHUNK, 30 * CHUNK))
        layout.grow("kv", by=40 * CHUNK)
        assert layout.drift() == []
        chunks = layout.program.regions["kv"].chunks
        assert len(chunks) == 180 + 2 * (kind != "empty at first")
        assert bytes(layout.read("b")) == bytes([7]) * (64 << 10)
    assert sim.alive() == before


def test_many_chunks_at_once_are_a_run_from_the_start(sim: Simulator) -> None:
    costs = []
    for count in (64, 640):
        with layout_of(kv={"devices": ["gpu.0", "gpu.1"], "spread": "interleave"}) as layout:
            costs.append(instructions_of(lambda layout=layout, count=count: layout.grow("kv", by=count * CHUNK)))
            assert [len(run.numbers) for _, run in runs(layout.program.steps)] == [count, count]
            assert layout.drift() == []
    assert costs[1] <= 1.1 * costs[0]


def test_growing_by_many_again_and_again_costs_the_same(sim: Simulator) -> None:
    """Each time they are a run, and the runs become one."""
    with layout_of(kv={"device": "gpu.0"}) as layout:
        costs = [instructions_of(lambda: layout.grow("kv", by=LEAST * CHUNK)) for _ in range(64)]
        assert max(costs[32:]) <= 1.1 * max(costs[:32])
        assert len([*runs(layout.program.steps)]) < 40
        assert layout.drift() == []


def test_many_chunks_beside_more_that_is_written_out_are_added_one_by_one(sim: Simulator) -> None:
    """A run would cost a look at all of it."""
    others = {f"r{number}": {"device": "gpu.0"} for number in range(200)}
    with layout_of(kv={"device": "gpu.0"}, **others) as layout:
        layout.grow("kv", by=CHUNK)
        layout.grow("kv", by=LEAST * CHUNK)
        assert not [*runs(layout.program.steps)]
        assert layout.drift() == []


def test_chunks_whose_memory_alone_is_in_no_run_stay_mapped(sim: Simulator) -> None:
    """A remap cuts runs, and writes out fewer than 32 steps: of the memory of these chunks, but not of their mappings.
    They were unmapped without a word."""
    with layout_of(kv={"device": "gpu.0", "size": 40 * CHUNK}) as layout:
        layout.remap("kv", part=(10 * CHUNK, 11 * CHUNK), device="gpu.1")
        for _ in range(3 * LEAST):
            layout.grow("kv", by=CHUNK)
        assert sum(step.makes == "mapping" for step in layout.program.steps) == 40 + 3 * LEAST
        assert layout.drift() == []
        assert len(layout.read("kv[50]")) == CHUNK


def test_a_gathering_that_would_free_something_is_not_made(
    sim: Simulator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "hipplan")
    real = gathering.gathered

    def with_one_less(program: Program) -> Any:
        made = real(program)
        return made and made._replace(moved=[(to, was, many - 1) for to, was, many in made.moved])

    monkeypatch.setattr(gathering, "gathered", with_one_less)
    with layout_of(kv={"device": "gpu.0"}) as layout:
        for _ in range(3 * LEAST):
            layout.grow("kv", by=CHUNK)
        assert layout.drift() == [] and not [*runs(layout.program.steps)]
        assert sum(step.makes == "mapping" for step in layout.program.steps) == 2 + 3 * LEAST
    assert "chunks were not gathered: some would be freed" in caplog.text


def test_an_interrupt_while_they_are_gathered_leaves_the_layout_free_for_the_next_change(
    sim: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where somebody keeps the exception."""

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with layout_of(kv={"device": "gpu.0"}) as layout, monkeypatch.context() as patch:
        patch.setattr(gathering, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt) as kept:
            for _ in range(3 * LEAST):
                layout.grow("kv", by=CHUNK)
        patch.undo()
        size = layout["kv"].size
        layout.grow("kv", by=CHUNK)
        assert layout["kv"].size == size + CHUNK and kept.value is not None
        assert layout.drift() == []


def test_regions_that_grow_in_turn_are_gathered(sim: Simulator) -> None:
    """As the caches of a model's layers do."""
    with layout_of(**{f"kv.{layer}": {"device": "gpu.0"} for layer in range(8)}) as layout:
        for _ in range(100):
            layout.grow("kv.*", by=CHUNK)
        there = [run for _, run in runs(layout.program.steps)]
        assert len(there) == 16 and min(len(run.numbers) for run in there) > 60
        assert layout.drift() == []


def test_chunks_that_moved_to_the_host_end_a_run(sim: Simulator) -> None:
    with layout_of(kv={"device": "gpu.0"}) as layout:
        for number in range(4 * LEAST):
            layout.grow("kv", by=CHUNK)
            if number == LEAST // 2:
                layout.remap("kv", part=(3 * CHUNK, 5 * CHUNK), device="host")
        assert layout.drift() == []
        assert [device for device, _ in layout.program.regions["kv"].chunks[:6]] == ["gpu.0"] * 3 + ["host"] * 2 + [
            "gpu.0"
        ]
        assert any(5 in run.numbers for _, run in runs(layout.program.steps))


ACTS: dict[str, Callable[[hipplan.Layout], Any]] = {
    "grow": lambda layout: layout.grow("kv", by=CHUNK),
    "shrink": lambda layout: layout.shrink("kv", by=CHUNK),
    "seal": lambda layout: layout.seal("beside"),
    "unseal": lambda layout: layout.unseal("beside"),
    "sleep": lambda layout: layout.sleep("beside"),
    "wake": lambda layout: layout.wake(),
    "look up": lambda layout: layout["beside"],
    "fill": lambda layout: layout.fill("b", 1),
}


@pytest.mark.parametrize("first", ["nothing", "fill", "sleep"])
def test_what_is_done_beside_chunks_added_one_by_one_costs_the_same(first: str, sim: Simulator) -> None:
    """After whatever was done before: after a fill, a growth looked at all of them."""
    costs: dict[int, list[int]] = {}
    for chunks in (124, 1240):  # as many are in no run
        with layout_of(kv={"device": "gpu.0"}, beside={"device": "gpu.0"}) as layout:
            layout.grow("kv", by=CHUNK)
            if first != "nothing":
                ACTS[first](layout)
                layout.wake()
            for _ in range(chunks):
                layout.grow("kv", by=CHUNK)
            for act in ACTS.values():  # the first ones find the facts that the others carry on
                act(layout)
            costs[chunks] = [instructions_of(lambda act=act, layout=layout: act(layout)) for act in ACTS.values()]
            assert layout.drift() == []
    for few, many in zip(*costs.values(), strict=True):
        assert many <= 1.25 * few


def test_no_memory_to_gather_stops_no_growth(sim: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def refused(program: Program) -> None:
        tried.append(program)
        raise MemoryError

    monkeypatch.setattr(gathering, "gathered", refused)
    with layout_of(kv={"device": "gpu.0"}) as layout:
        for _ in range(2 * LEAST):
            layout.grow("kv", by=CHUNK)
        assert layout.drift() == [] and not [*runs(layout.program.steps)]
    assert tried


def test_what_cannot_be_gathered_is_not_tried_again_at_once(sim: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    real = gathering.gathered
    monkeypatch.setattr(gathering, "gathered", lambda program: (tried.append(program), real(program))[1])
    with layout_of(**{f"kv.{layer}": {"device": "gpu.0"} for layer in range(LEAST)}) as layout:
        for _ in range(16):
            layout.grow("kv.*", by=CHUNK)
        assert 1 <= len(tried) <= 8
        assert layout.drift() == []
