"""Signals that wait until something is done that must not be cut short."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

_END = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
"""Those that end a process which does not handle them."""
_SIGNALS = {signal.Signals(number) for number in signal.valid_signals() if number < signal.SIGRTMIN} - {
    signal.SIGKILL,
    signal.SIGSTOP,
}


@contextlib.contextmanager
def signals_wait() -> Iterator[Callable[[], None]]:
    """Python's handlers of signals run at the end of the block, each once, as if they came then; or when what is
    yielded is called, which raises what they raise.

    Handlers run in the main thread alone, so in any other nothing is to be done.
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
        _put_back([*before.items()])
        for number in came:
            signal.raise_signal(number)


def _put_back(handlers: list[tuple[signal.Signals, Any]]) -> None:
    """Each, also where one that is put back raises at once.

    Not by an ExitStack: its frame and what a call raises make a circle, which would hold the layout's memory.
    """
    if handlers:
        number, handler = handlers.pop()
        try:
            signal.signal(number, handler)
        finally:
            _put_back(handlers)


def _is_held(number: signal.Signals, handler: object) -> bool:
    """One that is ignored stays so; one that was not set from Python cannot be put back."""
    return callable(handler) or (handler is signal.SIG_DFL and number in _END)
