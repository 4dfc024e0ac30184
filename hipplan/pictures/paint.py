"""A scene as SVG."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from itertools import groupby

from hipplan.pictures.looks import FILLS, HOST_FILL, SIGN_FILLS
from hipplan.pictures.machine import PlacedMachine
from hipplan.pictures.ribbons import PlacedRibbon
from hipplan.pictures.scene import Column, Scene
from hipplan.pictures.svg import Canvas, number, shortened, wide, words

_MARGIN = 24.0
_ALONE = 1152.0
_NARROWEST, _TOGETHER = 300.0, 1500.0
_BETWEEN = 28.0
_HEAD = 58.0
_COLUMN_HEAD = 30.0


def paint(scene: Scene, mixtures: Mapping[str, tuple[int, ...]]) -> str:
    """The SVG document. mixtures: looks of memory that several devices hold in turns -> the numbers of their fills."""
    count = len(scene.columns)
    width = _ALONE if count == 1 else max(_NARROWEST, _TOGETHER / count - _BETWEEN)
    whole = 2 * _MARGIN + count * width + (count - 1) * _BETWEEN
    canvas = Canvas()
    lefts = [_MARGIN + number * (width + _BETWEEN) for number in range(count)]
    y = _draw_head(canvas, scene, whole)
    if count > 1:
        _draw_column_heads(canvas, scene.columns, lefts, width, y)
        y += _COLUMN_HEAD
    machines = [PlacedMachine(column, width) for column in scene.columns]
    for machine, left in zip(machines, lefts, strict=True):
        machine.draw(canvas, left, y)
    y += max(machine.height for machine in machines) + 8
    for column, left in zip(scene.columns, lefts, strict=True):
        if column.more:
            canvas.text(left, y + 8, column.more, "dim")
    y += 26 if any(column.more for column in scene.columns) else 14
    for key in dict.fromkeys(key for column in scene.columns for key in column.ribbons):
        y += _draw_row(canvas, scene, key, lefts, width, y)
    y = _draw_legend(canvas, scene, whole, y)
    size = f'width="{number(whole)}" height="{number(y)}" viewBox="0 0 {number(whole)} {number(y)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n<title>{words(scene.title)}</title>\n'
    paper = '<rect class="paper" width="100%" height="100%"/>\n'
    return "".join([head, _style(mixtures), paper, *canvas.pieces(), "</svg>\n"])


def _draw_head(canvas: Canvas, scene: Scene, whole: float) -> float:
    canvas.text(_MARGIN, 34, shortened(scene.title, whole - 2 * _MARGIN, 20), "title")
    facts = "  ·  ".join(scene.facts)
    canvas.text(_MARGIN, 54, shortened(facts, whole - 2 * _MARGIN, 12), "facts")
    return _HEAD + 10


def _draw_column_heads(canvas: Canvas, columns: tuple[Column, ...], lefts: list[float], width: float, y: float) -> None:
    pairs = list(zip(columns, lefts, strict=True))
    several = len({column.node for column in columns}) > 1
    for node, on_node in groupby(pairs, key=lambda pair: pair[0].node):
        where = [left for _, left in on_node]
        if several:
            canvas.line("nodeline", [(where[0], y - 3), (where[-1] + width, y - 3)], node)
            canvas.text(where[-1] + width, y - 7, node, "small dim end")
    for column, left in pairs:
        canvas.text(left, y + 17, column.title, "columnhead")


def _draw_row(canvas: Canvas, scene: Scene, key: tuple[str, str], lefts: list[float], width: float, y: float) -> float:
    """Draw the ribbons of all columns with the same key; returns their height."""
    height = 0.0
    for column, left in zip(scene.columns, lefts, strict=True):
        if key in column.ribbons:
            ribbon = PlacedRibbon(column.ribbons[key], width)
            ribbon.draw(canvas, left, y)
            height = max(height, ribbon.height)
    return height


def _draw_legend(canvas: Canvas, scene: Scene, whole: float, y: float) -> float:
    x = _MARGIN
    y += 4
    canvas.line("rule", [(_MARGIN, y), (whole - _MARGIN, y)])
    y += 12
    for look, text in scene.legend:
        step = wide(text, 10.5) + 40
        if x + step > whole - _MARGIN:
            x, y = _MARGIN, y + 18
        if look in ("rw", "r"):
            canvas.rounded("neutral", x, y + (1 if look == "rw" else 4), 18, 9 if look == "rw" else 2.4, text, radius=0)
        else:
            canvas.rounded(f"key {look}", x, y, 18, 11, text, radius=2)
        canvas.text(x + 24, y + 9.5, text, "small dim")
        x += step
    y += 26
    for note in scene.notes:
        canvas.text(_MARGIN, y, shortened(note, whole - 2 * _MARGIN, 10.5), "dim")
        y += 16
    return y + 8


def _style(mixtures: Mapping[str, tuple[int, ...]]) -> str:
    """The style sheet, and the patterns that it names."""
    rules = [f".o{n}{{fill:{fill}}}" for n, fill in enumerate(FILLS)]
    rules += [f".{look}{{fill:{fill}}}" for look, fill in SIGN_FILLS.items()]
    rules += [f".oh{{fill:{HOST_FILL}}}"]
    patterns = []
    for look, numbers in mixtures.items():
        rules.append(f".{look}{{fill:url(#{look})}}")
        side = 4 * len(numbers)
        bars = "".join(f'<rect class="o{n}" x="{4 * at}" width="4" height="8"/>' for at, n in enumerate(numbers))
        patterns.append(
            f'<pattern id="{look}" width="{side}" height="8" patternUnits="userSpaceOnUse" '
            f'patternTransform="rotate(20)">{bars}</pattern>'
        )
    hatch = '<path class="hatch" d="M-1,1l2,-2M0,6l6,-6M5,7l2,-2"/>'
    patterns.append(f'<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse">{hatch}</pattern>')
    css = (resources.files("hipplan") / "pictures" / "style.css").read_text("utf-8")
    return f"<style>\n{css}{''.join(rules)}\n</style>\n<defs>{''.join(patterns)}</defs>\n"
