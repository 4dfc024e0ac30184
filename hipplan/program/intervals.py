"""Sets of bytes, as disjoint ranges in order."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator


class Intervals:
    """The union of ranges (start, end) of bytes."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted(ranges):
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(end, self._ends[-1])
            else:
                self._starts.append(start)
                self._ends.append(end)

    def within(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The part of the set between two places."""
        for number in range(bisect_right(self._ends, start), len(self._starts)):
            if self._starts[number] >= end:
                return
            yield max(start, self._starts[number]), min(end, self._ends[number])

    def size_within(self, start: int, end: int) -> int:
        """How many bytes of the set are between two places."""
        return sum(upper - lower for lower, upper in self.within(start, end))

    def without(self, other: Intervals) -> Intervals:
        """The bytes of this set that another one does not have."""
        return Intervals(part for start, end in zip(self._starts, self._ends, strict=True)
                         for part in other.gaps(start, end))  # fmt: skip

    def gaps(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The ranges between two places that are not in the set."""
        at = start
        for lower, upper in self.within(start, end):
            if at < lower:
                yield at, lower
            at = upper
        if at < end:
            yield at, end
