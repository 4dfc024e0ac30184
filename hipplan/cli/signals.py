"""A signal ends the command at once, until a verb has objects to release and waits for signals with Interrupts.

The handler raises nothing: an exception in the middle of an import or of another library's callback may be swallowed
there, or come back as an error of the plan, as a bug of ours or as a panic of that library's.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType

CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_last_words: list[Callable[[int], None]] = []


def end_at_signals() -> None:
    """What was ignored when the command began stays so: nohup's SIGHUP, the SIGINT of a script's `command &`."""
    for number in CAUGHT:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


@contextlib.contextmanager
def at_end(call: Callable[[int], None]) -> Iterator[None]:
    """While entered, a signal that ends the command makes this call first, with the signal's number."""
    _last_words.append(call)
    try:
        yield
    finally:
        _last_words.remove(call)


def _end(number: int, frame: FrameType | None) -> None:
    for call in reversed(_last_words):
        with contextlib.suppress(Exception):
            call(number)
    os._exit(128 + number)
