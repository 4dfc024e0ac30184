"""The rights of attached processes: `attached: rw` in the plan, overruled by --access and access=."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import hipplan
from hipplan.errors import ApplyError, HeldError
from hipplan.holders import requests
from tests import meddling
from tests.conftest import Simulator
from tests.started import run
from tests.unit.test_attached import plan as attached_plan

RIGHTS = {0: "none", 1: "r", 3: "rw"}
PLAN = """hipplan: 1
name: cached
devices: {gpu: {count: 2}}
regions:
  weights: {device: gpu.0, access: {gpu.0: rw, gpu.1: r}, tensors: {w: {dtype: f32, shape: [1024]}}}
  cache:
    device: gpu.0
    chunk: 2MiB
    access: {gpu.0: rw, gpu.1: r}
    attached: rw
    tensors: {k: {dtype: f32, shape: [1048576]}}
  table: {device: gpu.0, seal: true, attached: rw, tensors: {t: {dtype: f32, shape: [1024]}}}
allocations:
  pages: {device: gpu.1, size: 2MiB, count: 2}
reservations:
  mail:
    access: {gpu.1: rw}
    mappings: [{allocation: pages.0}, {allocation: pages.1, attached: rw}]
contents:
  weights.w: {value: 1.5}
  table.t: {value: 2.5}
