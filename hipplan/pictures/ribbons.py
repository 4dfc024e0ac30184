"""Draws a ribbon: its name above it, then its tracks, on as many rows as it needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from hipplan.pictures.axis import HOLE_WIDTH, Axis, Stretch
from hipplan.pictures.families import EVERYTHING, Bracket, NamedBox, brackets
from hipplan.pictures.looks import MIXED
from hipplan.pictures.scene import Box, Chip, Ribbon
from hipplan.pictures.svg import Canvas, fitting, narrow, offset, shortened, wide, words
from hipplan.units import full_size, short_size

GUTTER = 78.0
_HEAD = 22.0
_HEIGHTS = {"memory": 22.0, "tensors": 20.0, "advice": 14.0, "access": 10.0}
_LOW = 9.0
"""The height of memory on many rows: the tensors below it are more interesting."""
_BETWEEN = 2.0
_AFTER_ROW = 10.0
_ROWS_MAX = 24
_WIDE_ENOUGH = 14.0
"""The width of a box: there are enough rows for most boxes to be at least so wide."""
_AFTER = 12.0
_SMALL = 9.5
_BRACKET = 18.0
_UNSEEN = 14.0
"""The height of the line that names what is too small for a label."""
_LABELLED = 14.0
"""A box without a label is narrower, or its name is longer."""
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
        self._axis = Axis(0, stretches, self._room, _rows(ribbon, self._room))
        self._tops: list[float] = []
        at = 0.0
        self._heights = dict(_HEIGHTS)
        if self._axis.rows > 1 and any(track.kind == "tensors" for track in ribbon.tracks):
            self._heights["memory"] = _LOW
        for track in ribbon.tracks:
            self._tops.append(at)
            at += self._heights[track.kind] + _BETWEEN
        self._named = [*self._named_boxes()]
        brackets_here = brackets(self._named, self._width_of)
        self._brackets = [bracket for bracket in brackets_here if ribbon.has_addresses or bracket.pattern != EVERYTHING]
        self._bracket_top = at
        at += _BRACKET * bool(self._brackets)
        self._row_height = at - _BETWEEN + _AFTER_ROW
        self._unseen = "" if ribbon.has_addresses else self._too_small()
        head = wide(f"{ribbon.name}  {ribbon.kind}  {ribbon.facts}", 12)
        self._chips_below = bool(ribbon.chips) and head + sum(map(_chip_width, ribbon.chips)) > width
        self._head = _HEAD + 18 * self._chips_below

    @property
    def height(self) -> float:
        return self._head + self._axis.rows * self._row_height + _UNSEEN * bool(self._unseen) + _AFTER

    def draw(self, canvas: Canvas, left: float, top: float) -> None:
        self._draw_head(canvas, left, top)
        x, y = left + GUTTER, top + self._head
        self._draw_gutter(canvas, left, y)
        for start, end in self._holes:
            self._draw_hole(canvas, start, end, x, y)
        for track, at in zip(self.ribbon.tracks, self._tops, strict=True):
            self._draw_track(canvas, track.boxes, track.kind, x, y + at)
        for bracket in self._brackets:
            self._draw_bracket(canvas, bracket, x, y + self._bracket_top)
        if self._unseen:
            below = y + self._axis.rows * self._row_height + 4
            canvas.text(x, below, shortened(self._unseen, self._room, _SMALL), "small dim")

    def _named_boxes(self) -> Iterator[NamedBox]:
        """The boxes that have names of their own: of tensors, or of memory that an object of the plan names."""
        kinds = {track.kind: track for track in self.ribbon.tracks}
        track = kinds.get("tensors", kinds["memory"])
        suffix = _common_end([box.label for box in track.boxes]) if track.kind == "tensors" else ""
        for box in track.boxes:
            name, is_own, _ = box.label.partition(" · ")
            if box.label and (is_own or track.kind == "tensors"):
                width = max(part for _, _, part in self._axis.parts(box.start, box.end))
                label = self._label(box.label.removesuffix(suffix), width, track.kind)
                name = name.removesuffix(suffix)
                yield NamedBox(box.start, box.end, name, label.startswith(name) and bool(label))

    def _width_of(self, start: int, end: int) -> float:
        return self._axis.place(end) - self._axis.place(start)

    def _label(self, label: str, width: float, kind: str) -> str:
        """What a box of this width says."""
        if width <= _LABELLED or kind == "access" or self._heights[kind] <= _LOW:
            return ""
        return fitting(_choices(label), width - 4, 10)

    def _too_small(self) -> str:
        """Names what is so small that nothing tells which box it is."""
        wide_enough = [bracket for bracket in self._brackets
                       if self._width_of(bracket.start, bracket.end) > _LABELLED]  # fmt: skip
        small = [box for box in self._named if not box.is_labelled and
                 not any(bracket.start <= box.start and box.end <= bracket.end for bracket in wide_enough)]  # fmt: skip
        return f"without a label: {', '.join(box.name for box in small)}" if small else ""

    def _draw_bracket(self, canvas: Canvas, bracket: Bracket, x: float, y: float) -> None:
        title = f"{bracket.pattern}\n{bracket.count} of one family, at {offset(bracket.start)}"
        for row, left, width in self._axis.parts(bracket.start, bracket.end):
            top = y + row * self._row_height
            begin, end = x + left + min(1, width / 4), x + left + width - min(1, width / 4)
            canvas.line("bracket", [(begin, top), (begin, top + 4), (end, top + 4), (end, top)], title)
            if text := fitting(bracket.choices(), width - 2, _SMALL):
                canvas.text((begin + end) / 2, top + 14, text, "small dim mid")

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
                    name = "+" + (short_size(at_row) if at_row else "0")
                if name and (row == 0 or track.kind != "tensors"):
                    middle = y + at + self._heights[track.kind] / 2 + 3.5
                    shown = fitting([name, name[-12:]], GUTTER - 8, _SMALL)
                    canvas.text(left + GUTTER - 8, middle, shown, "small dim", right)

    def _draw_hole(self, canvas: Canvas, start: int, end: int, x: float, y: float) -> None:
        """Draw a break in the ribbon, labelled with the size of the hole."""
        title = f"addresses only: {full_size(end - start)}\nnothing is mapped at {offset(start)}"
        height = self._heights["memory"]
        for row, left, width in self._axis.parts(start, end):
            top = y + row * self._row_height
            canvas.box("hole", [(x + left, top, width, height)], title)
            if width > HOLE_WIDTH * 0.9:
                size = fitting([short_size(end - start)], width - 2, _SMALL)
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
            look = narrow(widest[0]) if kind == "tensors" or widest[0] < 2 else ""
            canvas.box(f"{box.look} {look}".rstrip(), places, box.title)
            if text := self._label(box.label.removesuffix(suffix), widest[0], kind):
                labels.append((widest[1] + widest[0] / 2, widest[2] + height / 2 + 3.5, text))
        for middle, base, text in labels:
            canvas.text(middle, base, text, "label")


def _rows(ribbon: Ribbon, room: float) -> int:
    if ribbon.flat:
        return 1
    boxes = (box for track in ribbon.tracks if track.kind in ("memory", "tensors") for box in track.boxes)
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
    for track in ribbon.tracks:
        for box in track.boxes:
            if track.kind == "memory":
                mapped[box.start] = mapped.get(box.start, 0) + 1
                mapped[box.end] = mapped.get(box.end, 0) - 1
    edges = sorted({0, ribbon.size, *mapped})
    depth = 0
    for start, end in pairwise(edges):
        depth += mapped.get(start, 0)
        yield Stretch(end - start, hole=depth == 0)


def _holes(stretches: Sequence[Stretch]) -> list[tuple[int, int]]:
    positions, at = [], 0
    for stretch in stretches:
        if stretch.hole:
            positions.append((at, at + stretch.size))
        at += stretch.size
    return positions
