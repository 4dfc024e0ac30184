"""Sorts mappings by address, and keeps every step after the steps that it needs. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable
from operator import attrgetter

from hipplan.kinds.mapping.live import Map
from hipplan.program.steps import Step


def upward(made: Iterable[Step], ranges: Container[object]) -> list[Step]:
    """The same steps, with the mappings in these ranges in the order of their addresses.

    So the mapped part of a range mostly has no hole, as HIP 7.0 to 7.2 need for some ranges (lowering). A mapping that
    comes earlier takes its allocation along; the rights of one that comes later follow it. Names play no part: the
    memory of rank 10 comes before that of rank 2 in an alphabet, but not in the steps.
    """
    made = list(made)
    mappings = {step.name: step for step in made if isinstance(step, Map) and step.reservation in ranges}
    waiting: dict[str, list[Map]] = {}
    """Range -> its mappings that are still to come, the last one first."""
    for mapping in sorted(mappings.values(), key=attrgetter("offset"), reverse=True):
        waiting.setdefault(mapping.reservation, []).append(mapping)
    memory = {step.name: step for step in made if step.makes == "allocation"}
    out: list[Step] = []

    def add_memory(name: str) -> None:
        if name in memory:
            out.append(memory.pop(name))

    for step in made:
        if step.of_mapping:
            while step.name in mappings:
                mapping = waiting[mappings[step.name].reservation].pop()
                add_memory(mapping.allocation)
                out.append(mappings.pop(mapping.name))
        if step.name in memory:
            add_memory(step.name)
        elif step.makes != "allocation" and not (isinstance(step, Map) and step.reservation in ranges):
            out.append(step)
    return out
