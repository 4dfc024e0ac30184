"""Signals that end a holder, and what they wake."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
from collections.abc import Callable, Iterator
from types import FrameType


class EndSignals:
    """SIGINT, SIGTERM and SIGHUP, while they are caught."""

    def __init__(self, on_second: Callable[[], None]) -> None:
        """on_second: called for each signal after the first."""
        self.first = 0
        """The number of the first signal; 0 if none came."""
        self._on_second = on_second

    @contextlib.contextmanager
    def caught(self, selector: selectors.BaseSelector) -> Iterator[None]:
        """While entered, a signal is noted, and wakes the selector by a pipe."""
        read_end, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        old_handlers = {number: signal.signal(number, self._on_signal) for number in numbers}
        old_wakeup = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        selector.register(read_end, selectors.EVENT_READ, lambda: os.read(read_end, 4096))
        try:
            yield
        finally:
            signal.set_wakeup_fd(old_wakeup)
            for number, handler in old_handlers.items():
                signal.signal(number, handler)
            os.close(read_end)
            os.close(write_end)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.first:
            self._on_second()
        self.first = self.first or number
