"""Lowering: what is planned is never in pieces, and what needs nothing is lowered to itself."""

from __future__ import annotations

from typing import Any

import pytest

import hipplan
from hipplan.holders.rows_for_c import answer
from hipplan.kinds.mapping.live import SetAccess
from hipplan.lowering.compiler import lowered_change
from hipplan.lowering.lowered import lower, lowered
from hipplan.machines.machine import Machine
from hipplan.machines.profiles import load_machine
from hipplan.program import held, sealing, sleeping, written
from hipplan.program.difference import difference, from_nothing
from hipplan.program.lock import lock
from hipplan.program.program import Program

BASE: dict[str, Any] = {"hipplan": 1, "devices": {"gpu": {"count": 2}}}


def plan(a: dict[str, str], b: dict[str, str], **more: Any) -> dict[str, Any]:
    """A range with mappings of 6 MiB and 2 MiB, which have these rights."""
    return BASE | {
        "allocations": {"a": {"device": "gpu.0", "size": "6MiB"}, "b": {"device": "gpu.1", "size": "2MiB"}},
        "reservations": {"r": {"mappings": [{"allocation": "a", "access": a}, {"allocation": "b", "access": b}]}},
        **more,
    }


RW, R = {"gpu.0": "rw", "gpu.1": "rw"}, {"gpu.0": "r", "gpu.1": "r"}
CUT, AT_ONCE = plan(RW, R), plan(RW, RW)
EVEN = BASE | {"regions": {"w": {"device": "gpu.0", "size": "8MiB", "chunk": "2MiB", "reserve": "16MiB"}}}


def machine(version: str) -> Machine:
    return load_machine("sim-2").model_copy(update={"hip_version": version})


def names(program: Program) -> list[str]:
    return [step.name for step in program.steps if step.makes == "allocation"]


@pytest.mark.parametrize("source", [CUT, AT_ONCE, EVEN], ids=["cut", "at once", "even"])
def test_a_program_is_the_same_for_each_release_and_never_in_pieces(source: Any) -> None:
    programs = [hipplan.compile(source, machine(version)) for version in ("6.4.43484", "7.2.53211", "7.15.0")]
    assert programs[0].steps == programs[1].steps == programs[2].steps
    assert [lowered(program) is program for program in programs] == [True, source is EVEN, True]
    locks = [lock(program).model_dump(exclude={"machine"}) for program in programs]
    assert locks[0] == locks[1] == locks[2]
    assert written.read(written.write(programs[1])).steps == programs[1].steps


def test_a_lowered_program_is_in_pieces_and_is_made_once() -> None:
    program = hipplan.compile(CUT, machine("7.2.53211"))
    assert names(program) == ["a", "b"]
    assert names(lowered(program)) == ["a", "a/1", "a/2", "b"]
    assert lowered(program) is lowered(program)
    at_once = lowered(hipplan.compile(AT_ONCE, machine("7.2.53211")))
    assert names(at_once) == ["a", "b"]
    assert [step.together for step in at_once.steps if isinstance(step, SetAccess)] == [True, True]


@pytest.mark.parametrize("version", ["6.4.43484", "7.2.53211", "7.15.0"])
def test_a_change_that_needs_nothing_is_lowered_to_itself(version: str) -> None:
    program = hipplan.compile(EVEN, machine(version))
    larger = BASE | {"regions": {"w": EVEN["regions"]["w"] | {"size": "12MiB"}}}
    asleep = sleeping.falls_asleep(program, ["w"])
    for change in (
        from_nothing(program),
        difference(program, sealing.sealed(program, ["w"])),
        asleep,
        sleeping.wakes_up(asleep.new),
        lowered_change(program, hipplan.load(larger), machine(version), frozenset(), lambda made: made, None).planned,
    ):
        before = change.old.nothing if not change.old.steps else change.old
        assert lower(change, before).lowered is change


def test_memory_wakes_in_the_pieces_in_which_it_fell_asleep() -> None:
    """What would need pieces no longer is cut no less: the range wakes as it was."""
    program = hipplan.compile(CUT, machine("7.2.53211"))
    for unit in ("a", "b", "r"):
        asleep = lower(sleeping.falls_asleep(program, [unit], to="drop"), lowered(program))
        assert names(asleep.planned.new) == [name for name in "ab" if unit not in (name, "r")]
        woken = lower(sleeping.wakes_up(asleep.planned.new), asleep.lowered.new)
        assert {*names(woken.lowered.new)} == {"a", "a/1", "a/2", "b"}
        assert {*names(woken.planned.new)} == {"a", "b"}


def test_a_layout_out_of_pieces_is_what_is_planned_again() -> None:
    """An update to a plan that needs none."""
    old = hipplan.compile(CUT, machine("7.2.53211"))
    change = lowered_change(old, hipplan.load(EVEN), machine("7.2.53211"), frozenset(), lambda made: made, None)
    assert change.lowered.new is change.planned.new
    assert {step.name for step in change.planned.gone if step.makes == "allocation"} == {"a", "b"}
    assert {step.name for step in change.lowered.gone if step.makes == "allocation"} == {"a", "a/1", "a/2", "b"}


@pytest.mark.parametrize(("version", "together"), [("7.2.53211", True), ("7.15.0", False)])
def test_a_process_without_python_gets_rows_for_the_release_of_its_holder(version: str, together: bool) -> None:
    """It does not say which one it has."""
    holdable = held.holdable(hipplan.compile(AT_ONCE, machine(version)))
    program = held.held_program(holdable, {"r": 0x680000000000})
    seen = {"form": 1, "family": "sim", "addresses": "same", "devices": [["", ""]] * 2, "links": [[0, 1], [1, 0]]}
    made = answer("held", {"program": written.write(program), "family": "sim"}, "plan", seen)
    rows = made["rows"]
    assert [row[0] for row in rows] == ["import allocation"] * 2 + ["reserve"] + ["map", "set access"] * 2
    assert [row[1] for row in rows[:2]] == held.exported_allocations(program)
    assert [row[-1] for row in rows if row[0] == "set access"] == [together] * 2
