"""All figures of a plan's memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from hipplan.language.loader import LoadedPlan
from hipplan.layout.layout import Layout
from hipplan.layout.prepare import prepare
from hipplan.layout.run import run
from hipplan.machines.machine import Machine
from hipplan.machines.runtimes import Chosen
from hipplan.measure.copies import copies
from hipplan.measure.figures import Figure, Progress
from hipplan.measure.managed import first_touches, prefetches
from hipplan.measure.maps import maps
from hipplan.measure.plain import beside

_LIVE = ("copy", "latency", "prefetch")
KINDS = ("copy", "latency", "prefetch", "first_touch", "map")
REPEATS = 20


def measured(
    plan: LoadedPlan,
    chosen: Chosen,
    profile: Machine | None,
    kinds: Sequence[str],
    patterns: Sequence[str],
    repeats: int,
    look: Progress,
) -> Iterator[Figure]:
    """Measures a plan's memory. patterns: of the objects of copies, as in copies().

    Raises what apply() raises, HipError if a call fails, LeakError, Problem (HP460), and as look().
    """
    yield from alone(plan, chosen, profile, kinds, repeats, look)
    if any(kind in kinds for kind in _LIVE):
        with closing(run(prepare(plan, chosen, profile), chosen.runtime)) as layout:
            figures = list(live(layout, chosen, kinds, patterns, repeats, look))
        yield from beside(figures, chosen, repeats, look)


def alone(
    plan: LoadedPlan, chosen: Chosen, profile: Machine | None, kinds: Sequence[str], repeats: int, look: Progress
) -> Iterator[Figure]:
    """What needs memory of its own, while the plan is not applied: map, unmap and first touch."""
    if "map" in kinds:
        yield from maps(plan, chosen, profile, repeats, look)
    if "first_touch" in kinds:
        yield from first_touches(plan, chosen, profile, repeats, look)


def live(
    layout: Layout, chosen: Chosen, kinds: Sequence[str], patterns: Sequence[str], repeats: int, look: Progress
) -> Iterator[Figure]:
    """What is measured in an applied plan: copy, latency and prefetch. Its bytes are overwritten."""
    if "copy" in kinds or "latency" in kinds:
        yield from copies(layout, chosen, kinds, patterns, repeats, look)
    if "prefetch" in kinds:
        yield from prefetches(layout, chosen, repeats, look)
