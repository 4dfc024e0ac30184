"""Maps addresses to positions in a picture: to scale, on one or several rows, with short holes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

HOLE_WIDTH = 46.0
"""The width of a hole (addresses without memory), whatever its size."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Addresses between two neighbouring edges."""

    size: int
    hole: bool = False


class Axis:
    """Positions on `rows` rows of `width`, one after the other."""

    def __init__(self, start: int, stretches: Sequence[Stretch], width: float, rows: int = 1) -> None:
        self.width = width
        self.rows = rows
        self._edges = [start, *accumulate((stretch.size for stretch in stretches), initial=start)][1:]
        self._places = [0.0, *accumulate(_widths(stretches, width * self.rows))]

    def place(self, address: int) -> float:
        """The position of an address, from the beginning of the first row."""
        number = bisect_right(self._edges, address) - 1
        if number >= len(self._places) - 1:
            return self._places[-1]
        low, high = self._edges[number], self._edges[number + 1]
        begin, end = self._places[number], self._places[number + 1]
        return begin + (end - begin) * (address - low) / (high - low)

    def address(self, place: float) -> int:
        """The address at a position."""
        number = min(bisect_right(self._places, place) - 1, len(self._edges) - 2)
        begin, end = self._places[number], self._places[number + 1]
        low, high = self._edges[number], self._edges[number + 1]
        return low + int((high - low) * (place - begin) / (end - begin)) if end > begin else low

    def parts(self, start: int, end: int) -> Iterator[tuple[int, float, float]]:
        """(row, left, width) of each part of a range: one, or one on each row that it is on."""
        begin, last = self.place(start), self.place(end)
        row = min(int(begin / self.width), self.rows - 1)
        while True:
            left = row * self.width
            stop = min(last, left + self.width)
            if stop - begin > 0.01 or stop == last:
                yield row, begin - left, stop - begin
            row += 1
            if stop >= last or row >= self.rows:
                return
            begin = stop


def _widths(stretches: Sequence[Stretch], room: float) -> list[float]:
    """The widths that fill the room: holes have a fixed width, the rest is proportional to bytes."""
    holes = sum(stretch.hole for stretch in stretches)
    hole = min(HOLE_WIDTH, room * 0.4 / holes) if holes else 0.0
    size = sum(stretch.size for stretch in stretches if not stretch.hole)
    scale = (room - hole * holes) / size if size else 0.0
    return [hole if stretch.hole else stretch.size * scale for stretch in stretches]
