"""The part of two programs that a change is about: without what is equal in both and depends on nothing else. Pure.

To compare thousands of chunks that stay would cost more than the change. So most of its preparation sees this part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from hipplan.program import steps
from hipplan.program.program import Program
from hipplan.program.regions import PlacedRegion, mapping_of, memory_of
from hipplan.program.runs import Run, runs
from hipplan.program.series import Parts, segments

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
    whole: tuple[Program, Program]
    """The old and the new program with them."""

    def leaves_out(self, kind: object, name: str) -> bool:
        """Whether an object is left out. name: of a mapping that of its range."""
        if kind == "allocation":
            region, sign, _ = name.partition("#")
            return bool(sign) and region in self.regions
        return name in (self.regions if kind in ("reservation", "mapping") else self.buffers)

    def __len__(self) -> int:
        """The number of objects that are left out."""
        new = self.whole[1]
        return len(self.buffers) + sum(1 + 2 * len(new.regions[name].chunks) for name in self.regions)

    def slots(self) -> Iterator[tuple[int, int, int]]:
        """(slot in the new program, slot in the old one, how many) of consecutive objects that are left out."""
        old, new = self.whole
        for name in (*self.buffers, *self.regions):
            yield new.slots[name], old.slots[name], 1
        in_runs: dict[tuple[str, bool], int] = {}
        """How many chunks of each region are in a run of both programs, from the first on."""
        there = {(run.region, run.of_memory): run for _, run in runs(old.steps)}
        for _, run in runs(new.steps):
            was = there.get((run.region, run.of_memory))
            if run.region in self.regions and was is not None and was.chunks.start == run.chunks.start == 0:
                many = in_runs[run.region, run.of_memory] = min(len(run.chunks), len(was.chunks))
                yield new.slots[run.name_of(0)], old.slots[run.name_of(0)], many
        for region in self.regions:
            for of_memory, name_of in ((True, memory_of), (False, mapping_of)):
                for chunk in range(in_runs.get((region, of_memory), 0), len(new.regions[region].chunks)):
                    name = name_of(region, chunk)
                    yield new.slots[name], old.slots[name], 1


def touched(old: Program, new: Program, renewed: Set[str]) -> Touched:
    """renewed: names of objects that are recreated although they do not differ."""
    is_plain = not any(program.contents or program.sleeping or program.parts for program in (old, new))
    if not is_plain or old.evenness.in_pieces or old.devices != new.devices:
        return Touched(old, new, frozenset(), frozenset(), (old, new))
    regions = frozenset(_equal_regions(old, new, renewed))
    buffers = frozenset(_equal_buffers(old, new, renewed))
    if not (regions or buffers):
        return Touched(old, new, regions, buffers, (old, new))
    left_out = regions | buffers
    return Touched(_without(old, left_out), _without(new, left_out), regions, buffers, (old, new))


def _equal_regions(old: Program, new: Program, renewed: Set[str]) -> Iterator[str]:
    """The regions whose steps are equal in both programs: they follow from the region, its devices and its range."""
    differ = {_outer(name) for name in (*old.sealed, *new.sealed, *renewed)}
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
    for _, step in new.single:
        compared = _BUFFERS.get(type(step))
        if compared is not None and step.name not in renewed:
            was = old.makers.get(step.name)
            if type(was) is type(step) and compared(was) == compared(step):
                yield step.name


def _without(program: Program, names: Set[str]) -> Program:
    """names: of the regions and buffers that are left out."""
    stay: Parts[steps.Step] = Parts()
    for segment in segments(program.steps):
        if not isinstance(segment, Run):
            stay.extend([step for step in segment if _outer(step.name) not in names])
        elif segment.region not in names:
            stay.extend(segment)
    regions = {name: placed for name, placed in program.regions.items() if name not in names}
    return replace(program, steps=stay.series(), regions=regions)


def _outer(name: str) -> str:
    """The name of a region, from that of its memory or its mapping; any other name."""
    return name.partition("#")[0].partition("[")[0] or name  # that of hipplan's own memory begins with #