"""
WRITABLE = {"weights": False, "cache": True, "mail[0]": False, "mail[1]": True}

Up = Callable[..., dict[str, Any]]


@pytest.fixture
def up(folder: Path, tmp_path: Path) -> Iterator[Up]:
    """up(*arguments): starts the holder "w" of the plan; returns its status."""

    def start(*arguments: str, text: str = PLAN) -> dict[str, Any]:
        plan = tmp_path / "plan.yaml"
        plan.write_text(text)
        assert run(["up", str(plan), "--name", "w", "--quiet", *arguments]) == 0
        return requests.status("w")

    yield start
    assert run(["down", "w", "--force", "--quiet"]) == 0


def rights(layout: hipplan.Layout, name: str) -> list[str]:
    """The rights of both devices, read from the driver."""
    return [RIGHTS[layout.runtime.access(device, layout[name].address)] for device in (0, 1)]


def refusal(layout: hipplan.Layout, name: str) -> tuple[str, str, str]:
    """The summary, the reason and the hint."""
    with pytest.raises(ApplyError) as caught:
        layout.fill(name, 1, dtype="u8")
    (error,) = caught.value.diagnostics
    assert error.code == "HP213"
    return error.summary, error.why, error.hint


def may_write(layout: hipplan.Layout, name: str) -> bool:
    """Whether fill() is accepted."""
    try:
        layout.fill(name, 1, dtype="u8")
    except ApplyError as error:
        assert error.diagnostics[0].code == "HP213"
        return False
    return True


def test_each_object_has_the_rights_of_the_plan(up: Up, sim: Simulator) -> None:
    up()
    with hipplan.attach("w") as layout:
        assert rights(layout, "weights") == ["r", "r"]
        assert rights(layout, "cache") == ["rw", "r"]
        assert [rights(layout, f"mail[{number}]") for number in (0, 1)] == [["none", "r"], ["none", "rw"]]
        assert {name: may_write(layout, name) for name in WRITABLE} == WRITABLE
        assert [layout[name].read_only for name in ("weights", "cache")] == [True, False]
        assert layout.verify().mismatches() == []


def test_one_process_writes_and_another_reads_the_bytes(up: Up, sim: Simulator) -> None:
    up()
    with hipplan.attach("w") as writer, hipplan.attach("w", addresses="any") as reader:
        writer.write("cache.k", numpy.arange(1 << 20, dtype="f4"))
        assert reader.read("cache.k").tolist() == [*range(1 << 20)]
        reader.fill("mail[1]", 9, dtype="u8")
        assert set(writer.read("mail[1]").tobytes()) == {9}


def test_a_refusal_names_the_object_and_has_a_hint(up: Up, sim: Simulator) -> None:
    up()
    with hipplan.attach("w") as layout:
        for write in (
            lambda: layout.fill("weights.w", 0.0),
            lambda: layout.write("weights.w", numpy.zeros(1024, "f4")),
            lambda: layout.load("weights.w", "missing.npy"),
            lambda: layout.copy("table.t", "weights.w"),
        ):
            with pytest.raises(ApplyError) as caught:
                write()
            (error,) = caught.value.diagnostics
            assert error.code == "HP213"
            assert error.summary == "no device may write 'weights.w' here"
            assert error.why == "this process is attached to 'w', and may only read 'weights'"
            assert "attached: rw at 'weights' in the plan of 'w'" in error.hint
            assert "--access rw" in error.hint
    with hipplan.attach("w", access="r") as layout:
        assert 'attach without access="r"' in refusal(layout, "cache")[2]


def test_access_r_makes_all_objects_read_only(up: Up, sim: Simulator) -> None:
    up()
    with hipplan.attach("w", access="r") as layout:
        assert not any(may_write(layout, name) for name in (*WRITABLE, "table"))
        layout.unseal("table")
        assert rights(layout, "table") == ["r", "none"]
        assert requests.status("w")["attached"][0]["access"] == "r"


def test_access_rw_is_refused_unless_the_holder_allows_it(up: Up, sim: Simulator) -> None:
    up()
    with pytest.raises(HeldError) as caught:
        hipplan.attach("w", access="rw")
    assert caught.value.diagnostics[0].code == "HP454"
    assert "attached: rw" in caught.value.diagnostics[0].hint


def test_access_rw_makes_all_objects_writable_if_the_holder_allows_it(up: Up, sim: Simulator) -> None:
    up("--access", "rw")
    with hipplan.attach("w", access="rw") as layout:
        assert all(may_write(layout, name) for name in WRITABLE)
        assert rights(layout, "weights") == ["rw", "r"]
    with hipplan.attach("w") as layout:
        assert {name: may_write(layout, name) for name in WRITABLE} == WRITABLE
        assert 'or attach(access="rw")' in refusal(layout, "weights")[2]


def test_up_with_access_r_overrules_the_plan(up: Up, sim: Simulator, capsys: Any) -> None:
    up("--access", "r")
    with hipplan.attach("w") as layout:
        assert not any(may_write(layout, name) for name in WRITABLE)
        assert "without --access r" in refusal(layout, "cache")[2]
        assert requests.status("w")["attached"][0]["access"] == "r"
        assert run(["ps"]) == 0
        shown = capsys.readouterr().out
        assert ", read-only" in shown
        assert "(rw" not in shown


def test_a_sealed_object_is_read_only_until_a_process_that_may_write_unseals_it(up: Up, sim: Simulator) -> None:
    up()
    with hipplan.attach("w") as layout, hipplan.attach("w", addresses="any") as other:
        assert rights(layout, "table") == ["r", "none"]
        assert "unseal" in refusal(layout, "table.t")[2]
        layout.unseal("table")
        layout.fill("table.t", 4.0)
        assert set(other.read("table.t").tolist()) == {4.0}
        assert rights(other, "table") == ["r", "none"]
        layout.seal("cache")
        assert rights(layout, "cache") == ["r", "r"]
        layout.unseal("cache")
        layout.unseal("weights")
        assert [rights(layout, name) for name in ("cache", "weights")] == [["rw", "r"], ["r", "r"]]
        assert layout.verify().mismatches() == []


def test_ps_shows_what_attached_processes_may_write(up: Up, sim: Simulator, capsys: Any) -> None:
    status = up()
    assert status["access"] == "plan"
    assert status["generations"][0]["writable"] == ["mail[1]", "cache", "table"]
    with hipplan.attach("w"):
        assert run(["ps", "--format", "json"]) == 0
        (holder,) = json.loads(capsys.readouterr().out)["holders"]
        assert [process["access"] for process in holder["attached"]] == ["plan"]
        assert run(["ps"]) == 0
        assert "(rw: mail[1], cache, table)" in capsys.readouterr().out


def test_ps_shows_r_for_a_process_that_may_write_nothing(up: Up, sim: Simulator) -> None:
    up(text=PLAN.replace("attached: rw", "attached: r"))
    with hipplan.attach("w"):
        status = requests.status("w")
    assert [process["access"] for process in status["attached"]] == ["r"]
    assert status["generations"][0]["writable"] == []


def test_a_replacement_has_the_rights_of_its_own_plan(up: Up, sim: Simulator, tmp_path: Path) -> None:
    up()
    other = tmp_path / "other.yaml"
    other.write_text(PLAN.replace("attached: rw", "attached: r").replace("weights: {", "weights: {attached: rw, "))
    with hipplan.attach("w") as old:
        assert run(["replace", "w", str(other), "--lose", "*", "--quiet"]) == 0
        with hipplan.attach("w", addresses="any") as new:
            assert {name: may_write(old, name) for name in WRITABLE} == WRITABLE
            assert [name for name in WRITABLE if may_write(new, name)] == ["weights"]


def test_verify_reports_access_that_differs_from_the_plan(up: Up, sim: Simulator) -> None:
    """Write access is given or revoked by a driver call outside hipplan."""
    up()
    with hipplan.attach("w") as layout:
        for name, right in (("weights[0]", "rw"), ("cache[0]", "r")):
            meddling.set_access(layout, name, (0, right), (1, "r"))
        mismatches = {(check.name, check.desired, check.current) for check in layout.verify().mismatches()}
        assert mismatches == {("weights[0]", "r", "rw"), ("cache[0]", "rw", "r")}


def test_an_apply_gives_the_same_rights_with_and_without_it(sim: Simulator) -> None:
    without = attached_plan({"attached": "r"}, {"attached": "r"})
    programs = [hipplan.compile(data, "sim-2") for data in (attached_plan(), without)]
    assert programs[0].steps == programs[1].steps
    with hipplan.apply(attached_plan(), runtime="sim") as layout:
        assert dict(layout["r"].resource.access) == {"gpu.0": "rw"}
        layout.update(without)
        assert layout.verify().mismatches() == []
