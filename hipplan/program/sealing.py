"""Programs in which other devices may use what is mapped: sealed against writing, and not any more. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from hipplan.program import steps
from hipplan.program.alterations import refuse
from hipplan.program.program import Program
from hipplan.program.resize import require
from hipplan.program.resources import Access, Resource


def sealed(program: Program, name: str) -> Program:
    """Nobody may write a region, a reservation's mappings or one mapping: rw becomes r. ApplyError (HP420)."""
    mappings = mappings_of(program, name)
    before = {one.name: one.access for one in mappings if one.name not in program.sealed}
    now = {name: tuple((who, "r") for who, _ in access) for name, access in before.items()}
    return replace(with_access(program, now), sealed={**program.sealed, **before})


def unsealed(program: Program, name: str) -> Program:
    """What was sealed has its access again. ApplyError (HP420)."""
    again = {one.name: program.sealed[one.name] for one in mappings_of(program, name) if one.name in program.sealed}
    rest = {mapping: access for mapping, access in program.sealed.items() if mapping not in again}
    return replace(with_access(program, again), sealed=rest)


def mappings_of(program: Program, name: str) -> list[Resource]:
    """The mappings that a name means. ApplyError (HP420)."""
    kind = require(program, name, "region", "reservation", "mapping", "allocation")
    mappings = [one for one in program.resources if one.kind == "mapping"]
    if kind == "mapping":
        (one,) = (one for one in mappings if one.name == name)
        if one.inside in program.regions:
            raise refuse(f"'{name}' is a piece of the region '{one.inside}'", hint=f"name '{one.inside}'")
        return [one]
    if kind == "allocation":
        raise refuse(f"'{name}' is memory without an address", hint="name its mapping or reservation")
    return [one for one in mappings if one.inside == name]


def with_access(program: Program, access: Mapping[str, Access]) -> Program:
    """With other access for these mappings."""
    ordinals = program.devices
    rights = {mapping: steps.rights_of(dict(given), ordinals) for mapping, given in access.items()}
    had = {step.name for step in program.steps if isinstance(step, steps.SetAccess)}

    def changed(step: steps.Step) -> Iterator[steps.Step]:
        now = rights.get(steps.whole_name(step.name))
        if now is None or not isinstance(step, (steps.Map, steps.SetAccess)):
            yield step
        elif isinstance(step, steps.Map):
            yield step
            if now and step.name not in had:
                yield steps.SetAccess(name=step.name, rights=now, origin=step.origin)
        elif now:
            yield step if step.rights == now else replace(step, rights=now)

    return replace(program, steps=tuple(one for step in program.steps for one in changed(step)))
