"""Counting work instead of seconds: how many Python functions an act calls, or instructions it takes, which no busy
machine changes.

python -m tests.python_calls 2 10000      what layout.grow() calls beside so many chunks, on the simulator
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NamedTuple

CHUNK = 2 << 20


class Calls(NamedTuple):
    """Of this thread."""

    python: int
    """Of functions written in Python; a generator counts each time that it goes on."""
    builtin: int
    """Of functions written in C."""


def calls_of(act: Callable[[], Any]) -> Calls:
    """What an act calls."""
    python = builtin = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal python, builtin
        python += event == "call"
        builtin += event == "c_call"

    with _collector_waits():
        before = sys.getprofile()
        sys.setprofile(count)
        try:
            act()
        finally:
            sys.setprofile(before)
    return Calls(python - 1, builtin - 1)  # without the call of the act, and that which ends the count


def instructions_of(act: Callable[[], Any]) -> int:
    """How many instructions of Python an act takes in this thread: also in loops that call nothing."""
    taken = 0

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal taken
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        taken += event == "opcode"
        return count

    with _collector_waits():
        before = sys.gettrace()
        sys.settrace(count)
        try:
            act()
        finally:
            sys.settrace(before)
    return taken


@contextlib.contextmanager
def _collector_waits() -> Iterator[None]:
    """The garbage collector, whose callbacks would count."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def of_growth(chunks: int) -> Calls:
    """Of the second growth by one chunk of a region of so many, on the simulator: the first one finds out more."""
    import hipplan

    size = chunks * CHUNK
    region = {"size": size, "chunk": CHUNK, "reserve": size + 2 * CHUNK}
    with hipplan.apply({"hipplan": 1, "regions": {"cache": region}}, runtime="sim", answer=False) as layout:
        layout.grow("cache", by=CHUNK)
        return calls_of(lambda: layout.grow("cache", by=CHUNK))


if __name__ == "__main__":
    for given in sys.argv[1:]:
        print(f"{given} chunks: {of_growth(int(given))}")
