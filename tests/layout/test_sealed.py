"""`seal: true`: filled, then read-only for everybody, in one transaction; and what a change makes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest

import hipplan
from hipplan.errors import ApplyError
from hipplan.language.loader import load
from hipplan.layout.layout import Layout
from hipplan.layout.options import Options
from hipplan.layout.prepare import prepare
from hipplan.layout.run import run
from hipplan.lowering.compiler import compile_change
from hipplan.machines.profiles import load_machine
from hipplan.machines.runtimes import choose
from hipplan.program import listing, lock, written
from hipplan.program.steps import Step
from hipplan.show import render_json
from tests.conftest import Simulator
from tests.faults.harness import as_release

MIB = 2**20
RIGHTS = {0: "none", 1: "r", 3: "rw"}
BOTH = {"gpu.0": "rw", "gpu.1": "r"}
VALUE = {"r": {"value": 7}}


def region(**keys: Any) -> dict[str, Any]:
    return {"chunk": "2MiB", "reserve": "16MiB", "size": "4MiB", "access": BOTH, "seal": True, **keys}


def plan(contents: Any = None, **keys: Any) -> dict[str, Any]:
    made = {"hipplan": 1, "devices": {"gpu": {"count": 2}}, "regions": {"r": region(**keys)}}
    return made | {"contents": VALUE if contents is None else contents}


def rights(layout: Layout, name: str) -> list[str]:
    return [RIGHTS[layout.runtime.access(device, layout[name].address)] for device in (0, 1)]


def bytes_of(sim: Simulator, layout: Layout, name: str) -> list[int]:
    """Which bytes there are, from the first to the last, runs told once."""
    data = numpy.frombuffer(sim.read(layout[name].address, layout[name].nbytes), "u1")
    return data[numpy.flatnonzero(numpy.diff(data, prepend=-1))].tolist()


def codes(data: dict[str, Any]) -> list[str]:
    return [warning.code for warning in hipplan.load(data).warnings]


def test_sealed_memory_has_its_contents_and_no_device_may_write(sim: Simulator) -> None:
    with hipplan.apply(plan(), runtime="sim") as layout:
        assert rights(layout, "r[0]") == rights(layout, "r[1]") == ["r", "r"]
        assert bytes_of(sim, layout, "r") == [7]
        assert layout["r"].read_only
        assert {(check.what, check.current) for check in layout.checks if check.what.startswith("access")} == {
            ("access of gpu.0", "r"), ("access of gpu.1", "r"),
        }  # fmt: skip
        assert layout.drift() == []
        with pytest.raises(ApplyError, match="sealed: call unseal"):
            layout.fill("r", 1)
        with pytest.raises(ApplyError, match=r"HP420.*'r\[0\]' is sealed"):
            layout.grow("r", by="2MiB")
    assert sim.alive() == set()


def test_unseal_frees_what_the_plan_says(sim: Simulator) -> None:
    with hipplan.apply(plan(), runtime="sim") as layout:
        assert str(layout.unseal("r")) == "~ region r: access (gpu.0: r, gpu.1: r, sealed) -> (gpu.0: rw, gpu.1: r)"
        assert rights(layout, "r[1]") == ["rw", "r"]
        layout.fill("r", 1)
        layout.grow("r", by="2MiB")
        layout.seal("r")
        assert rights(layout, "r[2]") == ["r", "r"]
        assert layout.drift() == []


def test_each_part_is_written_by_its_owner_first(sim: Simulator) -> None:
    owners = {"devices": ["gpu.*"], "access": {"owner": "rw", "others": "r"}, "size": "8MiB", "reserve": None}
    data = plan()
    data["regions"]["r"] = {key: item for key, item in region(**owners).items() if item is not None}
    with hipplan.apply(data, runtime="sim") as layout:
        assert {tuple(rights(layout, f"r[{number}]")) for number in range(4)} == {("r", "r")}
        assert bytes_of(sim, layout, "r") == [7]
        layout.unseal("r")
        assert [rights(layout, f"r[{number}]") for number in (0, 3)] == [["rw", "r"], ["r", "rw"]]


def test_what_a_reservation_maps(sim: Simulator) -> None:
    mappings = [{"allocation": "a"}, {"allocation": "b", "access": {"gpu.0": "r", "gpu.1": "rw"}}]
    data = {
        "hipplan": 1,
        "devices": {"gpu": {"count": 2}},
        "allocations": {"a": {"device": "gpu.0", "size": "2MiB"}, "b": {"device": "gpu.1", "size": "4MiB"}},
        "reservations": {"r": {"access": {"gpu.0": "rw"}, "seal": True, "mappings": mappings}},
        "contents": {"r[1]": {"value": 3}},
    }
    assert codes(data) == []
    with hipplan.apply(data, runtime="sim") as layout:
        assert [rights(layout, name) for name in ("r[0]", "r[1]")] == [["r", "none"], ["r", "r"]]
        assert bytes_of(sim, layout, "r[1]") == [3]
        layout.unseal("r")
        assert [rights(layout, name) for name in ("r[0]", "r[1]")] == [["rw", "none"], ["r", "rw"]]
        layout.seal("r[0]")
        layout.update(data, lose="*")
        assert [rights(layout, name) for name in ("r[0]", "r[1]")] == [["r", "none"], ["r", "r"]]


def test_what_nothing_fills_is_sealed_with_a_warning(sim: Simulator) -> None:
    empty = plan(contents={}) | {"contents": {}}
    assert codes(empty) == ["HP257"]
    assert codes(plan(contents={"r.t": {"value": 0}}, tensors={"t": {"dtype": "u8", "shape": [9]}})) == []
    assert codes(plan(seal=False, contents={})) == []
    imported = {"allocations": {"a": {"bind": "theirs", "size": "2MiB", "shareable": "posix_fd"}}}
    mapped = {"r": {"access": {"gpu.0": "r"}, "seal": True, "mappings": [{"allocation": "a"}]}}
    assert codes({"hipplan": 1, **imported, "reservations": mapped}) == []
    seen: list[Step] = []
    with hipplan.apply(empty, runtime="sim", on_step=lambda number, step: seen.append(step)) as layout:
        assert rights(layout, "r[0]") == ["r", "r"]
        assert [step.call for step in seen].count("hipMemSetAccess") == 2  # it is never open
        layout.unseal("r")
        assert rights(layout, "r[0]") == ["rw", "r"]


@pytest.mark.parametrize("wrong", ["yes please", 1, None])
def test_a_seal_is_true_or_false(wrong: Any) -> None:
    with pytest.raises(hipplan.PlanError, match="HP103"):
        hipplan.load(plan(seal=wrong))


def test_other_words_for_seal_are_answered_with_its_name() -> None:
    data = plan()
    data["regions"]["r"]["frozen"] = data["regions"]["r"].pop("seal")
    with pytest.raises(hipplan.PlanError, match=r"HP101(?s:.*)write seal:"):
        hipplan.load(data)


def test_a_failure_of_contents_or_of_the_seal_rolls_all_back(sim: Simulator, tmp_path: Path) -> None:
    (tmp_path / "short.bin").write_bytes(bytes(100))
    before = sim.alive()
    for rule in (
        "hipMemsetAsync@1=hipErrorUnknown",
        "hipMemSetAccess@3=hipErrorUnknown",
        "hipMemSetAccess@4=hipErrorUnknown",
    ):
        sim.runtime.arm_faults(rule)
        with pytest.raises(ApplyError, match="HP401") as caught:
            hipplan.apply(plan(), runtime="sim")
        assert sim.runtime.faults_fired() == 1
        sim.runtime.arm_faults("")
        assert caught.value.exit_code == 4
        assert sim.alive() == before
    with pytest.raises(ApplyError, match="HP421"):
        hipplan.apply(plan(contents={"r": {"file": str(tmp_path / "short.bin")}}), runtime="sim")
    assert sim.alive() == before


def test_the_seals_come_last_and_are_reported_as_steps(sim: Simulator) -> None:
    seen: list[Step] = []
    done: list[tuple[int, int]] = []
    program = prepare(load(plan()), choose("sim"), None)
    with run(program, sim.runtime, Options(on_step=lambda number, step: seen.append(step))):
        calls = [step.call for step in seen]
        assert calls[-3:] == ["hipMemsetAsync", "hipMemSetAccess", "hipMemSetAccess"]
        assert [step.describe() for step in seen[-2:]] == ["device 0: rw -> r"] * 2
    with run(program, sim.runtime, Options(on_progress=lambda number, total: done.append((number, total)))):
        assert {total for _, total in done} == {len(seen)} == {len(list(render_json.program_json(program)["steps"]))}


def test_who_stops_it_at_the_seal_has_nothing_left(sim: Simulator) -> None:
    before = sim.alive()

    def stop(number: int, step: Step) -> None:
        if step.describe() == "device 0: rw -> r":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hipplan.apply(plan(), runtime="sim", on_step=stop)
    assert sim.alive() == before


def test_an_update_fills_and_seals_what_is_new_and_opens_nothing_else(sim: Simulator) -> None:
    seen: list[Step] = []
    with hipplan.apply(plan(), runtime="sim") as layout:
        change = layout.update(plan(size="8MiB"), on_step=lambda number, step: seen.append(step))
        assert str(change) == "~ region r: grows, 4MiB -> 8MiB"
        assert [step.name for step in seen if step.call == "hipMemSetAccess"] == ["r[2]", "r[3]"] * 2
        assert {tuple(rights(layout, f"r[{number}]")) for number in range(4)} == {("r", "r")}
        assert bytes_of(sim, layout, "r") == [7]
        assert layout.update(plan(size="8MiB")).empty
        assert layout.drift() == []
        seen.clear()
        other = plan(size="8MiB") | {"buffers": {"more": {"kind": "device", "size": "1MiB"}}}
        other["contents"] = VALUE | {"more": {"value": 1}}
        layout.update(other, on_step=lambda number, step: seen.append(step))
        assert "hipMemSetAccess" not in [step.call for step in seen]
        assert rights(layout, "r[0]") == ["r", "r"]


def test_a_new_tensor_of_sealed_memory_is_filled(sim: Simulator) -> None:
    tensors = {"a": {"dtype": "u8", "shape": [2 * MIB]}}
    more = {**tensors, "b": {"dtype": "u8", "shape": [2 * MIB]}}
    with hipplan.apply(plan({"r.a": {"value": 1}}, tensors=tensors), runtime="sim") as layout:
        layout.update(plan({"r.a": {"value": 9}, "r.b": {"value": 2}}, tensors=more))
        assert bytes_of(sim, layout, "r") == [1, 2]  # what stays is not filled again
        assert rights(layout, "r[1]") == ["r", "r"]
        assert layout.drift() == []
        sim.runtime.arm_faults("hipMemsetAsync@1=hipErrorUnknown")
        with pytest.raises(ApplyError, match="HP401"):
            layout.update(plan({"r.a": {"value": 1}, "r.c": {"value": 3}}, tensors={**tensors, "c": more["b"]}))
        sim.runtime.arm_faults("")
        assert rights(layout, "r[0]") == rights(layout, "r[1]") == ["r", "r"]
        assert layout.drift() == []


def test_a_seal_comes_and_goes_with_an_update(sim: Simulator) -> None:
    with hipplan.apply(plan(seal=False), runtime="sim") as layout:
        layout.fill("r", 5)
        change = layout.update(plan(), lose="*")
        access = "access (gpu.0: rw, gpu.1: r) -> (gpu.0: r, gpu.1: r, sealed)"
        assert str(change) == f"~ region r: {access}; gpu.0 loses write access"
        assert bytes_of(sim, layout, "r") == [5]
        assert rights(layout, "r[0]") == ["r", "r"]
        layout.unseal("r")
        layout.update(plan(), lose="*")
        assert rights(layout, "r[0]") == ["r", "r"]
        layout.update(plan(seal=False))
        assert rights(layout, "r[0]") == ["rw", "r"]
        assert layout.drift() == []


def test_moved_sealed_memory_is_filled_and_sealed_there(sim: Simulator) -> None:
    with hipplan.apply(plan(), runtime="sim") as layout:
        layout.remap("r", device="gpu.0")
        assert rights(layout, "r[0]") == ["r", "r"]
        layout.update(plan(device="gpu.1", access={"gpu.0": "r", "gpu.1": "rw"}))
        assert rights(layout, "r[0]") == ["r", "r"]
        assert bytes_of(sim, layout, "r") == [7]
        layout.unseal("r")
        assert rights(layout, "r[0]") == ["r", "rw"]


def test_a_preview_shows_the_calls_that_are_made(sim: Simulator) -> None:
    program = hipplan.compile(hipplan.load(plan()), machine=load_machine("sim-2"))
    shown = list(render_json.program_json(program)["steps"])
    assert [step["describe"] for step in shown if step["call"] == "hipMemSetAccess"] == [
        "device 0: rw, device 1: r", "device 0: rw, device 1: r", "device 0: rw -> r", "device 0: rw -> r",
    ]  # fmt: skip
    sealed = [resource["name"] for resource in render_json.program_json(program)["resources"] if resource.get("sealed")]
    assert sealed == ["r", "r[0]", "r[1]"]
    nothing = hipplan.compile(hipplan.load({"hipplan": 1}), machine=load_machine("sim-2"))
    (line,) = listing.lines(compile_change(nothing, hipplan.load(plan()), load_machine("sim-2")))
    assert str(line) == "+ region r: 4MiB, sealed"
    grown = compile_change(program, hipplan.load(plan(size="6MiB")), load_machine("sim-2"))
    calls = [step["call"] for step in render_json.difference_json(grown)["steps"]]
    assert calls.index("hipMemsetAsync") < len(calls) - 1 - calls[::-1].index("hipMemSetAccess")


def test_a_sealed_program_is_locked_recorded_and_written(sim: Simulator, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(json.dumps(plan()))
    program = prepare(load(tmp_path / "plan.yaml"), choose("sim"), None)
    assert written.read(written.write(program)) == program
    (tmp_path / "plan.lock").write_text(lock.to_yaml(lock.lock(program)))
    held = lock.Locked(tmp_path / "plan.lock").placed(written.read(written.write(program)))
    with run(held, sim.runtime) as layout:
        assert rights(layout, "r[0]") == ["r", "r"]
        assert bytes_of(sim, layout, "r") == [7]
        assert written.read(written.write(layout.program)).sealed == layout.program.sealed != {}


@pytest.mark.parametrize("sealed", [{"x": []}, {"r[0]": [["gpu.9", "rw"]]}, {"r[0]": "rw"}], ids=str)
def test_a_written_program_with_another_seal_is_refused(sealed: dict[str, Any]) -> None:
    program = hipplan.compile(hipplan.load(plan()), machine=load_machine("sim-2"))
    text = json.loads(written.write(program)) | {"sealed": sealed}
    with pytest.raises(hipplan.PlanError, match="HP028"):
        written.read(json.dumps(text))


@pytest.mark.parametrize("version", ["7.0.51831", "7.2.53211", "7.3.0"])
@pytest.mark.parametrize("sizes", [(2, 6), (2, 3)], ids=str)
def test_unequal_pieces_on_each_release(version: str, sizes: tuple[int, int], sim: Simulator) -> None:
    """HIP 7.0 to 7.2 give such ranges their rights together, or in pieces of one size."""
    for access in ({}, {"access": {"gpu.0": "r", "gpu.1": "rw"}}):
        data = {
            "hipplan": 1,
            "devices": {"gpu": {"count": 2}},
            "allocations": {name: {"device": f"gpu.{n}", "size": f"{sizes[n]}MiB"} for n, name in enumerate("ab")},
            "reservations": {
                "r": {
                    "access": {"gpu.0": "rw", "gpu.1": "rw"},
                    "seal": True,
                    "mappings": [{"allocation": "a"}, {"allocation": "b", **access}],
                }
            },
            "contents": {"r[0]": {"value": 1}, "r[1]": {"value": 2}},
        }
        defects = ["set_access_sums_in_heap_order"] if version < "7.3" else []
        with as_release(sim, version, *defects), hipplan.apply(data, runtime="sim") as layout:
            assert rights(layout, "r[0]") == rights(layout, "r[1]") == ["r", "r"]
            assert (bytes_of(sim, layout, "r[0]"), bytes_of(sim, layout, "r[1]")) == ([1], [2])
            layout.unseal("r")
            assert rights(layout, "r[1]") == (["r", "rw"] if access else ["rw", "rw"])
            layout.update(data, lose="*")
            assert rights(layout, "r[0]") == ["r", "r"]
            assert layout.drift() == []
        assert sim.alive() == set()
