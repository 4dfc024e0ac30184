"""Handles ^C, SIGTERM and SIGHUP between steps, not inside them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

from typing_extensions import Self

from hipplan.cli.signals import CAUGHT
from hipplan.cli.streams import has_reader, output_pipe

if TYPE_CHECKING:
    from hipplan.processes.listener import Caller, Listener


class Interrupted(Exception):
    """A signal asks the command to stop."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.Signals(number).name)

    @property
    def exit_code(self) -> int:
        """128 + the signal's number, as in shells."""
        return 128 + self.number


class Interrupts:
    """While entered, signals are noted and answered with a line of text. They raise nothing; check() raises,
    wait() sleeps until one comes.

    undoing: returns the answer while objects are being freed, else an empty text (answer_interrupt of layout.undo).
    answer: at other times; empty: no line of text.
    """

    def __init__(
        self, undoing: Callable[[], str], answer: str = "stopping when the current driver call returns"
    ) -> None:
        self.number = 0
        """The first signal; 0 if none has come."""
        self.count = 0
        """How many have come."""
        self._undoing = undoing
        self._answer = answer
        self._waiting = False

    def __enter__(self) -> Self:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # Written by C code from whichever thread the signal reaches: no signal falls between test and sleep.
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        # Signals that were ignored at the start stay ignored: nohup's SIGHUP, the SIGINT of a script's `command &`.
        caught = [number for number in CAUGHT if signal.getsignal(number) is not signal.SIG_IGN]
        self._previous = {number: signal.signal(number, self._note) for number in caught}
        return self

    def __exit__(self, *raised: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._read)
        os.close(self._write)

    def end_with(self, code: int) -> None:
        """A signal ends the command at once from now on, also after the exit from here, with this exit code: what the
        command was asked for is done."""
        for number in self._previous:
            signal.signal(number, lambda *_: os._exit(code))
        self._previous = {}

    def check(self) -> None:
        """Raises Interrupted if a signal has come."""
        if self.number:
            raise Interrupted(self.number)

    def wait(self, listener: Listener[Caller] | None) -> int:
        """Sleep until a signal comes, and return its number; 0 if the reader of standard output goes. The listener
        serves its callers meanwhile."""
        from hipplan.processes.listener import serve_until

        self._waiting = True
        while not self.number and has_reader():
            serve_until(self._read, listener, output_pipe())
            with contextlib.suppress(BlockingIOError):
                os.read(self._read, 4096)
        self._waiting = False
        return self.number

    def wait_until_readable(self, descriptor: int) -> None:
        """Sleep until a signal comes or a descriptor is readable."""
        import select

        ready = select.poll()
        for end in (self._read, descriptor):
            ready.register(end, select.POLLIN)
        self._waiting = True
        ready.poll()
        self._waiting = False
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 4096)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.number, self.count = self.number or number, self.count + 1
        answer = self._undoing() or ("" if self._waiting else self._answer)
        if answer:
            # Not print(), which the signal may have interrupted.
            with contextlib.suppress(OSError):  # after SIGHUP the terminal is closed
                os.write(2, f"{signal.Signals(number).name}: {answer}\n".encode())
