"""The soak: thousands of applies, torn down and failed; at the end the process and the devices are as they were.

python -m tests.faults.soak --cycles 10000 --failed 1000
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import json
import os
import random
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hipplan import _core
from hipplan.errors import ApplyError
from hipplan.language.loader import load
from hipplan.layout.options import Options
from hipplan.layout.prepare import prepare
from hipplan.layout.run import run
from hipplan.machines.runtimes import choose
from hipplan.program.program import Program
from tests.conftest import PLANS, Simulator
from tests.descriptors import descriptors
from tests.faults import generated
from tests.faults.harness import CODES

SEEDS = range(8)
WARM_UP = 25_000
"""Cycles and failed applies before the first reading: what the interpreter and the allocator keep is saturated then.
Python's table of interned names grows once more, by 0.9 MiB, after some 10,000 cycles of any plan."""
SLACK = {"resident_bytes": 1 << 20, "mappings": 4}
"""By how much these may differ at the end: what the allocator keeps. It does not grow with the number of cycles."""

M_ARENA_MAX = -8
"""A parameter of glibc's mallopt."""

_libc = ctypes.CDLL(None)


@dataclass(frozen=True)
class Reading:
    """What must not grow."""

    free_bytes: tuple[int, ...]
    """By device."""
    alive: int
    descriptors: int
    mappings: int
    """Lines of /proc/self/maps."""
    threads: int
    resident_bytes: int


def read(sim: Simulator) -> Reading:
    gc.collect()
    _libc.malloc_trim(0)
    ledger = sim.ledger()
    return Reading(
        free_bytes=tuple(device["free"] for device in ledger["devices"]),
        alive=len(sim.alive()),
        descriptors=descriptors(),
        mappings=len(Path("/proc/self/maps").read_text().splitlines()),
        threads=len(list(Path("/proc/self/task").iterdir())),
        resident_bytes=int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
    )


def soak(
    sim: Simulator, folder: Path, cycles: int, failed: int, seed: int = 0, warm_up: int = WARM_UP
) -> tuple[Reading, Reading, int]:
    """Readings before and after, and how many applies failed.

    cycles: applies that are torn down. failed: applies in which one call, chosen by `seed`, fails.
    """
    r = random.Random(seed)
    (folder / "data.bin").write_bytes(bytes(100_000))
    plans: list[Any] = [*PLANS, *(generated.plan(one, folder) for one in SEEDS)]
    programs = [prepare(load(plan), choose("sim"), None) for plan in plans]
    programs = [
        program for program in programs if all(step.call != "hipMemImportFromShareableHandle" for step in program.steps)
    ]
    bind = {"caller": bytearray(65536)}
    calls = [_calls(sim, program, bind) for program in programs]
    rolled_back = 0

    def fail() -> int:
        which = r.randrange(len(programs))
        sim.runtime.arm_faults(f"*@{r.randint(1, calls[which])}={r.choice(list(CODES))}")
        with contextlib.suppress(ApplyError):
            run(programs[which], sim.runtime, Options(bind=bind)).close()
            return 0
        return 1

    def cycle(number: int) -> None:
        run(programs[number % len(programs)], sim.runtime, Options(bind=bind)).close()

    sim.runtime.set_retry_pause(0)
    for number in range(warm_up):
        cycle(number)
        fail()
        sim.runtime.arm_faults("")
    before = read(sim)
    for number in range(cycles):
        cycle(number)
    while rolled_back < failed:
        rolled_back += fail()
    sim.runtime.arm_faults("")
    sim.runtime.set_retry_pause(1000)
    return before, read(sim), rolled_back


def _calls(sim: Simulator, program: Program, bind: Mapping[str, Any]) -> int:
    sim.runtime.arm_faults("*@1000000000=1")  # never comes, but counts
    layout = run(program, sim.runtime, Options(bind=bind))
    counted = sim.runtime.calls_counted()
    sim.runtime.arm_faults("")
    layout.close()
    return counted


def held(before: Reading, after: Reading) -> list[str]:
    """What differs, in words. A sanitizer keeps memory of its own."""
    slack = dict.fromkeys(SLACK, 1 << 62) if "HIPPLAN_SANITIZER" in os.environ else SLACK
    was, now = asdict(before), asdict(after)
    return [
        f"{name}: {was[name]} -> {now[name]}"
        for name in was
        if was[name] != now[name] and not (name in slack and abs(now[name] - was[name]) <= slack[name])
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=10_000)
    parser.add_argument("--failed", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    _libc.mallopt(M_ARENA_MAX, 1)  # or each new thread may open an arena, whose mappings stay
    sim = Simulator()
    with tempfile.TemporaryDirectory() as folder:
        before, after, failed = soak(sim, Path(folder), given.cycles, given.failed, given.seed)
    wrong = held(before, after)
    print(json.dumps({"cycles": given.cycles, "failed": failed, "seed": given.seed, "before": asdict(before),
                      "after": asdict(after), "differs": wrong, "leaks": _core.take_leaks()}))  # fmt: skip
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
