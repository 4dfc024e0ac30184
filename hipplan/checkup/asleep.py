"""Sleep and wake of a region by hipplan: does the memory come back, and do its bytes."""

from __future__ import annotations

import time
from contextlib import closing

from hipplan.checkup.question import MIB, Bench, Question, Seen
from hipplan.language.loader import load
from hipplan.layout.prepare import prepare
from hipplan.layout.run import run

CHUNK = 64 * MIB


def _sleeps(bench: Bench) -> Seen:
    """A quarter of the memory asleep on the host, then awake again."""
    runtime, size = bench.chosen.runtime, max(bench.memory // 4 // CHUNK, 1) * CHUNK
    plan = {"hipplan": 1, "regions": {"r": {"size": size, "chunk": CHUNK}}}
    with closing(run(prepare(load(plan), bench.chosen, None), runtime)) as layout:
        address = layout["r"].address
        runtime.fill(address, 0xA5, size)
        runtime.synchronize(0)
        awake = runtime.memory_info(0)[0]
        began = time.perf_counter()
        layout.sleep()
        slept = time.perf_counter()
        seen = Seen(MiB=size // MIB, freed=round((runtime.memory_info(0)[0] - awake) / MIB))
        woken_from = time.perf_counter()
        layout.wake()
        seen["sleep, ms"] = round((slept - began) * 1e3, 1)
        seen["wake, ms"] = round((time.perf_counter() - woken_from) * 1e3, 1)
        seen["address"] = "same" if layout["r"].address == address else "another"
        wrong = [at for at in range(0, size, CHUNK) if runtime.read(address + at, CHUNK) != b"\xa5" * CHUNK]
        seen["bytes"] = "wrong" if wrong else "right"
        return seen


QUESTIONS = (Question("sleep and wake", _sleeps, lambda _: {"address": "same", "bytes": "right"}, limit_s=60),)
