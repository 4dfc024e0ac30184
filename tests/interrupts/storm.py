"""Applies a plan again and again while signals raise KeyboardInterrupt. Prints rounds, interrupts, objects left."""

from __future__ import annotations

import gc
import logging
import signal
import sys
import time
from pathlib import Path
from types import FrameType

sys.path.insert(0, str(Path(__file__).parents[2]))

from hipplan.language.loader import load
from hipplan.layout.prepare import prepare
from hipplan.layout.run import run
from hipplan.layout.undo import free_waiting
from hipplan.machines.runtimes import choose
from tests.conftest import PLANS, Simulator

PACKAGE = str(Path(__file__).parents[2] / "hipplan")
MOST = 20
"""Interrupts in a round. On a busy machine they could come faster than what they fall into goes on."""

heard = 0


def interrupt(number: int, frame: FrameType | None) -> None:
    """Only into hipplan and what it calls: this file is not made for it."""
    global heard
    heard += 1
    if heard == MOST:
        signal.setitimer(signal.ITIMER_REAL, 0)
    while frame is not None:
        if frame.f_code.co_filename.startswith(PACKAGE):
            raise KeyboardInterrupt
        frame = frame.f_back


def main(rounds: int) -> None:
    global heard
    logging.disable(logging.CRITICAL)
    sim = Simulator()
    program = prepare(load(next(path for path in PLANS if path.stem == "quickstart")), choose("sim"), None)
    one_s = 1.0
    for _ in range(5):  # the quickest: the first is cold, and others may have the processors
        began = time.perf_counter()
        run(program, sim.runtime).close()
        one_s = min(one_s, time.perf_counter() - began)
    signal.signal(signal.SIGALRM, interrupt)
    interrupted = left = 0
    for n in range(rounds):
        heard = 0
        try:
            signal.setitimer(signal.ITIMER_REAL, max(1e-6, one_s * (n % 100) / 50), one_s / 3)
            with run(program, sim.runtime):
                pass
        except KeyboardInterrupt:
            interrupted += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        late = time.perf_counter() + 100  # who interrupts a wait twice within microseconds does not wait to its end
        while sim.alive() and time.perf_counter() < late:
            gc.collect()
            free_waiting()  # as the next apply does
        left += len(sim.alive())
    print(rounds, interrupted, left)


main(int(sys.argv[1]))
