"""Which of several values the bytes of a buffer had last."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Latest(Generic[Value]):
    """The latest value of each range of bytes that has one."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._values: list[Value] = []

    def __iter__(self) -> Iterator[tuple[int, int, Value]]:
        """(start, end, value) of each range, in order."""
        return zip(self._starts, self._ends, self._values, strict=True)

    def set(self, start: int, end: int, value: Value) -> list[tuple[int, int, Value]]:
        """Gives a range a value. Returns what it had before, as ranges in order."""
        first, behind = bisect_right(self._ends, start), bisect_left(self._starts, end)
        had = [*zip(self._starts[first:behind], self._ends[first:behind], self._values[first:behind], strict=True)]
        now = [(start, end, value)]
        if had and had[0][0] < start:
            now.insert(0, (had[0][0], start, had[0][2]))
        if had and had[-1][1] > end:
            now.append((end, had[-1][1], had[-1][2]))
        self._starts[first:behind] = [lower for lower, _, _ in now]
        self._ends[first:behind] = [upper for _, upper, _ in now]
        self._values[first:behind] = [of for _, _, of in now]
        return [(max(start, lower), min(end, upper), before) for lower, upper, before in had]
