"""What `count:` makes of a line is one run: what a program knows of it is what it knows of the same steps when they are
written out, and neither calls nor bytes depend on the count."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import hipplan
from hipplan.errors import PlanError
from hipplan.files import strict_json
from hipplan.language.counted import Counted, TakenNames
from hipplan.lowering.compiler import compile as compile_plan
from hipplan.machines.profiles import load_machine
from hipplan.program import on_demand
from hipplan.program.count_runs import CountRun, count_runs
from hipplan.program.difference import difference
from hipplan.program.numbered import OF_COUNT, stem_of
from hipplan.program.on_demand import LEAST
from hipplan.program.program import Program
from hipplan.program.runs import each_as
from hipplan.program.series import Series
from hipplan.program.touched import touched
from hipplan.program.written import read, write
from hipplan.show import render, render_json, summary
from tests.python_calls import calls_of
from tests.unit.test_runs import FACTS, in_full, is_same

MACHINE = "mi300x-8"
KINDS: dict[str, dict[str, Any]] = {
    "device": {"kind": "device", "device": "gpu.1", "size": "4KiB"},
    "coherent": {"kind": "coherent", "device": "gpu.0", "size": "4KiB"},
    "pinned": {"kind": "pinned", "size": "4KiB"},
    "registered": {"kind": "registered", "anonymous": {"size": "4KiB"}},
    "managed": {"kind": "managed", "size": "4KiB"},
}


def plan(count: int, kind: str = "device", **more: Any) -> dict[str, Any]:
    devices = {"gpu": {"count": 2}}
    return {"hipplan": 1, "devices": devices, "buffers": {"s": {**KINDS[kind], "count": count}}, **more}


def program(count: int, kind: str = "device", **more: Any) -> Program:
    return compile_plan(hipplan.load(plan(count, kind, **more)), MACHINE)


def run_of(made: Program) -> CountRun:
    return count_runs(made.steps)["s"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_known_of_a_run_is_what_is_known_of_its_steps(kind: str) -> None:
    made = program(40, kind)
    written = in_full(made)
    assert tuple(made.steps) == tuple(run_of(made))
    for fact in FACTS:
        is_same(getattr(made, fact), getattr(written, fact))
    for fact in ("taken", "descriptors", "range_sizes", "resources"):
        assert getattr(made, fact) == getattr(written, fact), fact
    assert made == written and pickle.loads(pickle.dumps(made)) == made
    assert read(write(made)) == made and write(read(write(made))) == write(made)
    assert count_runs(read(write(made)).steps) == {"s": run_of(made)}


def test_a_buffer_with_another_number_in_its_name_is_not_left_out_as_one_of_the_run() -> None:
    def with_other(size: str) -> Program:
        made = plan(40)
        made["buffers"]["s.07"] = {**KINDS["device"], "size": size}
        return compile_plan(hipplan.load(made), MACHINE)

    about = touched(with_other("4KiB"), with_other("8KiB"), frozenset())

    assert about.leaves_out("device", "s.7") and not about.leaves_out("device", "s.07")


def test_few_are_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_demand, "LEAST", LEAST)
    assert count_runs(program(LEAST - 1).steps) == {}
    assert count_runs(program(LEAST).steps) != {}


def test_steps_about_a_buffer_are_written_out() -> None:
    advised = {**KINDS["managed"], "count": 40, "advice": [{"advise": "read_mostly"}]}
    made = compile_plan(hipplan.load({"hipplan": 1, "devices": {"gpu": {}}, "buffers": {"s": advised}}), MACHINE)
    assert count_runs(made.steps) == {} and len(made.steps) == 80


@pytest.mark.parametrize("name", ["s.40", "s", "s.", "s.-1", "s.01", "s.１", f"s.{'9' * 5000}", "s.1.1", "t.1", "s#1"])
def test_a_name_that_it_does_not_make_is_unknown(name: str) -> None:
    made = program(40)
    for fact in (made.slots, made.makers, hipplan.load(plan(40)).objects.buffers):
        assert name not in fact and "s.39" in fact


def test_a_part_of_a_run_is_a_run() -> None:
    run = run_of(program(100))
    steps = tuple(run)
    assert run.between(3, 77) == steps[3:77] and run.first(50) == steps[:50]
    assert [*run.cut(40, 90)] == [steps[40:90]]
    assert run.between(0, 40).continued_by(run.between(40, 100)) == run
    assert run.between(0, 40).continued_by(run.between(41, 100)) is None
    assert [tuple(part) for part in run.outside(range(10, 60))] == [steps[:10], steps[60:]]
    assert Series(program(100).steps).without([7, 50]) == (*steps[:7], *steps[8:50], *steps[51:])
    moved = each_as(lambda step: replace(step, origin=None), program(100).steps)
    assert moved == [replace(step, origin=None) for step in steps]
    assert [type(part) for part in moved.segments()] == [CountRun]


def test_the_stem_of_a_name() -> None:
    assert stem_of("s.7") == (("s", OF_COUNT), 7) == stem_of("s.7")
    assert stem_of("s.3.0") == (("s.3", OF_COUNT), 0)
    assert stem_of("kv.2#5") == (("kv.2", "#"), 5) and stem_of("kv[5]") == (("kv", "["), 5)
    assert [stem_of(name) for name in ("s", "s.x", ".7", "s.07", "kv#0..3")] == [None] * 5


def wrong(run: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    kind = run["kind"]
    return {
        "too many": [{**run, "count": 10**9}],
        "none": [{**run, "count": 0}],
        "from another number": [{**run, "first": 1}],
        "below zero": [{**run, "first": -1, "kind": {**kind, "name": "s.-1"}}],
        "another name": [{**run, "of": "t"}],
        "no buffer": [{**run, "step": "CreateStream"}],
        "twice": [run, {**run, "first": 39, "kind": {**kind, "name": "s.39"}}],
        "one of them beside it": [run, {"step": run["step"], **kind}],
        "no kind": [{key: value for key, value in run.items() if key != "kind"}],
    }


@pytest.mark.parametrize("how", wrong({"kind": {"name": ""}, "step": ""}))
def test_a_run_that_cannot_be_is_refused(how: str) -> None:
    data = json.loads(write(program(40)))
    assert len(data["steps"]) == 1
    assert read(json.dumps(data)) == program(40)
    with pytest.raises(PlanError, match="HP028"):
        read(json.dumps({**data, "steps": wrong(data["steps"][0])[how]}))


def test_contents_of_one_of_many_can_be_read() -> None:
    made = program(40, contents={"s.7": {"value": 1}})
    assert count_runs(made.steps) != {} and read(write(made)) == made


def test_a_program_of_a_version_that_writes_all_out_can_be_read() -> None:
    made = program(40)
    data = json.loads(write(made))
    kind, name = data["steps"][0]["kind"], data["steps"][0]["step"]
    data["steps"] = [{"step": name, **kind, "name": f"s.{number}"} for number in range(40)]
    assert read(json.dumps(data)) == made


FEW, MANY = 100, 10_000
LOADED = {count: hipplan.load(plan(count)) for count in (FEW, FEW + 50, MANY, MANY + 50)}
MADE = {count: compile_plan(loaded, MACHINE) for count, loaded in LOADED.items()}
MADE[0] = compile_plan(hipplan.load({"hipplan": 1, "buffers": {"other": KINDS["pinned"]}}), MACHINE)
TEXTS = {count: write(MADE[count]) for count in (FEW, MANY)}
COSTS: dict[str, Callable[[int], Any]] = {
    "load": lambda count: hipplan.load(plan(count)),
    "compile": lambda count: compile_plan(LOADED[count], load_machine(MACHINE)),
    "a preview's data": lambda count: "".join(strict_json.pieces(render_json.program_summary(MADE[count]))),
    "a preview's rows": lambda count: (
        summary.steps_summary(MADE[count].steps),
        summary.resources_summary(summary.resources_by_kind(MADE[count])),
        render.totals(MADE[count]),
    ),
    "more": lambda count: difference(MADE[count], MADE[count + 50]).kept_slots(),
    "fewer": lambda count: difference(MADE[count + 50], MADE[count]).kept_slots(),
    "some that come": lambda count: difference(MADE[0], MADE[count]).kept_slots(),
    "some that go": lambda count: difference(MADE[count], MADE[0]).kept_slots(),
    "write": lambda count: write(MADE[count]),
    "read": lambda count: read(TEXTS[count]),
}


@pytest.mark.parametrize("what", COSTS)
def test_what_is_done_does_not_depend_on_the_count(what: str) -> None:
    act = COSTS[what]
    act(FEW)  # pays for what is kept
    few = calls_of(lambda: act(FEW))
    for most in (2, 1.2):  # the first act pays for what is kept of its own program
        many = calls_of(lambda: act(MANY))
        assert many.python <= most * few.python and many.builtin <= most * few.builtin


def test_bytes_do_not_depend_on_the_count() -> None:
    assert len(TEXTS[MANY]) - len(TEXTS[FEW]) < 20  # numbers have more digits


@pytest.mark.parametrize("kind", KINDS)
def test_people_read_the_same_of_a_run_and_of_what_is_written_out(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def shown() -> list[Any]:
        made = program(40, kind)
        more = program(77, kind, streams={"a": {}, "b": {}})
        change = difference(made, more)
        return [
            count_runs(made.steps) == {},
            render_json.program_summary(more),
            strict_json.pieces(render_json.program_json(made)),
            render_json.difference_summary(change),
            str(change),
            summary.steps_summary(more.steps),
            summary.resources_summary(summary.resources_by_kind(more)),
            render.totals(more),
        ]

    is_written, *in_runs = map(_plain, shown())
    monkeypatch.setattr(on_demand, "LEAST", 1 << 40)
    was_written, *written = map(_plain, shown())
    assert (is_written, was_written) == (False, True)
    assert in_runs == written


def _plain(given: Any) -> Any:
    return "".join(given) if hasattr(given, "__next__") else given


def test_names_of_a_count() -> None:
    names = Counted("s", 12)
    assert [*names] == [f"s.{number}" for number in range(12)] == names[:] and names[-1] == "s.11"
    assert [name for name in ("s.0", "s.11", "s.12", "s.00", "s.-1", "s.", "s", "t.1", "s.１") if name in names] == [
        "s.0",
        "s.11",
    ]


@pytest.mark.parametrize(
    ("before", "after", "twice"),
    [
        (Counted("s", 3), Counted("s", 5), ["s.0", "s.1", "s.2"]),
        (Counted("s", 3), ["s.2"], ["s.2"]),
        (Counted("s", 3), ["s.3", "s", "s.02"], []),
        (["s.2"], Counted("s", 3), ["s.2"]),
        (["s.3", "s"], Counted("s", 3), []),
        (Counted("s", 3), Counted("s.1", 3), []),
        (["a"], ["a", "b"], ["a"]),
    ],
)
def test_names_that_are_taken(before: Any, after: Any, twice: list[str]) -> None:
    taken: TakenNames[int] = TakenNames()
    taken.add(before, 1)
    assert taken.taken(after) == dict.fromkeys(twice, 1)
    assert [name for name in after if taken.get(name) is not None] == twice
