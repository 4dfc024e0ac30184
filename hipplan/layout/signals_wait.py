"""Delays signals during work that must not be interrupted."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

_END = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
"""Signals that end a process which does not handle them."""
# Python 3.10 has no name for signal 16, which it counts as valid.
_NAMED = {number for number in signal.valid_signals() if isinstance(number, signal.Signals)}
_SIGNALS = {number for number in _NAMED if number < signal.SIGRTMIN} - {signal.SIGKILL, signal.SIGSTOP}


@contextlib.contextmanager
def signals_wait() -> Iterator[Callable[[], None]]:
    """Delays Python's signal handlers to the end of the block, where each runs once. The yielded function runs them
    earlier, and raises what they raise.

    Handlers only run in the main thread, so in other threads this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    came: dict[signal.Signals, None] = {}

    def note(number: int, frame: FrameType | None) -> None:
        came[signal.Signals(number)] = None

    def deliver() -> None:
        while came:
            number = next(iter(came))
            del came[number]
            handler = before[number]
            if not callable(handler):  # SIG_DFL, which ends the process: what is under way ends first
                came[number] = None
                raise InterruptedError(number.name)
            handler(number, None)

    before = {number: handler for number in _SIGNALS if _is_held(number, handler := signal.getsignal(number))}
    try:
        for number in before:
            signal.signal(number, note)
        yield deliver
    finally:
        _restore([*before.items()])
        for number in came:
            signal.raise_signal(number)


def _restore(handlers: list[tuple[signal.Signals, Any]]) -> None:
    """Restores all handlers, even if a restored one raises at once.

    Not with an ExitStack: its frame and an exception would form a cycle, which would keep the layout's memory.
    """
    if handlers:
        number, handler = handlers.pop()
        try:
            signal.signal(number, handler)
        finally:
            _restore(handlers)


def _is_held(number: signal.Signals, handler: object) -> bool:
    """Whether a signal is delayed: not an ignored one, nor one set outside of Python, which cannot be restored."""
    return callable(handler) or (handler is signal.SIG_DFL and number in _END)
