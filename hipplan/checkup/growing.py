"""Growth of a region by one chunk: by hipplan, and by the driver's calls alone."""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack, closing

from hipplan.checkup.driver import Driver, properties
from hipplan.checkup.question import MIB, Bench, Question, Seen
from hipplan.language.loader import load
from hipplan.layout.prepare import prepare
from hipplan.layout.run import run

CHUNK = 2 * MIB
ROUNDS = 9


def _grows(bench: Bench) -> Seen:
    """The median microseconds of one chunk more beside others; both sides take turns, and both are freed again."""
    chunks = max(min(bench.memory // 8 // CHUNK, 64), 2)
    size = chunks * CHUNK
    plan = {"hipplan": 1, "regions": {"r": {"size": size, "chunk": CHUNK, "reserve": size + CHUNK}}}
    took: dict[str, list[float]] = {"by hipplan": [], "by hand": []}
    with ExitStack() as alive:
        layout = alive.enter_context(closing(run(prepare(load(plan), bench.chosen, None), bench.chosen.runtime)))
        base = alive.enter_context(bench.driver.reservation(size + CHUNK))
        for number in range(chunks):
            alive.enter_context(_chunk(bench.driver, base + number * CHUNK))
        for number in range(ROUNDS + 1):
            began = time.perf_counter()
            layout.grow("r", by=CHUNK)
            grown = time.perf_counter()
            layout.shrink("r", by=CHUNK)
            hand_began = time.perf_counter()
            chunk = _chunk(bench.driver, base + size)
            hand_grown = time.perf_counter()
            chunk.close()
            if number:  # the first ones warm up
                took["by hipplan"].append((grown - began) * 1e6)
                took["by hand"].append((hand_grown - hand_began) * 1e6)
    return {"chunks": chunks, **{f"{who}, us": round(statistics.median(times), 1) for who, times in took.items()}}


def _chunk(driver: Driver, address: int) -> ExitStack:
    """One more chunk that device 0 may use, until the result is closed."""
    with ExitStack() as made:
        handle = made.enter_context(driver.allocation(CHUNK, properties()))
        made.enter_context(driver.mapping(address, CHUNK, handle))
        driver.must_grant(address, CHUNK, 0)
        return made.pop_all()


QUESTIONS = (Question("growth by a chunk", _grows, limit_s=60),)
