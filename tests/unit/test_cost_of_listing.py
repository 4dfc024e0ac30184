"""The list of a change costs the same for each object, however many there are."""

from __future__ import annotations

from typing import Any

import hipplan
from hipplan.program.difference import difference
from tests.python_calls import instructions_of


def advised(count: int, device: str) -> hipplan.Program:
    advice = [{"advise": "preferred_location", "device": device}]
    managed: dict[str, Any] = {"kind": "managed", "size": "64KiB", "device": "gpu.0", "advice": advice}
    buffers = {f"m{number}": managed for number in range(count)}
    return hipplan.compile({"hipplan": 1, "devices": {"gpu": {"count": 2}}, "buffers": buffers}, "sim-2")


def test_changed_advice_of_many_is_listed_at_the_same_cost_for_each() -> None:
    """For each of them the steps of all were looked at."""
    costs = []
    for count in (50, 200):
        change = difference(advised(count, "gpu.0"), advised(count, "gpu.1"))
        costs.append(instructions_of(lambda change=change: change.lines()))
        assert str(change.lines()[7]) == "~ managed m7: preferred_location (device 1), 64KiB at +0B"
    assert costs[1] <= 4.4 * costs[0]
