"""Calls that move bytes: threads make them, so their order differs from one time to the next."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

MOVES = re.compile(r"hipMem(cpy|set)\w*Async")
_AROUND = re.compile(r"hipMem(cpy|set)\w*|hipSetDevice|hipStream(Synchronize|WaitEvent)|hipEvent(Record|Synchronize)")


def spans(calls: Sequence[str]) -> Iterator[range]:
    """Where bytes are moved, in the names of an act's calls."""
    start = 0
    for number, call in enumerate([*calls, ""]):
        if _AROUND.fullmatch(call):
            continue
        if any(MOVES.fullmatch(moving) for moving in calls[start:number]):
            yield range(start, number)
        start = number + 1


def in_order(made: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """(call, line) of an act, where each span has its copies once, sorted: which thread made one, through which stream
    and which piece of pinned memory, is left to chance."""
    out: list[tuple[str, str]] = []
    done = 0
    for span in spans([call for call, _ in made]):
        out += made[done : span.start]
        out += sorted({(call, re.sub(r"stream=\w+", "stream=*", line)) for call, line in made[span.start : span.stop]})
        done = span.stop
    return [*out, *made[done:]]


def summed(calls: Sequence[str]) -> list[str]:
    """The names of calls, with one word for each span."""
    out: list[str] = []
    done = 0
    for span in spans([call.partition("->")[0] for call in calls]):
        out += [*calls[done : span.start], "moves bytes"]
        done = span.stop
    return [*out, *calls[done:]]


def is_of_threads(calls: Sequence[str], n: int) -> bool:
    """Whether threads decide which call the n-th is: it moves bytes, or comes after that and is of a kind they make."""
    first = next(iter(spans(calls)), None)
    if first is None or n < first.start:
        return False
    return bool(_AROUND.fullmatch(calls[n]))
