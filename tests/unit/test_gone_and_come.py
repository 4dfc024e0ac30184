"""A sleep and a wake are found without comparing what stays: the same change as the comparison of everything makes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import hipplan
from hipplan.kinds.allocation.live import CreateAllocation
from hipplan.kinds.mapping.live import Map, SetAccess
from hipplan.program import difference as differences
from hipplan.program import on_demand
from hipplan.program.difference import Difference
from hipplan.program.gone_and_come import gone_and_come
from hipplan.program.lookup import mappings_within, resource_of, resources_behind
from hipplan.program.program import Program
from hipplan.program.series import Series
from hipplan.program.sleeping import falls_asleep, wakes_up
from hipplan.program.steps import Step

NEVER = 1 << 40
MIB = 1 << 20

PLAN: dict[str, Any] = {
    "hipplan": 1,
    "devices": {"gpu": {"count": 2}},
    "allocations": {"a": {"size": "2MiB", "device": "gpu.0", "count": 5}, "b": {"size": "4MiB", "device": "gpu.1"}},
    "reservations": {
        "r": {"access": {"gpu.0": "rw", "gpu.1": "r"}, "mappings": [{"allocation": "a.*"}]},
        "both": {"access": {"gpu.1": "rw"}, "mappings": [{"allocation": "b"}, {"allocation": "a.3"}]},
    },
    "regions": {
        "kv": {"size": "12MiB", "chunk": "2MiB", "reserve": "64MiB"},
        "w": {"each": 3, "size": "4MiB", "chunk": "2MiB", "devices": ["gpu.0", "gpu.1"]},
        "closed": {"size": "4MiB", "chunk": "2MiB", "seal": True},
    },
    "buffers": {
        "d": {"kind": "device", "size": "64KiB", "count": 3},
        "m": {"kind": "pinned", "size": "64KiB", "device": "gpu.0"},
    },
}
NAMES = ["a.0", "a.2", "a.4", "r", "both", "b", "kv", "w.0", "w.1", "w.2", "closed", "a.3"]


def text_of(change: Difference) -> dict[str, Any]:
    """What the rest of hipplan reads of a change."""
    return {
        "additions": [*change.additions],
        "changes": [*change.changes],
        "gone": [*change.gone],
        "released": [*change.released],
        "kept": {*change.kept},
        "changed": change.changed,
        "renamed": {**change.renamed},
        "contents": change.contents,
        "seals": [*change.seals],
        "slots": {(new + n, old + n) for new, old, many in _stay(change) for n in range(many)},
        "lines": [*map(str, change.lines())],
        "read back": [*change.to_read_back(change.filling)],
    }


def _stay(change: Difference) -> list[tuple[int, int, int]]:
    same, renewed, others = change.kept_slots()
    assert not renewed
    return [(0, 0, same), *others]


@pytest.mark.parametrize("least", [1, NEVER], ids=["in runs", "written out"])
@pytest.mark.parametrize("seed", range(12))
def test_sleeps_and_wakes_are_what_the_comparison_of_everything_finds(
    seed: int, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_demand, "LEAST", least)
    draw = random.Random(seed)
    program = hipplan.compile(PLAN, "sim-2")
    found = 0
    for _ in range(8):
        step = _drawn(draw)
        quickly = _made(step, program)
        with monkeypatch.context() as patch:
            patch.setattr(differences, "gone_and_come", lambda old, new: None)
            slowly = _made(step, program)
        assert type(quickly) is type(slowly)
        if isinstance(quickly, Difference) and isinstance(slowly, Difference):
            found += gone_and_come(quickly.old, quickly.new) is not None
            assert [*quickly.new.steps] == [*slowly.new.steps]
            assert text_of(quickly) == text_of(slowly)
            program = slowly.new if draw.random() < 0.5 else quickly.new
    assert found


def _drawn(draw: random.Random) -> Callable[[Program], Difference]:
    names = draw.sample(NAMES, draw.randrange(1, 4))
    to = draw.choice(["host", "drop"])
    if draw.random() < 0.4:
        some = names if draw.random() < 0.5 else None
        return lambda program: wakes_up(program, some)
    return lambda program: falls_asleep(program, names, to=to)


def _made(step: Callable[[Program], Difference], program: Program) -> Difference | hipplan.HipplanError:
    try:
        return step(program)
    except hipplan.HipplanError as error:
        return error


def written_out(monkeypatch: pytest.MonkeyPatch) -> Program:
    monkeypatch.setattr(on_demand, "LEAST", NEVER)
    return hipplan.compile(PLAN, "sim-2")


def without(program: Program, goes: Callable[[Step], bool]) -> Program:
    return replace(program, steps=Series([step for step in program.steps if not goes(step)]))


def test_memory_that_something_else_maps_goes_in_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    old = written_out(monkeypatch)

    assert gone_and_come(old, without(old, lambda step: step.name in ("a.3", "r[3]", "both[1]"))) is not None
    assert gone_and_come(old, without(old, lambda step: step.name in ("a.3", "r[3]"))) is None


def test_what_comes_again_or_into_the_same_range_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    old = written_out(monkeypatch)
    less = without(old, lambda step: step.name in ("b", "both[0]"))
    again = [step for step in old.steps if step.name in ("b", "both[0]")]
    memory = CreateAllocation("new", None, 0, 4 * MIB, 4 * MIB, "pinned", "device", "none")
    mapping = Map("both[9]", None, "both", "new", 0, 4 * MIB, 4 * MIB)

    assert gone_and_come(old, replace(less, steps=Series((*less.steps, *map(replace, again))))) is None
    assert gone_and_come(old, replace(less, steps=Series((*less.steps, memory, mapping)))) is None
    assert gone_and_come(old, replace(old, steps=Series((*old.steps, memory)))) is not None


def test_other_orders_ranges_and_rights_of_what_stays_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    old = written_out(monkeypatch)
    first, second, *others = old.steps
    more_rights = SetAccess("both[0]", None, ((0, "rw"),))

    assert gone_and_come(old, replace(old, steps=Series((second, first, *others)))) is None
    assert gone_and_come(old, without(old, lambda step: step.name.startswith("both"))) is None
    assert gone_and_come(old, replace(old, steps=Series((*old.steps, more_rights)))) is None
    assert gone_and_come(old, hipplan.compile(PLAN, "sim-2")) is None
    assert gone_and_come(old.nothing, old) is None


@pytest.mark.parametrize("least", [1, NEVER], ids=["in runs", "written out"])
@pytest.mark.parametrize("seed", range(6))
def test_objects_are_found_by_name_as_in_the_list_of_all_while_some_sleep(
    seed: int, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a list of all objects, where what is looked up does not sleep."""
    monkeypatch.setattr(on_demand, "LEAST", least)
    draw = random.Random(seed)
    program = hipplan.compile(PLAN, "sim-2")
    for _ in range(5):
        if isinstance(change := _made(_drawn(draw), program), Difference):
            program = change.new
        for name, resource in program.by_name.items():
            assert resource_of(program, name) == resource
            asleep = (other for other in program.resources if other.asleep)
            assert program.sleeps(name) == any(name in (other.name, other.inside) for other in asleep)
            behind = {beside.name: beside for beside in resources_behind(program, [name])}
            assert behind.items() <= program.by_name.items()
            if resource.kind in ("region", "reservation"):
                within = [other for other in program.resources if other.kind == "mapping" and other.inside == name]
                assert mappings_within(program, name) == within
                assert resource.kind != "region" or {mapping.name for mapping in within} <= behind.keys()
        assert resource_of(program, "nothing") is None
