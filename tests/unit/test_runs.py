"""Runs: what a program knows of thousands of alike chunks is what it knows of the same steps when they are written
out."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

import hipplan
from hipplan.kinds.allocation.live import CreateAllocation
from hipplan.lowering.compiler import compile as compile_plan
from hipplan.program import on_demand, sealing
from hipplan.program.on_demand import LEAST, Repeated, repeated, shortest, turned
from hipplan.program.program import Program
from hipplan.program.runs import Run, alike, runs, written_out
from hipplan.program.series import Parts, Series, counted, segments

CHUNK = 2 << 20
FACTS = ("makers", "slots", "owners", "rights", "numbers")
REGIONS: dict[str, dict[str, Any]] = {
    "one device": {"device": "gpu.0", "size": 100 * CHUNK},
    "one after the other": {"devices": ["gpu.*"], "spread": "blocks", "size": 131 * CHUNK},
    "in turn": {"devices": ["gpu.*"], "spread": "interleave", "size": 101 * CHUNK},
    "for others too": {"device": "gpu.1", "size": 64 * CHUNK, "access": {"gpu.*": "rw"}},
    "sized parts": {"devices": ["gpu.0", "gpu.1"], "sizes": [40 * CHUNK, 50 * CHUNK]},
    "few": {"device": "gpu.0", "size": 5 * CHUNK},
}


def program_of(*names: str) -> Program:
    regions = {f"r{number}": {"chunk": CHUNK, **REGIONS[name]} for number, name in enumerate(names)}
    plan = {
        "hipplan": 1,
        "devices": {"gpu": {"count": 4}},
        "allocations": {"a": {"device": "gpu.0", "size": CHUNK}},
        "reservations": {"own": {"size": CHUNK, "mappings": [{"allocation": "a"}]}},
        "regions": regions,
        "buffers": {"b": {"kind": "device", "device": "gpu.0", "size": "64KiB"}},
    }
    return compile_plan(hipplan.load(plan), "mi300x-8")


def in_full(program: Program) -> Program:
    return replace(program, steps=tuple(program.steps))


def is_same(mine: Mapping[Any, Any], written: Mapping[Any, Any]) -> None:
    assert len(mine) == len(written) and {*mine} == {*written}
    assert {key: mine[key] for key in written} == dict(written)


@pytest.mark.parametrize("names", [[name] for name in REGIONS] + [[*REGIONS]])
def test_what_is_known_of_runs_is_what_is_known_of_their_steps(names: list[str]) -> None:
    program = program_of(*names)
    assert any(True for _ in runs(program.steps)) == (names != ["few"])
    written = in_full(program)
    for fact in FACTS:
        is_same(getattr(program, fact), getattr(written, fact))
    for fact in ("taken", "descriptors", "range_sizes", "single", "resources"):
        assert getattr(program, fact) == getattr(written, fact), fact
    assert program == written and program.steps == written.steps
    assert pickle.loads(pickle.dumps(program)) == program
    assert sum(many for _, many in alike(program.steps)) == len(written.steps)
    for number, step in enumerate(written.steps):
        assert program.steps[number] == step
    for first, run in runs(program.steps):
        assert tuple(run) == written.steps[first : first + len(run)]
    for first, part in written_out(program.steps):
        assert tuple(part) == written.steps[first : first + len(part)]


@pytest.mark.parametrize("name", ["r0#100", "r0[100]", "r0#007", "r0[07]", "r0[7", "r0#", "r0[]", "r0", "#1", "r0#-1",
                                  "r0#１", f"r0#{'9' * 5000}", "r0[1]x", "r1#1"])  # fmt: skip
def test_a_name_that_no_chunk_has_is_unknown(name: str) -> None:
    program = program_of("one device")
    for fact in ("slots", "rights", "owners"):
        known = getattr(program, fact)
        assert (name in known) == (name == "r0" and fact == "slots")


@pytest.mark.parametrize("names", [["one device"], ["in turn"], [*REGIONS]])
def test_the_beginning_of_a_program_has_the_same_steps(names: list[str]) -> None:
    """A shrunk region ends within a run."""
    program = program_of(*names)
    everything = tuple(program.steps)
    for count in (0, 1, 2, 3, 64, 65, len(everything) // 2, len(everything) - 1, len(everything)):
        first = Series(program.steps).first(count)
        assert first == everything[:count] and len(first) == count
        is_same(replace(program, steps=first).slots, replace(program, steps=everything[:count]).slots)


def test_runs_are_equal_if_their_steps_are() -> None:
    (_, memory), (_, mapped) = runs(program_of("in turn").steps)
    (_, same), (_, other) = runs(program_of("in turn").steps)
    assert memory == same and mapped == other and memory == tuple(same)
    assert memory != mapped and memory != tuple(same)[:-1]
    for name in ("one device", "for others too"):
        assert memory != next(run for _, run in runs(program_of(name).steps))


@pytest.mark.parametrize("regions", [["one device", "in turn"], ["sized parts", "one after the other", "few"]])
def test_changed_steps_of_a_run_are_written_out(regions: list[str]) -> None:
    program = program_of(*regions)
    step = program.makers["r0#7"]
    assert isinstance(step, CreateAllocation)
    changed = program.remade([replace(step, device=3), program.makers["r0[7]"], program.rights["r0[7]"]])
    written = in_full(changed)
    for fact in FACTS:
        is_same(getattr(changed, fact), getattr(written, fact))
    assert changed.owners["r0#7"] == 3 and changed.taken == written.taken


def test_items_again_and_again_are_those_items() -> None:
    for items, count in (("a", 7), ("ab", 7), ("abc", 3), ("abcd", 40)):
        alike_items = Repeated(items, count)
        written = tuple((items * count)[:count])
        assert tuple(alike_items) == written == tuple(alike_items[number] for number in range(count))
        assert alike_items == written and alike_items != (*written, "x") and alike_items == Repeated(items, count)
        assert dict(counted(alike_items)) == {item: written.count(item) for item in items}
        assert all(alike_items.first(less) == written[:less] for less in range(count + 1))
        assert alike_items[1:3] == written[1:3] and repr(alike_items) == repr(written)
        with pytest.raises(IndexError):
            alike_items[count]


def test_few_items_are_written_out() -> None:
    assert isinstance(repeated("a", LEAST), Repeated)
    assert repeated("a", LEAST - 1) == ("a",) * (LEAST - 1)
    assert repeated(range(100), 99) == tuple(range(99))


def test_parts_keep_what_is_made_on_demand() -> None:
    run = next(run for _, run in runs(program_of("one device").steps))
    parts: Parts[Any] = Parts()
    parts.append("a")
    parts.extend(run)
    parts.extend(number for number in (1, 2))
    parts.extend(Series.joined([(3,), run, (), (4,)]))
    made = parts.series()
    assert made == ("a", *run, 1, 2, 3, *run, 4)
    assert [part if not isinstance(part, Run) else "run" for part in segments(made)] == [
        ("a",),
        "run",
        (1, 2, 3),
        "run",
        (4,),
    ]
    assert made.with_more((5,)).first(len(made)) == made and made.with_changed({0: "b"})[0] == "b"


def test_a_short_run_is_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_demand, "LEAST", 1)
    program = program_of("few")
    assert len([*runs(program.steps)]) == 2
    is_same(program.slots, in_full(program).slots)


@pytest.mark.parametrize("names", [["one device", "few"], ["in turn", "for others too"], ["one after the other"]])
def test_a_sealed_region_is_still_a_run(names: list[str]) -> None:
    program = program_of(*names)
    sealed = sealing.sealed(program, ["r0"])
    assert len([*runs(sealed.steps)]) == len([*runs(program.steps)])
    assert {right for _, right in sealed.rights["r0[3]"].rights} == {"r"}
    some = program.regiven([replace(program.rights[f"r0[{chunk}]"], rights=((0, "r"),)) for chunk in (3, 4)])
    for made in (sealed, some):
        for fact in FACTS:
            is_same(getattr(made, fact), getattr(in_full(made), fact))
    opened = sealing.unsealed(sealed, ["r0"])
    assert opened.steps == program.steps and [*runs(opened.steps)] == [*runs(program.steps)]


def test_steps_that_are_changed_to_what_they_are_stay_in_their_run() -> None:
    program = program_of("one device")
    assert [*runs(program.with_steps({5: program.steps[5]}).steps)] == [*runs(program.steps)]
    changed = {5: program.steps[6], 50: program.steps[6]}
    memory, others, mapped = (run for _, run in runs(program.with_steps(changed).steps))
    assert (memory.numbers, others.numbers, mapped.numbers) == (range(5, 49), range(50, 100), range(100))


@pytest.mark.parametrize("names", [["one device"], ["in turn"], [*REGIONS]])
def test_a_run_in_which_something_changes_is_cut_and_becomes_one_again(names: list[str]) -> None:
    steps = Series(program_of(*names).steps)
    written = [*steps]
    for first, end in ((0, 7), (3, 60), (50, len(steps) - 5), (0, len(steps))):
        some = Series.joined(steps.parts_between(first, end))
        assert [*some] == written[first:end]
        other = [replace(step, origin=None) for step in some]
        changed = steps.with_parts({first: other})
        assert [*changed] == [*written[:first], *other, *written[end:]]
        again = changed.with_parts({first: some})
        assert [*again] == written
    assert [*map(type, again.segments())] == [*map(type, steps.segments())]
    many = steps.with_changed(dict.fromkeys(range(0, len(steps), 45), written[0]))
    assert [*many] == [written[0] if place % 45 == 0 else step for place, step in enumerate(written)]
    assert [step for part in many.segments() for step in part] == [*many]


def test_a_pattern_is_as_short_as_it_can_be() -> None:
    assert [*map(shortest, ("aaaa", "abab", "aba", "abcabc", "a"))] == [
        ("a",),
        ("a", "b"),
        ("a", "b", "a"),
        ("a", "b", "c"),
        ("a",),
    ]
    assert turned(("a", "b", "c"), 4) == ("b", "c", "a")
    some, more = Repeated("ab", 5), Repeated("ba", 3)
    assert some.continued_by(Repeated("ab", 2)) is None
    assert [*(some.continued_by(more) or ())] == [*some, *more]
    assert [item for part in some.cut(1, 4) for item in part] == ["b", "a", "b"]
