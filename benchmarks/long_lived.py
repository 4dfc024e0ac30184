"""What a change takes in a layout that has lived for long, against the same change at its beginning.

    python benchmarks/long_lived.py [--runtime cuda] [--changes 16000] [--chunks 4096] [--rounds 5] [--json FILE]

"changes" grows and shrinks a region by one chunk of 2 MiB, so many times in all. "chunks" grows a region by one chunk
so many times, and shrinks it again. The first and the last hundred of them are compared: no figure should depend on
what came before. "asleep" is a sleep to the host and a wake of these chunks, against those of a region that the plan
made as large.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from common import MIB, Variant, arguments, keep, opened, positive, side_by_side, table, there_and_back

import hipplan
from hipplan.language.loader import load
from hipplan.layout.prepare import prepare
from hipplan.layout.run import run
from hipplan.machines.runtimes import Chosen

CHUNK = 2 * MIB
FEW = 100


def layout_of(chosen: Chosen, chunks: int, most: int) -> hipplan.Layout:
    """A layout of one region with so many chunks, which may grow to `most`."""
    region = {"size": chunks * CHUNK, "chunk": CHUNK, "reserve": most * CHUNK}
    return run(prepare(load({"hipplan": 1, "regions": {"cache": region}}), chosen, None), chosen.runtime)


def each(act: Callable[[], Any], times: int) -> list[float]:
    """What each of so many acts takes, in microseconds."""
    took = []
    for _ in range(times):
        started = time.perf_counter()
        act()
        took.append((time.perf_counter() - started) * 1e6)
    return took


def first_and_last(took: list[float]) -> tuple[float, float, float]:
    """The medians of the first and of the last ones, and their ratio; the very first finds out more."""
    few = max(1, min(FEW, len(took) // 2))
    first, last = statistics.median(took[1 : few + 1] or took), statistics.median(took[-few:])
    return first, last, last / first


def after_changes(chosen: Chosen, changes: int) -> dict[str, list[float]]:
    took: dict[str, list[float]] = {"grow": [], "shrink": []}
    with layout_of(chosen, 2, 3) as layout:
        for _ in range(-(-changes // 2)):
            took["grow"] += each(lambda: layout.grow("cache", by=CHUNK), 1)
            took["shrink"] += each(lambda: layout.shrink("cache", by=CHUNK), 1)
    return took


def one_by_one(chosen: Chosen, chunks: int) -> dict[str, list[float]]:
    with layout_of(chosen, 2, chunks + 2) as layout:
        grown = each(lambda: layout.grow("cache", by=CHUNK), chunks)
        return {"grow": grown, "shrink": each(lambda: layout.shrink("cache", by=CHUNK), chunks)}


def main() -> None:
    parser = arguments(__doc__ or "", rounds=5)
    parser.add_argument("--changes", type=positive, default=16000, help="changes of one layout in all")
    parser.add_argument("--chunks", type=positive, default=4096, help="chunks that are added one by one")
    given = parser.parse_args()
    chosen = opened(given)
    rows = [
        [f"{how}, {what}", *first_and_last(took)]
        for how, all_took in (
            (f"after {given.changes} changes", after_changes(chosen, given.changes)),
            (f"one of {given.chunks} chunks", one_by_one(chosen, given.chunks)),
        )
        for what, took in all_took.items()
    ]
    print("a change of one chunk of 2 MiB, us; ratio: of the last to the first")
    table(["", "first", "last", "ratio"], rows)
    few = max(2, min(given.chunks, 512))
    with layout_of(chosen, 2, few) as grown, layout_of(chosen, few, few) as planned:
        each(lambda: grown.grow("cache", by=CHUNK), few - 2)
        both: dict[str, Variant] = {
            name: partial(there_and_back, partial(layout.sleep, "cache"), partial(layout.wake, "cache"))
            for name, layout in (("one by one", grown), ("planned", planned))
        }
        took = side_by_side(both, given.rounds)
    print(f"{few} chunks sleep on the host and wake, us; ratio: to those that the plan made")
    names = {"sleep": "apply", "wake": "teardown"}
    asleep_rows = [
        [name, *(took[how][part] for how in both), took["one by one"][part] / took["planned"][part]]
        for name, part in names.items()
    ]
    table(["", *both, "ratio"], asleep_rows)
    keep(given.json, "long_lived", chosen, [*rows, *asleep_rows])


if __name__ == "__main__":
    main()
