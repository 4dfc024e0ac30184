"""Draws the machine: the host, devices as boxes with a gauge, NUMA nodes around them, and links."""

from __future__ import annotations

from itertools import groupby

from hipplan.pictures.axis import Axis, Stretch
from hipplan.pictures.hardware import gauge
from hipplan.pictures.scene import Column, Device, Wire
from hipplan.pictures.svg import Canvas, fitting, narrow, shortened

_IN_A_ROW = 8
_DEVICE_HEIGHT = 66.0
_HOST_HEIGHT = 40.0
_TRACK = 15.0
_PAD = 10.0
_SMALL = 9.5
_TRACKS_MAX, _WORDS_MAX = 12, 4
"""Links between devices: at most so many tracks of lines, else at most so many lines of text."""
_NODE_HEAD = 18.0


class PlacedMachine:
    """The devices of a column, with their height in the picture."""

    def __init__(self, column: Column, width: float) -> None:
        self._column = column
        self._width = width
        devices = column.devices
        self._in_a_row = max(1, min(_IN_A_ROW, len(devices), int(width // 120)))
        self._rows = -(-len(devices) // self._in_a_row)
        self._tracks = _tracks(column) if self._rows == 1 else []
        if len(self._tracks) > _TRACKS_MAX:
            self._tracks = []
        titles = () if self._tracks else dict.fromkeys(wire.title for wire in column.wires)
        self._words = [*titles][:_WORDS_MAX] + ["…"] * (len(titles) > _WORDS_MAX)
        self._nodes = len({device.numa_node for device in devices} - {None}) > 0 and self._rows == 1

    @property
    def height(self) -> float:
        host = (_HOST_HEIGHT + _PAD) * (self._column.host is not None)
        words = 16 * len(self._words)
        rows = self._rows * (_DEVICE_HEIGHT + _PAD)
        return host + rows + _TRACK * len(self._tracks) + words + _NODE_HEAD * self._nodes * 1.6 + _PAD

    def draw(self, canvas: Canvas, left: float, top: float) -> None:
        canvas.rounded("panel", left, top, self._width, self.height, self._column.title or "the machine")
        y = top + _PAD
        if self._column.host is not None:
            self._draw_host(canvas, self._column.host, left + _PAD, y)
            y += _HOST_HEIGHT + _PAD
        width = (self._width - _PAD) / self._in_a_row - _PAD
        middles: dict[int, float] = {}
        if self._nodes:
            self._draw_nodes(canvas, left, y, width)
        y += _NODE_HEAD * self._nodes
        for number, device in enumerate(self._column.devices):
            row, place = divmod(number, self._in_a_row)
            x = left + _PAD + place * (width + _PAD)
            _draw_device(canvas, device, x, y + row * (_DEVICE_HEIGHT + _PAD), width)
            middles[device.ordinal] = x + width / 2
        y += self._rows * (_DEVICE_HEIGHT + _PAD) + _NODE_HEAD * self._nodes * 0.6
        bottom = y - _PAD - _NODE_HEAD * self._nodes * 0.6 + 1
        for number, wires in enumerate(self._tracks):
            shift = (number - len(self._tracks) / 2) * min(9.0, width / (len(self._tracks) + 1))
            for wire in wires:
                xs = {source: middles[source] + shift for source in (*wire.sources, *wire.targets)}
                _draw_wire(canvas, wire, xs, y + number * _TRACK + 4, bottom)
        for number, text in enumerate(self._words):
            canvas.text(left + _PAD, y + 8 + 16 * number, shortened(text, self._width - 2 * _PAD), "dim")

    def _draw_host(self, canvas: Canvas, host: Device, x: float, y: float) -> None:
        width = self._width - 2 * _PAD
        canvas.rounded("device host", x, y, width, _HOST_HEIGHT, host.title)
        words = f'<tspan class="name">host</tspan><tspan dx="8" class="dim">{gauge(host)}</tspan>'
        canvas.raw(f'<text x="{x + 10:g}" y="{y + 16:g}">{words}</text>')
        _draw_gauge(canvas, host, x + 10, y + 23, width - 20)

    def _draw_nodes(self, canvas: Canvas, left: float, y: float, width: float) -> None:
        number = 0
        for node, on_node in groupby(self._column.devices, key=lambda device: device.numa_node):
            count = len(list(on_node))
            x = left + _PAD / 2 + number * (width + _PAD)
            height = _DEVICE_HEIGHT + _NODE_HEAD + _PAD * 0.7
            canvas.rounded("node", x + 1, y - 4, count * (width + _PAD) - 2, height, f"NUMA node {node}")
            name = "NUMA node ?" if node is None else f"NUMA node {node}"
            canvas.text(x + 8, y + 10, name, "small dim")
            number += count


def _tracks(column: Column) -> list[list[Wire]]:
    """Groups of wires; those that do not cross share a track."""
    places = {device.ordinal: place for place, device in enumerate(column.devices)}
    tracks: list[list[Wire]] = []
    ends: list[tuple[int, str]] = []
    for wire in column.wires:
        at = [places[source] for source in (*wire.sources, *wire.targets)]
        free = (n for n, (end, look) in enumerate(ends) if end < min(at) and look == wire.look)
        number = next(free, len(tracks))
        if number == len(tracks):
            tracks.append([])
            ends.append((0, ""))
        tracks[number].append(wire)
        ends[number] = max(at), wire.look
    return tracks


def _draw_wire(canvas: Canvas, wire: Wire, xs: dict[int, float], y: float, bottom: float) -> None:
    """A line below the devices with a branch to each; an arrow where only one of two reaches the other."""
    both = wire.sources == wire.targets
    canvas.line(f"wire {wire.look}", [(min(xs.values()), y), (max(xs.values()), y)], wire.title)
    for name, x in xs.items():
        canvas.line(f"wire {wire.look}", [(x, y), (x, bottom)], wire.title)
        if not both and name in wire.targets:
            canvas.line(f"arrow {wire.look}", [(x - 4, bottom + 7), (x, bottom), (x + 4, bottom + 7)], wire.title)
    first, second = sorted(xs.values())[:2]
    canvas.text((first + second) / 2, y - 3, wire.label, f"small mid {wire.look}text")


def _draw_device(canvas: Canvas, device: Device, x: float, y: float, width: float) -> None:
    used = bool(device.name)
    canvas.rounded("device" if used else "device unused", x, y, width, _DEVICE_HEIGHT, device.title)
    if used:
        canvas.rounded(f"swatch {device.look}", x + 10, y + 9, 10, 10, device.title, radius=3)
    name = shortened(device.name or f"device {device.ordinal}", width - 34, 13)
    canvas.text(x + (26 if used else 10), y + 18.5, name, "name")
    what = device.what if used else device.what.partition(", ")[2]
    canvas.text(x + 10, y + 33, fitting(_less(what), width - 16, 10), "small dim")
    _draw_gauge(canvas, device, x + 10, y + 39, width - 20)
    words = gauge(device)
    canvas.text(x + 10, y + 60, fitting(_less_of(words), width - 16, _SMALL), "small")


def _less_of(words: str) -> list[str]:
    rest, _, share = words.rpartition(", ")
    return [words, rest, share]


def _less(what: str) -> list[str]:
    parts = what.split(", ")
    return [", ".join(parts[:count]) for count in range(len(parts), 0, -1)]


def _draw_gauge(canvas: Canvas, device: Device, x: float, y: float, width: float) -> None:
    """Draw how much of the memory is taken, if its size is known."""
    used = device.boxes[-1].end if device.boxes else 0
    canvas.rounded("gauge", x, y, width, 8, device.title, radius=2)
    if not used or not device.memory:
        return
    whole = max(device.memory, used)
    axis = Axis(0, [Stretch(whole)], width)
    for box in device.boxes:
        places = [(x + left, y, part, 8.0) for _, left, part in axis.parts(box.start, box.end)]
        canvas.box(
            f"{box.look} {narrow(max(part for _, _, part, _ in places))}",
            places,
            f"{device.name or 'device'}: {box.title}",
        )
