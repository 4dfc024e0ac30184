"""Growing a tensor at a fixed base against a new buffer, a copy and a free; and one handle against many.

    python benchmarks/growth.py [--runtime cuda] [--rounds 15] [--json FILE]

"grow" maps one more chunk behind what is there: the same driver calls as a plan's region makes, through the same
native journal. "copy" is what one does without virtual memory: hipMalloc of the new size, copy, free the old one.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping
from typing import Any

from common import MIB, arguments, keep, opened, side_by_side, table

from hipplan import _core
from hipplan.loader import load
from hipplan.prepare import prepare
from hipplan.runtimes import Chosen
from hipplan.transaction import run

CHUNK = 64 * MIB


def grow(chosen: Chosen, before: int, chunk: int) -> Mapping[str, float]:
    """From `before` bytes to one chunk more, at the same address."""
    journal = _core.Journal(chosen.runtime)
    properties = _core.AllocationProperties(0)
    base = journal.reserve("range", before + chunk, 0, 0)
    for number in range(2):
        size, at = (before, 0) if number == 0 else (chunk, before)
        if number == 1:
            started = time.perf_counter()
        memory = journal.create_allocation("memory", size, properties)
        journal.set_access(journal.map("mapping", base, at, memory, size), [(1, 0, 3)])
    took = (time.perf_counter() - started) * 1e6
    journal.undo_all()
    return {"grow": took}


def copy(chosen: Chosen, before: int, chunk: int) -> Mapping[str, float]:
    runtime, journal = chosen.runtime, _core.Journal(chosen.runtime)
    old = journal.create_device_buffer("old", 0, before)
    runtime.fill(journal.address(old), 1, before)
    runtime.synchronize(0)
    started = time.perf_counter()
    new = journal.create_device_buffer("new", 0, before + chunk)
    runtime.copy(journal.address(new), journal.address(old), before)
    runtime.synchronize(0)
    journal.undo([old])
    took = (time.perf_counter() - started) * 1e6
    journal.undo_all()
    return {"grow": took}


def tensors(chosen: Chosen, count: int, size: int, handles: int) -> Any:
    """A program that gives `count` tensors' worth of memory out of so many handles."""
    plan = {
        "hipplan": 1,
        "devices": {"gpu": {"count": 1}},
        "allocations": {"a": {"device": "gpu.0", "size": count * size // handles, "count": handles}},
        "reservations": {"r": {"access": {"gpu.0": "rw"}, "mappings": [{"allocation": "a.*"}]}},
    }
    program = prepare(load(plan), chosen, None)

    def once() -> Mapping[str, float]:
        started = time.perf_counter()
        layout = run(program, chosen.runtime)
        applied = time.perf_counter()
        layout.close()
        return {"apply": (applied - started) * 1e6, "teardown": (time.perf_counter() - applied) * 1e6}

    return once


def main() -> None:
    given = arguments(__doc__ or "", rounds=15).parse_args()
    chosen = opened(given)
    simulated = hasattr(ctypes.CDLL(chosen.runtime.path), "hipsim_ledger")  # under AMD's name too
    rows, results = [], []
    for before in (64 * MIB, 1024 * MIB, 8192 * MIB):
        if simulated and before > 64 * MIB:
            continue  # its copies are real ones, by the CPU

        took = side_by_side(
            {"grow": lambda b=before: grow(chosen, b, CHUNK), "copy": lambda b=before: copy(chosen, b, CHUNK)},
            given.rounds,
        )
        ratio = took["copy"]["all"] / took["grow"]["all"]
        rows.append([f"{before // MIB} MiB + 64 MiB", took["grow"]["all"], took["copy"]["all"], ratio])
        results.append({"before": before, "chunk": CHUNK, "us": took, "ratio": ratio})
    print("growing, us; ratio: how many times faster than a new buffer, copy, free")
    table(["", "at a fixed base", "new buffer", "ratio"], rows)

    variants = {f"{handles}": tensors(chosen, 512, 2 * MIB, handles) for handles in (1, 512)}
    took = side_by_side(variants, given.rounds)
    ratio = took["512"]["all"] / took["1"]["all"]
    print("512 tensors of 2 MiB, verified, us")
    table(
        ["handles", "apply", "teardown", "ratio"],
        [["1", took["1"]["apply"], took["1"]["teardown"], 1.0],
         ["512", took["512"]["apply"], took["512"]["teardown"], ratio]],
    )  # fmt: skip
    results.append({"tensors": 512, "size": 2 * MIB, "us": took, "ratio": ratio})
    keep(given.json, "growth", chosen, results)


if __name__ == "__main__":
    main()
