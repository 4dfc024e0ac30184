"""What must happen while a driver call is under way: the call waits for it, however busy the machine is."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.conftest import Simulator

LONG_S = 60
"""After this a test has failed; nothing that is right takes so long."""


def wait_until(reached: Callable[[], object], what: str) -> None:
    end = time.monotonic() + LONG_S
    while not reached():
        assert time.monotonic() < end, f"waited for {what}"
        time.sleep(0.002)


class Pause:
    """One driver call ("hipMemMap@1") that waits until it is released. `rule` is what the interceptor is given."""

    def __init__(self, folder: Path, call: str) -> None:
        self.call = call
        self.fifo = folder / call.replace("*", "any")
        os.mkfifo(self.fifo)
        # As long as it is short, native code goes on with the next one before it looks for signals.
        self.rule = f"{call}=pause:{self.fifo}; {call}=delay:20"

    @contextlib.contextmanager
    def under_way(self) -> Iterator[None]:
        """Begins when the call does; the call goes on at the end."""
        wait_until(self._opened, self.call)
        try:
            yield
        finally:
            os.close(self._descriptor)

    def _opened(self) -> bool:
        try:
            self._descriptor = os.open(self.fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            assert error.errno == errno.ENXIO  # no process reads it yet
            return False
        return True


@contextlib.contextmanager
def during(sim: Simulator, folder: Path, call: str, act: Callable[[], object], more: str = "") -> Iterator[None]:
    """While the body makes the call, another thread acts; then the call goes on. more: further rules for faults."""
    gc.collect()  # a layout that an earlier test dropped would make the call in the place of the body
    pause = Pause(folder, call)
    sim.runtime.arm_faults(f"{pause.rule}; {more}")
    wrong: list[BaseException] = []

    def work() -> None:
        try:
            with pause.under_way():
                act()
        except BaseException as error:
            wrong.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        sim.runtime.arm_faults("")
    assert wrong == []


def interrupt(number: int = signal.SIGINT) -> None:
    """A signal for this process: its main thread has it before it runs on."""
    os.kill(os.getpid(), number)


def alarm() -> None:
    interrupt(signal.SIGALRM)
