"""^C, SIGTERM and SIGHUP as something that happens between steps, not inside them."""

from __future__ import annotations

import os
import select
import signal
import sys
from types import FrameType, TracebackType

from typing_extensions import Self

CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """A signal asked us to stop."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.Signals(number).name)

    @property
    def exit_code(self) -> int:
        """128 + the signal, as shells have it."""
        return 128 + self.number


class Interrupts:
    """While entered, the caught signals are only noted; check() raises, wait() sleeps until one comes."""

    def __init__(self) -> None:
        self.number = 0
        self._busy = ""

    def __enter__(self) -> Self:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # Written by C code from whichever thread the signal reaches: no signal falls between test and sleep.
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._previous = {number: signal.signal(number, self._note) for number in CAUGHT}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._read)
        os.close(self._write)

    def check(self) -> None:
        """Raises Interrupted if a signal has come."""
        if self.number:
            raise Interrupted(self.number)

    def wait(self) -> int:
        """Sleeps until a signal comes; its number."""
        while not self.number:
            select.select([self._read], [], [])
            os.read(self._read, 4096)
        return self.number

    def undoing(self, what: str) -> None:
        """From here on a signal is answered with what is going on; nothing is abandoned."""
        self._busy = what

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.number and self._busy:
            print(f"still {self._busy}: please wait, stopping now would lose memory", file=sys.stderr)
        self.number = self.number or number
