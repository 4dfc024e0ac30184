"""Copies between the objects of a layout: all pairs that have the rights, in both directions."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, permutations
from typing import NamedTuple

from hipplan import _core
from hipplan.errors import Problem, suggest_or_list
from hipplan.kinds.lives import BUFFERS
from hipplan.layout.layout import Layout
from hipplan.machines.runtimes import Chosen
from hipplan.measure.figures import GBS, US, Figure, Progress, figure, samples, seconds_of
from hipplan.measure.plain import move
from hipplan.program import contents
from hipplan.program.content_steps import MemoryPart
from hipplan.program.memory import Memory, Refused
from hipplan.program.program import Program
from hipplan.program.resources import RANGES
from hipplan.program.steps import CPU_ORDINAL

SMALL = 4096
"""Bytes of the copy whose duration counts as latency."""
OBJECTS_MAX = 16
"""Objects that are measured unless others are named: those that the plan names first. Their pairs are many."""
_WHOLE = (*BUFFERS, "region")
Pairs = Sequence[tuple[MemoryPart, MemoryPart]]


def copies(
    layout: Layout, chosen: Chosen, kinds: Sequence[str], patterns: Sequence[str], repeats: int, look: Progress
) -> Iterator[Figure]:
    """Figures of the kinds copy and latency. Overwrites the layout's bytes.

    patterns: as of selected(). Raises HipError, Problem (HP460), and as look().
    """
    routes = [route for route in _routes(layout.program, patterns) if not route.why_not]
    for route in routes:
        name, pairs = _name(route), route.pairs
        ends = pairs[0][0].device, pairs[0][1].device
        look(name)
        copy = _copy(layout, chosen.runtime, pairs)
        if "copy" in kinds:
            size = sum(part.size for part, _ in pairs)
            yield figure("copy", name, GBS, size, _samples(copy, size, repeats), ends)
        if "latency" in kinds:
            size = min(SMALL, pairs[0][0].size)
            yield figure("latency", name, US, size, _samples(copy, size, repeats * 5), ends)


def _samples(copy: Callable[[int], None], size: int, repeats: int) -> list[list[float]]:
    return samples([partial(seconds_of, partial(copy, size))], repeats)


def selected(program: Program, patterns: Sequence[str]) -> list[str]:
    """The objects between which copies are measured: those whose names match one of the patterns, such as kv.*; the
    first ones if there is none. Raises Problem (HP460): a pattern has no object."""
    names = measurable(program)
    if not patterns:
        return names[:OBJECTS_MAX]
    for pattern in patterns:
        if not any(_fits(name, pattern) for name in names):
            raise Problem("HP460", f"no object '{pattern}' can be copied", hint=suggest_or_list(pattern, names))
    return [name for name in names if any(_fits(name, pattern) for pattern in patterns)]


def _fits(name: str, pattern: str) -> bool:
    return name == pattern or fnmatch.fnmatchcase(name, pattern)  # names such as range[0] are patterns, too


def measurable(program: Program) -> list[str]:
    """The names between which copies can be measured: regions, buffers, and mappings of reservations."""
    regions = program.regions
    return [
        resource.name
        for resource in program.resources
        if not resource.name.startswith("#")  # hipplan's own
        and (resource.kind in _WHOLE or (resource.kind == "mapping" and resource.inside not in regions))
    ]


class Unmeasured(NamedTuple):
    """A copy that has no figure."""

    name: str
    why: str


def unmeasured(program: Program, patterns: Sequence[str]) -> list[Unmeasured]:
    """The copies between selected() objects that have no figure. Raises Problem (HP460)."""
    there = (route for route in _routes(program, patterns) if route.why_not)
    return [Unmeasured(_name(route), route.why_not) for route in there]


class _Route(NamedTuple):
    """A copy from one object to another."""

    source: str
    to: str
    pairs: Pairs
    why_not: str
    """Why no copy of the driver serves it; empty if one may."""


def _name(route: _Route) -> str:
    return f"{route.source} > {route.to}"


def _routes(program: Program, patterns: Sequence[str]) -> Iterator[_Route]:
    """Each pair of the selected() objects, in both directions."""
    memory = Memory(program.resources, program.devices, program.sealed, program.measured)
    for source, to in permutations(selected(program, patterns), 2):
        try:
            pairs, staged = contents.route(memory, to, source)
        except Refused as refused:
            yield _Route(source, to, (), refused.summary)
            continue
        why_not = ""
        if any(_is_the_cpus(memory, *both) for both in pairs):
            why_not = "the CPU copies it"
        elif staged and not all(_is_pinned_with(memory, *both) for both in pairs):
            why_not = "hipplan stages it through pinned memory"
            if not any(map(partial(_is_pinned, memory), chain.from_iterable(pairs))):
                why_not += ", unless both devices have rw on both objects"
            else:
                why_not += ": one of the objects is pinned with another device than that of the other one"
        if pairs:
            yield _Route(source, to, pairs, why_not)


def _is_the_cpus(memory: Memory, to: MemoryPart, source: MemoryPart) -> bool:
    """Whether hipplan has the CPU copy, because the driver would take a GPU that has no right to this memory."""
    both = to.device == source.device == CPU_ORDINAL
    return both and all(memory.by_name[side.object].kind in RANGES for side in (to, source))


def _is_pinned(memory: Memory, part: MemoryPart) -> bool:
    return part.device == CPU_ORDINAL and memory.home_of(part) is not None


def _is_pinned_with(memory: Memory, to: MemoryPart, source: MemoryPart) -> bool:
    """Whether a part is host memory that was pinned with the other's device: then that device copies, in all releases
    (contents.may_copy_at_once)."""
    sides = ((to, source), (source, to))
    return any(host.device == CPU_ORDINAL and memory.home_of(host) == device.device for host, device in sides)


def _copy(layout: Layout, runtime: _core.Runtime, pairs: Pairs) -> Callable[[int], None]:
    """A copy of the first bytes of a pair of objects."""
    places = [
        (
            layout[to.object].address + to.offset,
            to.device,
            layout[source.object].address + source.offset,
            source.device,
            to.size,
        )
        for to, source in pairs
    ]

    def copy(size: int) -> None:
        for to, to_device, source, source_device, part in places:
            if size <= 0:
                return
            move(runtime, to, to_device, source, source_device, min(size, part))
            size -= part

    return copy
