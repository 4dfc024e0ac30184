"""Signals that wait until something is done that must not be cut short."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Sequence
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def signals_wait() -> Iterator[Sequence[int]]:
    """Python's handlers of ^C, SIGTERM and SIGHUP run at the end of the block, each once, as if they came then. Yields
    those that have come by now.

    Handlers run in the main thread alone, so in any other nothing is to be done.
    """
    if threading.current_thread() is not threading.main_thread():
        yield ()
        return
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    # One that is ignored stays so; one that was not set from Python cannot be put back.
    replaced = {number: handler for number, handler in before.items() if handler not in (signal.SIG_IGN, None)}
    try:
        for number in replaced:
            signal.signal(number, note)
        yield came
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)
        for heard in dict.fromkeys(came):
            signal.raise_signal(heard)
