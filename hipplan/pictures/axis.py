"""Maps addresses to positions in a picture: on one or several rows, with short holes and no invisible boxes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

HOLE_WIDTH = 46.0
"""The width of a hole (addresses without memory), whatever its size."""
_LEAST, _LEAST_OF_FEW = 2.5, 26.0
"""The minimum width of a box: if there are many, and if there are few."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Addresses between two neighbouring edges."""

    size: int
    hole: bool = False
    seen: bool = True
    """It has its own box, which must stay visible."""


class Axis:
    """Positions on `rows` rows of `width`, one after the other."""

    def __init__(
        self,
        start: int,
        stretches: Sequence[Stretch],
        width: float,
        rows: int = 1,
        least_of_few: float = _LEAST_OF_FEW,
    ) -> None:
        """least_of_few: the minimum width of a box if there is enough room."""
        self.width = width
        self.rows = rows
        self._edges = [start, *accumulate((stretch.size for stretch in stretches), initial=start)][1:]
        self._places = [0.0, *accumulate(_widths(stretches, width * self.rows, least_of_few))]

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


def _widths(stretches: Sequence[Stretch], room: float, least_of_few: float) -> list[float]:
    """The widths that fill the room: holes have a fixed width, the rest is proportional to bytes, with a minimum."""
    holes = sum(stretch.hole for stretch in stretches)
    hole = min(HOLE_WIDTH, room * 0.4 / holes) if holes else 0.0
    left = room - hole * holes
    seen = sum(stretch.seen and not stretch.hole for stretch in stretches)
    fair = left / seen if seen else 0.0
    least = min(max(min(_LEAST, fair * 0.8), fair * 0.6), least_of_few)
    narrow: set[int] = set()
    while True:
        wide = sum(stretch.size for n, stretch in enumerate(stretches) if not stretch.hole and n not in narrow)
        scale = (left - least * len(narrow)) / wide if wide else 0.0
        more = {n for n, stretch in enumerate(stretches)
                if stretch.seen and not stretch.hole and n not in narrow and stretch.size * scale < least}  # fmt: skip
        if not more:
            break
        narrow |= more
    return [
        hole if stretch.hole else least if n in narrow else stretch.size * scale for n, stretch in enumerate(stretches)
    ]
