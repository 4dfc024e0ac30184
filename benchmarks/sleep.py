"""Sleep to pinned memory and back, against the plain copy of the same bytes.

    python benchmarks/sleep.py [--runtime cuda] [--gib 32] [--devices 2] [--json FILE]

A region with an equal part on each device, filled, sleeps and wakes; the copy is kept (`retain=True`), so that what is
pinned is pinned before the first round. The first sleep, which pins, is shown by itself. Beside it, in the same
rounds: one plain copy a device, all devices at once, between the same memory and the same pinned memory. "ratio" is
that copy's time by hipplan's whole call: unmapping, giving back, making and mapping included. Between sleep and wake
nothing happens for a second (`--rest`), as a driver may still be clearing what was just freed, and a copy into
new memory waits for that; "at once" is without that rest. Then, where it is installed, torch_memory_saver with a copy
on the CPU, in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from common import MIB, Ratio, Times, arguments, keep, opened, positive, side_by_side, table
from reader import Driver

import hipplan
from hipplan.layout.layout import Layout
from hipplan.machines.runtimes import Chosen
from hipplan.program.steps import CreateAllocation

OTHER = """
import json, sys, time
import torch
from torch_memory_saver import torch_memory_saver as saver

size, rounds = int(sys.argv[1]), int(sys.argv[2])
with saver.region(tag="weights", enable_cpu_backup=True):
    memory = torch.full((size,), 7, dtype=torch.uint8, device="cuda")
took = []
for _ in range(rounds + 1):
    torch.cuda.synchronize()
    began = time.perf_counter()
    saver.pause("weights")
    torch.cuda.synchronize()
    asleep = time.perf_counter()
    saver.resume("weights")
    torch.cuda.synchronize()
    took.append(((asleep - began) * 1e6, (time.perf_counter() - asleep) * 1e6))
assert int(memory[-1]) == 7
print(json.dumps(took[1:]))
"""


def cycle(layout: Layout, rest_s: float) -> Mapping[str, float]:
    began = time.perf_counter()
    layout.sleep("weights")
    asleep = time.perf_counter()
    time.sleep(rest_s)
    wakes = time.perf_counter()
    layout.wake(retain=True)
    return {"sleep": (asleep - began) * 1e6, "wake": (time.perf_counter() - wakes) * 1e6}


class Plain:
    """One copy a device, between the memory of a layout and where its bytes wait."""

    def __init__(self, driver: Driver, layout: Layout, made: ExitStack) -> None:
        self._driver = driver
        self._layout = layout
        devices = list(layout.program.devices.values())
        self._streams = {device: made.enter_context(driver.stream(device)) for device in devices}

    def __call__(self) -> Mapping[str, float]:
        layout, base = self._layout, self._layout["weights"].address
        state, places = layout._holding.state, list[tuple[int, int, int, int]]()
        at = 0
        for step in layout.program.steps:
            if isinstance(step, CreateAllocation):
                waits = state.address_of(layout.program.backups[step.name].place)
                places.append((step.device, base + at, waits, step.size))
                at += step.size
        return {"sleep": self._all(places, out=True), "wake": self._all(places, out=False)}

    def _all(self, places: list[tuple[int, int, int, int]], *, out: bool) -> float:
        began = time.perf_counter()
        for device, there, waits, size in places:
            self._driver.call("hipSetDevice", device)
            self._driver.copy(waits if out else there, there if out else waits, size, self._streams[device])
        for stream in self._streams.values():
            self._driver.wait(stream)
        return (time.perf_counter() - began) * 1e6


def measure(chosen: Chosen, size: int, count: int, rounds: int, rest_s: float) -> dict[str, Any]:
    part = max(2 * MIB, size // count // (2 * MIB) * 2 * MIB)
    plan = {
        "hipplan": 1,
        "devices": {"gpu": {"count": count}},
        "regions": {"weights": {"devices": ["gpu.*"], "size": part * count}},
        "contents": {"weights": {"value": 7}},
    }
    with hipplan.apply(plan, runtime=chosen.kind) as layout, ExitStack() as made:
        first = cycle(layout, rest_s)
        variants = {
            "hipplan": lambda: cycle(layout, rest_s),
            "hipplan, at once": lambda: cycle(layout, 0),
            "plain copy, pinned": Plain(Driver(chosen), layout, made),
        }
        took = side_by_side(variants, rounds, warm=1)
    total = part * count
    pinning = f"{first['sleep'] / 1e3:.1f} ms, {total / first['sleep'] / 1e3:.2f} GB/s"
    on = f"{total / 2**30:.2f} GiB on {count} device{'s' * (count > 1)}"
    print(f"{on}; the first sleep, which pins, takes {pinning}")
    _rows(took, total)
    return {"bytes": total, "devices": count, "first": first, "us": took}


def _rows(took: Mapping[str, Times], total: int) -> None:
    plain = took["plain copy, pinned"]
    rows = []
    for name, times in took.items():
        for way in ("sleep", "wake"):
            rows.append(
                [f"{name}, {way}", times[way] / 1e3, total / times[way] / 1e3, str(Ratio.of(plain, times, way))]
            )
    table(["", "ms", "GB/s", "ratio"], rows)


def other(chosen: Chosen, size: int, rounds: int) -> dict[str, Any]:
    """torch_memory_saver, on one device."""
    if chosen.kind != "cuda":
        print("not measured: torch_memory_saver, which is for NVIDIA GPUs here\n")
        return {}
    start = "from torch_memory_saver import configure_subprocess as c; import subprocess, sys\n" \
            "with c(): sys.exit(subprocess.run([sys.executable, '-c', *sys.argv[1:]]).returncode)"  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", start, OTHER, str(size), str(rounds)], capture_output=True, text=True, timeout=600
    )
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
        print(f"not measured: torch_memory_saver: {why}\n")
        return {}
    took = json.loads(done.stdout.strip().splitlines()[-1])
    times = Times([{"sleep": out, "wake": back} for out, back in took])
    print(f"torch_memory_saver, {size / 2**30:.2f} GiB on one device, with a copy on the CPU")
    table(["", "ms", "GB/s"], [[way, times[way] / 1e3, size / times[way] / 1e3] for way in ("sleep", "wake")])
    return {"bytes": size, "us": times}


def main() -> None:
    parser = arguments(__doc__ or "", rounds=5)
    parser.add_argument("--gib", type=float, default=0, help="how much in all (default: 32, on the simulator 0.25)")
    parser.add_argument("--devices", type=positive, default=2, help="at most so many (default: 2)")
    parser.add_argument("--rest", type=float, default=1.0, help="seconds between sleep and wake (default: 1)")
    given = parser.parse_args()
    chosen = opened(given)
    size = int((given.gib or (0.25 if chosen.kind == "sim" else 32)) * 2**30)
    count = min(given.devices, chosen.runtime.device_count())
    results = {f"on {n}": measure(chosen, size, n, given.rounds, given.rest) for n in dict.fromkeys((1, count))}
    results["torch_memory_saver"] = other(chosen, min(size, 8 * 2**30), given.rounds)
    keep(given.json, "sleep", chosen, results)


if __name__ == "__main__":
    main()
