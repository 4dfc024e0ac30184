"""A pool with a tag beside PyTorch's own allocator: many tensors into an empty pool, again into a warm one; and how
long sleep and wake of it take.

    python benchmarks/pools.py [--tensors 1000] [--rounds 7] [--sleep 8] [--json FILE]

Cold: neither has memory of the driver (trim, empty_cache). Warm: the tensors were freed, and are allocated again. The
two take turns, in the other order in each round.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import hipplan

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

MIB = 2**20
GIB = 2**30
PLAN = {
    "hipplan": 1,
    "regions": {"pool": {"size": 0, "reserve": "48GiB", "chunk": "64MiB", "torch": {"tag": "pool"}}},
}


def sizes(count: int) -> list[int]:
    """From 512 bytes to 64 MiB, as many small ones as large ones, in an order that is always the same."""
    numbers = random.Random(43)
    return [int(2 ** numbers.uniform(9, 26)) for _ in range(count)]


def milliseconds(work: Callable[[], Any]) -> tuple[float, Any]:
    torch.cuda.synchronize()
    began = time.perf_counter()
    result = work()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) * 1e3, result


def allocations(layout: hipplan.Layout, wanted: list[int], rounds: int) -> dict[str, list[float]]:
    """What each takes for all tensors, in milliseconds."""
    took: dict[str, list[float]] = {"pool cold": [], "pool warm": [], "torch cold": [], "torch warm": []}

    def all_tensors() -> list[Any]:
        return [torch.empty(size, dtype=torch.uint8, device="cuda:0") for size in wanted]

    for number in range(rounds + 1):
        for who in ("pool", "torch") if number % 2 else ("torch", "pool"):
            layout.trim()
            torch.cuda.empty_cache()
            with layout.torch_pool("pool") if who == "pool" else nullcontext():
                for state in ("cold", "warm"):
                    ms, tensors = milliseconds(all_tensors)
                    if number:  # the first round warms the process up
                        took[f"{who} {state}"].append(ms)
                    del tensors
    layout.trim()
    return took


def sleeping(layout: hipplan.Layout, gib: int, rounds: int) -> dict[str, list[float]]:
    took: dict[str, list[float]] = {}
    with layout.torch_pool("pool"):
        kept = [torch.full((GIB // 4,), float(n), device="cuda:0") for n in range(gib)]
    for number in range(rounds):
        first = " first" if number == 0 else ""
        took.setdefault(f"sleep host{first}", []).append(milliseconds(lambda: layout.sleep("pool"))[0])
        took.setdefault("wake host", []).append(milliseconds(lambda: layout.wake("pool", retain=True))[0])
    assert [float(tensor[-1]) for tensor in kept] == [float(n) for n in range(gib)]
    for _ in range(rounds):
        took.setdefault("sleep drop", []).append(milliseconds(lambda: layout.sleep("pool", to="drop"))[0])
        took.setdefault("wake drop", []).append(milliseconds(lambda: layout.wake("pool"))[0])
    del kept
    layout.trim()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tensors", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sleep", type=int, default=8, help="GiB")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if torch is None or not torch.cuda.is_available():
        print("not measured: it needs PyTorch and a GPU")
        return
    wanted = sizes(given.tensors)
    with hipplan.apply(PLAN) as layout:
        took = allocations(layout, wanted, given.rounds) | sleeping(layout, given.sleep, given.rounds)
    print(f"{len(wanted):,} tensors of {sum(wanted) / GIB:.1f} GiB; {given.sleep} GiB asleep; medians")
    medians = {what: statistics.median(values) for what, values in took.items()}
    for what, median in medians.items():
        print(f"{what:16} {median:9.2f} ms")
    for state in ("cold", "warm"):
        print(f"pool / torch, {state}: {medians[f'pool {state}'] / medians[f'torch {state}']:.3f}")
    if given.json:
        given.json.write_text(json.dumps(took, indent=1))


if __name__ == "__main__":
    main()
