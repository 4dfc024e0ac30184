"""What one object costs beside many others: chunks of a region, and as many allocations of `count:` that a line maps.

    python benchmarks/beside.py [--runtime cuda] [--counts 40,4096] [--rounds 7] [--json FILE]

An update that adds a buffer; the first layout[name] and the first write after a change of the region, which makes a new
program; later writes; and a sleep and a wake of another region of two chunks.
Medians, in microseconds. ratio: to the first count.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy
from apply import counts
from common import MIB, arguments, keep, opened, table

import hipplan
from hipplan.machines.runtimes import Chosen

CHUNK = 2 * MIB
BYTES = numpy.zeros(65536, dtype="u1")


def plan(count: int, *buffers: str) -> dict[str, Any]:
    """So many chunks, and so many allocations of `count:`, beside these buffers of 64 KiB."""
    tensors = {"t": {"dtype": "u8", "shape": [len(BYTES)]}}
    return {
        "hipplan": 1,
        "devices": {"gpu": {"count": 1}},
        "regions": {
            "r": {"size": count * CHUNK, "chunk": CHUNK, "reserve": (count + 8) * CHUNK, "tensors": tensors},
            "own": {"size": 2 * CHUNK, "chunk": CHUNK},
        },
        "allocations": {"m": {"device": "gpu.0", "size": CHUNK, "count": count}},
        "reservations": {"range": {"access": {"gpu.0": "rw"}, "mappings": [{"allocation": "m.*"}]}},
        "buffers": {name: {"kind": "device", "device": "gpu.0", "size": len(BYTES)} for name in buffers},
    }


def measured(chosen: Chosen, count: int, rounds: int) -> dict[str, float]:
    """Act -> the median of its time."""
    one, two = hipplan.load(plan(count, "b")), hipplan.load(plan(count, "b", "more"))
    with hipplan.apply(one, runtime=chosen.runtime.path, answer=False) as layout:

        def timed(act: Callable[[], Any], before: Callable[[], Any], after: Callable[[], Any]) -> float:
            took = []
            for _ in range(rounds):
                before()
                started = time.perf_counter()
                act()
                took.append((time.perf_counter() - started) * 1e6)
                after()
            return statistics.median(took)

        def nothing() -> None:
            pass

        def grow() -> None:
            layout.grow("r", by=CHUNK)

        def shrink() -> None:
            layout.shrink("r", by=CHUNK)

        return {
            "an update that adds a buffer": timed(
                lambda: layout.update(two), nothing, lambda: layout.update(one, lose="*")
            ),
            "layout[buffer] after a growth": timed(lambda: layout["b"], grow, shrink),
            "a write of a tensor after a growth": timed(lambda: layout.write("r.t", BYTES), grow, shrink),
            "a write of a buffer": timed(lambda: layout.write("b", BYTES), nothing, nothing),
            "a write of a tensor": timed(lambda: layout.write("r.t", BYTES), nothing, nothing),
            "a sleep of a region": timed(lambda: layout.sleep("own", to="drop"), nothing, layout.wake),
            "its wake": timed(layout.wake, lambda: layout.sleep("own", to="drop"), nothing),
        }


def main() -> None:
    parser = arguments(__doc__ or "", rounds=7)
    parser.add_argument("--counts", type=counts, default="40,4096", help="numbers of chunks, with commas between")
    given = parser.parse_args()
    chosen = opened(given)
    took = {count: measured(chosen, count, given.rounds) for count in given.counts}
    least = took[given.counts[0]]
    rows = [
        [f"{count} + {count}", act, time_us, time_us / least[act]]
        for count in took
        for act, time_us in took[count].items()
    ]
    table(["chunks + counted", "", "us", "ratio"], rows)
    keep(given.json, "beside", chosen, [{"count": count, "us": times} for count, times in took.items()])


if __name__ == "__main__":
    main()
