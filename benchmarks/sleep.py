"""Sleep to pinned memory and back, against the plain copy of the same bytes; to a file, with and without a checksum.

    python benchmarks/sleep.py [--runtime cuda] [--gib 32] [--devices 2] [--folder /dev/shm] [--json FILE]

A region with an equal part on each device, filled, sleeps and wakes; the copy is kept (`retain=True`), so that what is
pinned is pinned before the first round. The first sleep, which pins, is shown by itself. Beside it, in the same
rounds: one plain copy a device, all devices at once, between the same memory and the same pinned memory. "ratio" is
that copy's time by hipplan's whole call: unmapping, giving back, making and mapping included. Between sleep and wake
nothing happens for a second (`--rest`), as a driver may still be clearing what was just freed, and a copy into
new memory waits for that; "at once" is without that rest. Then wakes whose copy is
freed behind the caller: until wake() returns, until the device has done some work after it, until a sleep right after
that has ended, and until the copy is freed, which wake() itself waited for before. Then the same to a file
(`--folder`), with the checksum that is computed on the way, and without: "ratio" is the time without it by the time
with it. Beside it, what SHA-256 of the file would take in addition, by all processors. Then, where it is installed,
torch_memory_saver with a copy on the CPU, in a process of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from common import MIB, Ratio, Times, arguments, keep, opened, positive, side_by_side, table
from reader import Driver

import hipplan
from hipplan.kinds.allocation.live import CreateAllocation
from hipplan.layout.layout import Layout
from hipplan.layout.undo import wait_until_freed
from hipplan.machines.runtimes import Chosen

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


def behind(chosen: Chosen, size: int, rounds: int) -> dict[str, Any]:
    """Wake without retain: what the caller waits for, and what goes on behind it."""
    part = max(2 * MIB, size // (2 * MIB) * 2 * MIB)
    plan = {
        "hipplan": 1,
        "regions": {"weights": {"size": part}},
        "buffers": {"probe": {"kind": "device", "size": MIB}},
        "contents": {"weights": {"value": 7}},
    }
    with hipplan.apply(plan, runtime=chosen.kind) as layout:

        def woken(then: Callable[[], object]) -> Mapping[str, float]:
            layout.sleep("weights")
            took = _both("wake", lambda: (layout.wake(), then()))
            wait_until_freed()
            layout.wake()
            return took

        def work() -> None:
            layout.fill("probe", 1)

        variants = {
            "until the copy is freed": lambda: woken(wait_until_freed),
            "until wake returns": lambda: woken(lambda: None),
            "until work is done": lambda: woken(work),
            "until it sleeps again": lambda: woken(lambda: layout.sleep("weights")),
        }
        took = side_by_side(variants, rounds, warm=1)
    print(f"{part / 2**30:.2f} GiB; wake without retain")
    _rows(took, part, "until the copy is freed")
    return {"bytes": part, "us": took}


def in_file(chosen: Chosen, size: int, rounds: int, folder: str | None) -> dict[str, Any]:
    """Sleep to a file and back, with and without its checksum."""
    part = max(2 * MIB, size // (2 * MIB) * 2 * MIB)
    plan = {"hipplan": 1, "regions": {"weights": {"size": part}}, "contents": {"weights": {"value": 7}}}
    with tempfile.TemporaryDirectory(dir=folder) as made, hipplan.apply(plan, runtime=chosen.kind) as layout:
        file = Path(made, "asleep.bin")

        def cycle(checksum: bool) -> Mapping[str, float]:
            took = _both("sleep", lambda: layout.sleep("weights", to=file, checksum=checksum))
            return took | _both("wake", layout.wake)

        def hashed() -> Mapping[str, float]:
            file.write_bytes(bytes(part))
            took = _both("sleep", lambda: _hash(file, part))
            file.unlink()
            return took | {way.replace("sleep", "wake"): value for way, value in took.items()}

        variants = {
            "without a checksum": lambda: cycle(False),
            "with it": lambda: cycle(True),
            "SHA-256 alone": hashed,
        }
        took = side_by_side(variants, rounds, warm=1)
    print(f"{part / 2**30:.2f} GiB in a file in {folder or tempfile.gettempdir()}")
    _rows(took, part, "without a checksum")
    return {"bytes": part, "us": took}


def _both(way: str, act: Callable[[], object]) -> dict[str, float]:
    """What an act takes, in microseconds: and of all processors, which other work on the machine does not change."""
    began, used = time.perf_counter(), time.process_time()
    act()
    took, used = time.perf_counter() - began, time.process_time() - used
    return {way: took * 1e6, f"{way}, processors": used * 1e6}


def _hash(file: Path, size: int) -> None:
    """SHA-256 of pieces of a file, in threads."""

    def piece(at: int) -> bytes:
        return hashlib.sha256(os.pread(descriptor, 16 * MIB, at)).digest()

    descriptor = os.open(file, os.O_RDONLY)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        hashlib.sha256(b"".join(threads.map(piece, range(0, size, 16 * MIB)))).digest()
    os.close(descriptor)


def _rows(took: Mapping[str, Times], total: int, base: str = "plain copy, pinned") -> None:
    plain = took[base]
    rows = []
    for name, times in took.items():
        for way in [way for way in times if way != "all"]:
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
    parser.add_argument("--folder", default=None, help="for the file (default: that of temporary files)")
    parser.add_argument("--rest", type=float, default=1.0, help="seconds between sleep and wake (default: 1)")
    given = parser.parse_args()
    chosen = opened(given)
    size = int((given.gib or (0.25 if chosen.kind == "sim" else 32)) * 2**30)
    count = min(given.devices, chosen.runtime.device_count())
    results = {f"on {n}": measure(chosen, size, n, given.rounds, given.rest) for n in dict.fromkeys((1, count))}
    results["freed behind"] = behind(chosen, min(size, 8 * 2**30), given.rounds)
    results["in a file"] = in_file(chosen, min(size, 8 * 2**30), given.rounds, given.folder)
    results["torch_memory_saver"] = other(chosen, min(size, 8 * 2**30), given.rounds)
    keep(given.json, "sleep", chosen, results)


if __name__ == "__main__":
    main()
