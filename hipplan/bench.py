"""Bandwidth and latency of copies between all devices, over memory that a plan lays out.

Beside each figure the same copy over ordinary buffers (hipMalloc, peers enabled) can be measured in turn with it,
so that a layout's cost shows as a ratio of one run.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from typing import Any

from hipplan import _core
from hipplan.language.loader import load
from hipplan.layout.layout import Layout
from hipplan.layout.prepare import prepare
from hipplan.layout.run import run
from hipplan.machines.runtimes import Chosen

SMALL = 4096
"""Bytes of the copy whose duration counts as latency."""


@dataclass(frozen=True, slots=True)
class CopySpeed:
    """Copies from one device to another (or within one)."""

    source: int
    to: int
    bandwidth: float
    """Bytes a second; what is copied counts once."""
    latency: float
    """Seconds from the call to the end of a copy of 4096 bytes."""
    plain_bandwidth: float | None = None
    """The same over ordinary buffers; None if not asked for."""
    plain_latency: float | None = None


@dataclass(frozen=True, slots=True)
class Matrix:
    devices: tuple[str, ...]
    size: int
    repeats: int
    cells: tuple[CopySpeed, ...]


def plan(runtime: _core.Runtime, size: int, compare: bool) -> dict[str, Any]:
    """Two mappings on each device, in one range, usable by every device that reaches it."""
    count = runtime.device_count()
    reach = {
        owner: [who for who in range(count) if who == owner or runtime.can_access_peer(who, owner)]
        for owner in range(count)
    }
    links = [
        {"device": f"gpu.{who}", "peer": f"gpu.{owner}"} for owner in reach for who in reach[owner] if who != owner
    ]
    ends = list(product(range(count), ("source", "to")))
    return {
        "hipplan": 1,
        "name": "bench",
        "devices": {"gpu": {"count": count}},
        "peers": links if compare else [],
        "allocations": {f"{end}_{n}": {"device": f"gpu.{n}", "size": size} for n, end in ends},
        "reservations": {
            "range": {
                "mappings": [
                    {"allocation": f"{end}_{n}", "access": {f"gpu.{who}": "rw" for who in reach[n]}} for n, end in ends
                ]
            }
        },
        "buffers": {
            f"plain_{end}_{n}": {"kind": "device", "device": f"gpu.{n}", "size": size} for n, end in ends if compare
        },
    }


def measure(chosen: Chosen, size: int, repeats: int, compare: bool, on_cell: Callable[[int, int], None]) -> Matrix:
    """Every ordered pair of devices. on_cell: called before each with its number and how many there are.

    Raises what apply raises, HipError if a copy fails, and LeakError.
    """
    runtime = chosen.runtime
    program = prepare(load(plan(runtime, size, compare)), chosen, None)
    granted = next((r.size for r in program.resources if r.kind == "mapping"), size)
    with closing(run(program, runtime)) as layout:  # a leak matters more than the copy that failed
        pairs = list(product(range(len(program.devices)), repeat=2))
        cells = []
        for number, (source, to) in enumerate(pairs):
            on_cell(number, len(pairs))
            cells.append(_cell(layout, runtime, source, to, size, granted, repeats, compare))
        names = tuple(runtime.device_name(ordinal) for ordinal in program.devices.values())
    return Matrix(names, size, repeats, tuple(cells))


def _cell(
    layout: Layout, runtime: _core.Runtime, source: int, to: int, size: int, granted: int, repeats: int, compare: bool
) -> CopySpeed:
    base = layout["range"].address
    places = [(base + 2 * source * granted, base + (2 * to + 1) * granted)]
    if compare:
        places.append((_address(layout, f"plain_source_{source}"), _address(layout, f"plain_to_{to}")))
    for start, _ in places:
        runtime.fill(start, 1, size)
    large = _times(runtime, places, source, to, size, repeats)
    small = _times(runtime, places, source, to, min(SMALL, size), repeats * 5)
    bandwidth = [size / seconds for seconds in large]
    return CopySpeed(source, to, bandwidth[0], small[0], *((bandwidth[1], small[1]) if compare else ()))


def _address(layout: Layout, name: str) -> int:
    return layout[name].address


def _times(
    runtime: _core.Runtime, places: list[tuple[int, int]], source: int, to: int, size: int, repeats: int
) -> list[float]:
    """The median seconds of one copy at each place; the places take turns."""
    taken: list[list[float]] = [[] for _ in places]
    for number in range(repeats + 2):
        order = range(len(places)) if number % 2 else reversed(range(len(places)))
        for place in order:
            start, end = places[place]
            started = time.perf_counter()
            runtime.copy_peer(end, to, start, source, size)
            if number >= 2:  # the first ones warm up
                taken[place].append(time.perf_counter() - started)
    return [statistics.median(times) for times in taken]
