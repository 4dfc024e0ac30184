"""A signal ends the command at once, until a verb has objects to release and waits for signals with Interrupts.

The handler raises nothing: an exception inside an import or another library's callback could be swallowed there, or
reappear as an error of the plan, a bug of hipplan or a panic of that library.
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
    """Signals that were ignored at the start stay ignored: nohup's SIGHUP, the SIGINT of a script's `command &`."""
    for number in CAUGHT:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


@contextlib.contextmanager
def at_end(call: Callable[[int], None]) -> Iterator[None]:
    """While entered, a signal that ends the command first makes this call with its number."""
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
