"""Rows for native code: the order of rights in a call of hipMemSetAccess."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import hipplan
from hipplan.lowering.compiler import compile as compile_plan
from hipplan.lowering.compiler import compile_change
from hipplan.lowering.rows import ChangeRows, Row, rows_of
from hipplan.machines.profiles import load_machine

MACHINE = load_machine("mi300x-8")
EVERYBODY = {f"gpu.{number}": "rw" for number in range(4)}
PLAN: dict[str, Any] = {
    "hipplan": 1,
    "devices": {"gpu": {"count": 4}},
    "allocations": {"a": {"device": "gpu.1", "size": "2MiB"}, "b": {"device": "gpu.0", "size": "2MiB"}},
    "reservations": {
        "r": {"size": "8MiB", "access": EVERYBODY, "mappings": [{"allocation": "a"}, {"allocation": "b"}]}
    },
    "regions": {
        "w": {"device": "gpu.2", "size": "4MiB", "chunk": "2MiB", "reserve": "8MiB", "access": EVERYBODY},
        "spread": {"devices": ["gpu.*"], "spread": "interleave", "chunk": "2MiB", "size": "8MiB", "access": EVERYBODY},
    },
}


def devices(rights: Any) -> list[int]:
    return [device for device, _ in rights]


def in_calls(rows: list[Row]) -> Iterator[tuple[str, list[int], list[int]]]:
    """Of each row that sets rights: the mapping, the devices in order, and those of its undo."""
    for operation, name, *fields in rows:
        if operation == "set access":
            yield name, devices(fields[1]), devices(fields[2] or ())
        elif operation == "unmap":
            yield name, [], devices(fields[2])


def test_the_device_that_has_the_memory_is_the_last_to_get_its_right() -> None:
    program = compile_plan(PLAN, MACHINE)
    calls = [*in_calls(rows_of(program.making, program.slots, program.owners))]
    assert len(calls) == 8
    for name, order, _ in calls:
        assert sorted(order) == [0, 1, 2, 3]
        assert order[-1] == program.owners[name]
    assert {order[-1] for _, order, _ in calls} == {0, 1, 2, 3}


@pytest.mark.parametrize("right", ["r", "none"])
def test_it_is_the_last_of_those_that_keep_one_when_rights_change_and_when_that_is_undone(right: str) -> None:
    """Rights that are taken come first."""
    old = compile_plan(PLAN, MACHINE)
    less = EVERYBODY | {"gpu.3": right}
    new = PLAN | {"reservations": {"r": PLAN["reservations"]["r"] | {"access": less}}}
    new["regions"] = {"w": PLAN["regions"]["w"] | {"access": less, "size": "8MiB"}, "spread": PLAN["regions"]["spread"]}
    change = compile_change(old, hipplan.load(new), MACHINE)
    made = ChangeRows(change.new, old, change.new.owners)
    calls = [*in_calls(made.rows(change.additions)), *in_calls(made.rows(change.changes))]
    assert {name for name, _, _ in calls} == {"r[0]", "r[1]", "w[0]", "w[1]", "w[2]", "w[3]"}
    for name, order, undo in calls:
        owner = change.new.owners[name]
        assert order[-1] == owner
        assert (order[0] == 3) == (right == "none" and bool(undo))
        assert undo[-1:] in ([], [owner])


def test_memory_that_is_replaced_gets_its_rights_back_in_the_same_order() -> None:
    old = compile_plan(PLAN, MACHINE)
    new = PLAN | {"regions": PLAN["regions"] | {"w": PLAN["regions"]["w"] | {"device": "gpu.3"}}}
    change = compile_change(old, hipplan.load(new), MACHINE)
    made = ChangeRows(change.new, old, change.new.owners)
    calls = [*in_calls(made.rows(change.additions)), *in_calls(made.rows(change.changes))]
    taken_out = [(name, undo[-1]) for name, order, undo in calls if not order]
    assert taken_out == [("w[1]", 2), ("w[0]", 2)]
    assert {(name, order[-1]) for name, order, _ in calls if order} == {("w[0]", 3), ("w[1]", 3)}
