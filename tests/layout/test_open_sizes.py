"""size: fill on the simulator: applied, kept by updates, locked, asleep, replaced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan.errors import ApplyError, MachineError
from hipplan.machines.machine import Machine
from tests.conftest import Simulator

MIB = 2**20
KV = {"size": "fill", "reserve": "10%", "chunk": "4MiB"}


def small(memory: int = 100 * MIB, in_use: int = 0) -> Machine:
    sim = hipplan.machine("sim-2")
    devices = [device.model_copy(update={"memory": memory, "in_use": in_use}) for device in sim.devices]
    return sim.model_copy(update={"devices": devices})


def plan(kv: dict[str, Any] = KV, **buffers: Any) -> dict[str, Any]:
    return {"hipplan": 1, "devices": {"gpu": {"count": 2}}, "regions": {"kv": kv}, "buffers": buffers}


def buffer(size: Any) -> dict[str, Any]:
    return {"kind": "device", "size": size}


def test_what_was_decided_is_applied_and_read_back(sim: Simulator) -> None:
    nouns = plan({**KV, "tensors": {"pages": {"dtype": "u8", "shape": [-1, 4096]}}}, rest=buffer("10%"))
    contents = {"kv.pages": {"value": 7}, "rest": {"value": 9}}
    with hipplan.apply({**nouns, "contents": contents}, runtime="sim", machine=small()) as layout:
        assert (layout["kv"].size, layout["kv.pages"].shape) == (80 * MIB, (20480, 4096))
        assert set(sim.read(layout["kv"].address + 80 * MIB - 64, 64)) == {7}
        assert layout["rest"].size == 10 * MIB
        assert not [check for check in layout.checks if not check.ok]
        assert layout.program.open_sizes == {"kv": "fill, reserve: 10%", "rest": "10%"}


def test_an_update_loses_nothing_of_it_and_grows_nothing(sim: Simulator) -> None:
    with hipplan.apply(plan(w=buffer("20MiB")), runtime="sim", machine=small()) as layout:
        address = layout["kv"].address
        layout.fill("kv", 3)
        assert layout["kv"].size == 68 * MIB
        layout.update(plan(w=buffer("20MiB"), more=buffer("8MiB")))
        assert (layout["kv"].size, layout["more"].size) == (68 * MIB, 8 * MIB)
        layout.update(plan(), lose=["w", "more"])  # what becomes free stays free
        assert (layout["kv"].address, layout["kv"].size) == (address, 68 * MIB)
        assert set(sim.read(address, 68 * MIB)) == {3}

        layout.grow("kv", to="96MiB")
        layout.update(plan(more=buffer("4MiB")))
        assert layout["kv"].size == 96 * MIB
        layout.shrink("kv", to="20MiB")
        layout.update(plan(more=buffer("4MiB"), again=buffer("40MiB")))
        assert (layout["kv"].address, layout["kv"].size) == (address, 20 * MIB)


def test_an_update_that_needs_its_memory_is_refused_and_changes_nothing() -> None:
    with hipplan.apply(plan(), runtime="sim", machine=small()) as layout:
        with pytest.raises(MachineError, match="HP301"):
            layout.update(plan(more=buffer("40MiB")))
        assert layout["kv"].size == 88 * MIB
        layout.shrink("kv", to="48MiB")
        layout.update(plan(more=buffer("40MiB")))
        assert (layout["kv"].size, layout["more"].size) == (48 * MIB, 40 * MIB)


def test_a_plan_that_says_something_else_decides_again_and_losses_need_consent() -> None:
    with hipplan.apply(plan(), runtime="sim", machine=small()) as layout:
        less = plan({**KV, "reserve": "50%"})
        with pytest.raises(ApplyError, match="HP423"):
            layout.update(less)
        assert layout["kv"].size == 88 * MIB
        layout.update(less, lose=["kv"])
        assert layout["kv"].size == 48 * MIB
        layout.update(plan({**KV, "reserve": "2MiB"}))
        assert layout["kv"].size == 96 * MIB


def test_a_region_without_chunks_is_told_what_to_write_to_grow() -> None:
    one_piece = plan({"size": "fill", "reserve": "50%"})
    with (
        hipplan.apply(one_piece, runtime="sim", machine=small()) as layout,
        pytest.raises(ApplyError, match="give it a chunk"),
    ):
        layout.grow("kv", by="4MiB")


def test_it_sleeps_and_wakes_and_an_update_keeps_it_asleep() -> None:
    with hipplan.apply(plan(), runtime="sim", machine=small()) as layout:
        layout.fill("kv", 5)
        layout.sleep("kv")
        layout.update(plan(w=buffer("4MiB")))
        layout.wake("kv")
        assert layout["kv"].size == 88 * MIB
        assert set(layout.read("kv").tolist()) == {5}


def test_a_locked_apply_has_the_bytes_of_the_lock(tmp_path: Path) -> None:
    from hipplan.program.lock import lock, to_yaml

    path = tmp_path / "plan.lock"
    path.write_text(to_yaml(lock(hipplan.compile(plan(), small()))))
    busy = small(memory=100 * MIB, in_use=4 * MIB)
    with hipplan.apply(plan(), runtime="sim", machine=busy, locked=path) as layout:
        assert layout["kv"].size == 88 * MIB
        address = layout["kv"].address
    with hipplan.apply(plan(), runtime="sim", machine=busy) as layout:
        assert layout["kv"].size == 84 * MIB
    with hipplan.apply(plan(), runtime="sim", machine=small(), locked=path) as layout:
        assert layout["kv"].address == address
    with pytest.raises(MachineError, match="HP301"):
        hipplan.apply(plan(), runtime="sim", machine=small(memory=64 * MIB), locked=path)
