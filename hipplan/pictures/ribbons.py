"""Draws a ribbon: its name above it, then its tracks, on as many rows as it needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from hipplan.pictures.axis import HOLE_WIDTH, Axis, Stretch
from hipplan.pictures.looks import MIXED
from hipplan.pictures.scene import Box, Chip, Ribbon
from hipplan.pictures.svg import Canvas, fitting, offset, shortened, wide, words
from hipplan.units import about_size, format_size

GUTTER = 78.0
_HEAD = 22.0
_HEIGHTS = {"memory": 22.0, "tensors": 20.0, "access": 10.0}
_LOW = 9.0
"""The height of memory on many rows: the tensors below it are more interesting."""
_BETWEEN = 2.0
_AFTER_ROW = 10.0
_ROWS_MAX = 24
_WIDE_ENOUGH = 14.0
"""The width of a box: there are enough rows for most boxes to be at least so wide."""
_AFTER = 12.0
_SMALL = 9.5
_LEAST_OF_FEW, _LEAST_OF_BUFFERS = 26.0, 90.0
_NARROW = 6.0
_THIN = 2.4
"""The height of the right r in a track for access."""


class PlacedRibbon:
    """A ribbon with its height."""

    def __init__(self, ribbon: Ribbon, width: float) -> None:
        self.ribbon = ribbon
        self._width = width
        self._room = width - GUTTER
        stretches = [*_stretches(ribbon)]
        self._holes = _holes(stretches)
        least = _LEAST_OF_FEW if ribbon.has_addresses else _LEAST_OF_BUFFERS
        self._axis = Axis(0, stretches, self._room, _rows(ribbon, self._room), least)
        self._tops: list[float] = []
        at = 0.0
        self._heights = dict(_HEIGHTS)
        if self._axis.rows > 1 and any(track.kind == "tensors" for track in ribbon.tracks):
            self._heights["memory"] = _LOW
        for track in ribbon.tracks:
            self._tops.append(at)
            at += self._heights[track.kind] + _BETWEEN
        self._row_height = at - _BETWEEN + _AFTER_ROW
        head = wide(f"{ribbon.name}  {ribbon.kind}  {ribbon.facts}", 12)
        self._chips_below = bool(ribbon.chips) and head + sum(map(_chip_width, ribbon.chips)) > width
        self._head = _HEAD + 18 * self._chips_below

    @property
    def height(self) -> float:
        return self._head + self._axis.rows * self._row_height + _AFTER

    def draw(self, canvas: Canvas, left: float, top: float) -> None:
        self._draw_head(canvas, left, top)
        x, y = left + GUTTER, top + self._head
        self._draw_gutter(canvas, left, y)
        for start, end in self._holes:
            self._draw_hole(canvas, start, end, x, y)
        for track, at in zip(self.ribbon.tracks, self._tops, strict=True):
            self._draw_track(canvas, track.boxes, track.kind, x, y + at)

    def _draw_head(self, canvas: Canvas, left: float, top: float) -> None:
        ribbon = self.ribbon
        line = f'<tspan class="name">{words(ribbon.name)}</tspan>'
        line += f'<tspan dx="8" class="kind">{ribbon.kind}</tspan>' * bool(ribbon.kind)
        room = self._width - wide(f"{ribbon.name}  {ribbon.kind}  ", 12)
        line += f'<tspan dx="8" class="dim">{words(shortened(ribbon.facts, room))}</tspan>'
        canvas.raw(f'<text x="{left:g}" y="{top + 14:g}">{line}</text>')
        x = left + self._width
        y = top + 1 + 18 * self._chips_below
        for chip in reversed(ribbon.chips):
            width = min(_chip_width(chip), self._width)
            x -= width
            canvas.rounded(f"chip {chip.look}", x, y, width - 6, 16, chip.title or chip.text, radius=8)
            shown = shortened(chip.text, width - 12, _SMALL + 0.5)
            canvas.text(x + (width - 6) / 2, y + 11.5, shown, "chiptext")

    def _draw_gutter(self, canvas: Canvas, left: float, top: float) -> None:
        right = ' text-anchor="end"'
        for row in range(self._axis.rows):
            y = top + row * self._row_height
            for track, at in zip(self.ribbon.tracks, self._tops, strict=True):
                name = track.name
                if track.kind == "memory" and self.ribbon.has_addresses and not name:
                    at_row = self._axis.address(row * self._room)
                    name = "+" + (about_size(at_row).removeprefix("about ") if at_row else "0")
                if name and (row == 0 or track.kind != "tensors"):
                    middle = y + at + self._heights[track.kind] / 2 + 3.5
                    shown = fitting([name, name[-12:]], GUTTER - 8, _SMALL)
                    canvas.text(left + GUTTER - 8, middle, shown, "small dim", right)

    def _draw_hole(self, canvas: Canvas, start: int, end: int, x: float, y: float) -> None:
        """Draw a break in the ribbon, labelled with the size of the hole."""
        title = f"addresses only: {format_size(end - start)}\nnothing is mapped at {offset(start)}"
        height = self._heights["memory"]
        for row, left, width in self._axis.parts(start, end):
            top = y + row * self._row_height
            canvas.box("hole", [(x + left, top, width, height)], title)
            if width > HOLE_WIDTH * 0.9:
                size = fitting([about_size(end - start).removeprefix("about ")], width - 2, _SMALL)
                canvas.text(x + left + width / 2, top + height / 2 + 3.5, size, "small dim mid")

    def _draw_track(self, canvas: Canvas, boxes: Sequence[Box], kind: str, x: float, y: float) -> None:
        height = self._heights[kind]
        labels: list[tuple[float, float, str]] = []
        suffix = _common_end([box.label for box in boxes]) if kind == "tensors" else ""
        for box in boxes:
            places = []
            widest = (0.0, 0.0, 0.0)
            for row, left, width in self._axis.parts(box.start, box.end):
                top = y + row * self._row_height
                h = height
                if box.look.endswith(" r"):
                    top, h = top + (height - _THIN) / 2, _THIN
                elif kind == "access" or box.look == "padding":
                    top, h = top + 1, height - 2
                places.append((x + left, top, width, h))
                widest = max(widest, (width, x + left, top))
            narrow = kind == "tensors" and widest[0] < _NARROW
            canvas.box(f"{box.look} n" if narrow else box.look, places, box.title)
            if widest[0] > 14 and kind != "access" and height > _LOW:
                labels.append((widest[1] + widest[0] / 2, widest[2] + height / 2 + 3.5,
                               fitting(_choices(box.label.removesuffix(suffix)), widest[0] - 4, 10)))  # fmt: skip
        for middle, base, text in labels:
            if text:
                canvas.text(middle, base, text, "label")


def _rows(ribbon: Ribbon, room: float) -> int:
    if ribbon.flat:
        return 1
    boxes = (box for track in ribbon.tracks if track.kind != "access" for box in track.boxes)
    alone = sum(not box.look.startswith(MIXED) and box.look != "padding" for box in boxes)
    return max(1, min(_ROWS_MAX, round(alone * _WIDE_ENOUGH / room)))


def _choices(label: str) -> Iterator[str]:
    """The whole label, then shorter and shorter forms of it, but not digits alone."""
    yield label
    owner = label.partition(" · ")[0]
    yield owner
    parts = owner.split(".")
    for number in range(1, len(parts)):
        rest = ".".join(parts[number:])
        if any(map(str.isalpha, rest)):
            yield from ("…" + rest, rest)


def _common_end(labels: Sequence[str]) -> str:
    """The last part of the names, as .weight, if most of them have it."""
    ends = Counter(label.rpartition(".")[2] for label in labels if "." in label)
    end, count = ends.most_common(1)[0] if ends else ("", 0)
    return f".{end}" if count > len(labels) * 0.6 and len(labels) > 4 and not end.isdecimal() else ""


def _chip_width(chip: Chip) -> float:
    return wide(chip.text, _SMALL + 0.5) + 20


def _stretches(ribbon: Ribbon) -> Iterator[Stretch]:
    """The stretches from the ribbon's start to its end, between neighbouring edges of its boxes."""
    mapped: dict[int, int] = {}
    fine: dict[int, int] = {}
    kinds = {track.kind for track in ribbon.tracks}
    for track in ribbon.tracks:
        for box in track.boxes:
            if track.kind == "memory":
                mapped[box.start] = mapped.get(box.start, 0) + 1
                mapped[box.end] = mapped.get(box.end, 0) - 1
            if track.kind == "tensors" or (track.kind == "memory" and "tensors" not in kinds):
                fine[box.start] = fine.get(box.start, 0) + 1
                fine[box.end] = fine.get(box.end, 0) - 1
    edges = sorted({0, ribbon.size, *mapped, *fine})
    depth = seen = 0
    for start, end in pairwise(edges):
        depth += mapped.get(start, 0)
        seen += fine.get(start, 0)
        yield Stretch(end - start, hole=depth == 0, seen=seen > 0)


def _holes(stretches: Sequence[Stretch]) -> list[tuple[int, int]]:
    positions, at = [], 0
    for stretch in stretches:
        if stretch.hole:
            positions.append((at, at + stretch.size))
        at += stretch.size
    return positions
