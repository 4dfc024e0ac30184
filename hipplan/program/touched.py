"""The part of two programs that a change is about: without what is equal in both and depends on nothing else. Pure.

To compare thousands of chunks that stay would cost more than the change. So most of its preparation sees this part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from hipplan.program import steps
from hipplan.program.program import Program
from hipplan.program.regions import PlacedRegion, mapping_of, memory_of

_BUFFERS: dict[type[steps.Step], Callable[[steps.Step], Any]] = {
    steps.CreateDeviceBuffer: attrgetter("device", "size"),
    steps.CreatePinnedBuffer: attrgetter("device", "size", "flags", "numa_node", "near", "simulated_node"),
}
"""Steps of buffers about which there is no other step -> what tells two of one name apart."""


@dataclass(frozen=True)
class Touched:
    """Two programs without what is equal in both."""

    old: Program
    new: Program
    regions: frozenset[str]
    """Those that are left out."""
    buffers: frozenset[str]
    """Those that are left out."""
    names: Sequence[str]
    """Of all objects that are left out: buffers; ranges, memory and mappings."""
    whole: Program
    """The new program with them."""

    def leaves_out(self, kind: object, name: str) -> bool:
        """Whether an object is left out. name: of a mapping that of its range."""
        if kind == "allocation":
            region, sign, _ = name.partition("#")
            return bool(sign) and region in self.regions
        return name in (self.regions if kind in ("reservation", "mapping") else self.buffers)


def touched(old: Program, new: Program, renewed: Set[str]) -> Touched:
    """renewed: names of objects that are recreated although they do not differ."""
    is_plain = not any(program.contents or program.sleeping or program.parts for program in (old, new))
    if not is_plain or old.evenness.in_pieces or old.devices != new.devices:
        return Touched(old, new, frozenset(), frozenset(), (), new)
    regions = frozenset(_equal_regions(old, new, renewed))
    buffers = frozenset(_equal_buffers(old, new, renewed))
    if not (regions or buffers):
        return Touched(old, new, regions, buffers, (), new)
    names = [*buffers, *_names_of(new, regions)]
    out = {*names}
    return Touched(_without(old, regions, out), _without(new, regions, out), regions, buffers, names, new)


def _names_of(program: Program, regions: Iterable[str]) -> Iterator[str]:
    """The names of all objects of these regions that steps make."""
    for name in regions:
        yield name
        for number in range(len(program.regions[name].chunks)):
            yield memory_of(name, number)
            yield mapping_of(name, number)


def _equal_regions(old: Program, new: Program, renewed: Set[str]) -> Iterator[str]:
    """The regions whose steps are equal in both programs: they follow from the region, its devices and its range."""
    differ = {name.partition("#")[0].partition("[")[0] for name in (*old.sealed, *new.sealed, *renewed)}
    for name, placed in new.regions.items():
        was = old.regions.get(name)
        if (
            was is not None
            and name not in differ
            and name not in new.shared
            and name not in old.shared
            and _without_place(was) == _without_place(placed)
            and _is_same_range(old.makers[name], new.makers[name])
        ):
            yield name


def _without_place(placed: PlacedRegion) -> PlacedRegion:
    """The region as if it stood at no place in a plan: another plan may have it further down."""
    return replace(placed, region=placed.region._replace(path=()))


def _is_same_range(was: steps.Step, now: steps.Step) -> bool:
    return isinstance(was, steps.Reserve) and replace(was, origin=None) == replace(now, origin=None)


def _equal_buffers(old: Program, new: Program, renewed: Set[str]) -> Iterator[str]:
    for name, step in new.makers.items():
        compared = _BUFFERS.get(type(step))
        if compared is not None and name not in renewed:
            was = old.makers.get(name)
            if type(was) is type(step) and compared(was) == compared(step):
                yield name


def _without(program: Program, regions: Set[str], names: Set[str]) -> Program:
    """names: of all objects that are left out."""
    return replace(
        program,
        steps=tuple(step for step in program.steps if step.name not in names),
        regions={name: placed for name, placed in program.regions.items() if name not in regions},
    )
