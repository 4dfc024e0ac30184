"""Mappings in the order of their addresses: every step comes after what it needs, whatever the names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hipplan.kinds.allocation.live import ImportAllocation
from hipplan.kinds.mapping.live import Map, SetAccess
from hipplan.program.steps import Step
from hipplan.program.upward import upward

COUNT = 12


@given(st.data())
def test_mappings_go_upward_and_come_after_their_memory_and_before_their_rights(data: st.DataObject) -> None:
    made: list[Step] = []
    for number in data.draw(st.permutations(range(COUNT)), "order of the mappings"):
        memory = ImportAllocation(name=f"a{number}", bind="", device=0, size=1, asked=1, origin=None)
        made.insert(data.draw(st.integers(0, len(made)), "place of the memory"), memory)
        names = {"name": f"m{number}", "reservation": f"r{number % 2}", "allocation": f"a{number}"}
        made.append(Map(**names, offset=number, size=1, asked=1, origin=None))
        if data.draw(st.booleans(), "rights"):
            made.append(SetAccess(name=f"m{number}", rights=(), origin=None))

    steps = upward(made, {"r1"})

    assert sorted(map(id, steps)) == sorted(map(id, made))
    places = {(type(step), step.name): place for place, step in enumerate(steps)}
    for step in steps:
        if isinstance(step, Map):
            assert places[ImportAllocation, step.allocation] < places[Map, step.name]
        elif isinstance(step, SetAccess):
            assert places[Map, step.name] < places[SetAccess, step.name]
    for name in ("r0", "r1"):
        in_range = [step for step in steps if isinstance(step, Map) and step.reservation == name]
        was = [step for step in made if isinstance(step, Map) and step.reservation == name]
        assert in_range == (sorted(was, key=lambda step: step.offset) if name == "r1" else was)
