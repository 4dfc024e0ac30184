"""Writes SVG as text. The output is the same each time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from hipplan.errors import printable
from hipplan.units import format_size

_SPECIAL = re.compile(r"[&<>\"]")
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}
_WIDTH_OF_A_LETTER = 0.6
"""The width of a letter in most sans-serif fonts, relative to the font's size; text that may not fit is left out."""


def number(value: float) -> str:
    """A number with only visible precision."""
    text = f"{value:.1f}" if value >= 10 or value <= -10 else f"{value:.2f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def words(text: str) -> str:
    """Escape any text for XML; line breaks stay."""
    if not text.isprintable():
        text = "\n".join(map(printable, text.split("\n")))
    return _SPECIAL.sub(lambda match: _ESCAPES[match[0]], text)


def offset(at: int) -> str:
    return f"+{format_size(at)}" if at else "+0"


_NARROW, _TINY = 6.0, 1.5
"""The width of a box with a thin outline, and of one without: an outline would cover it, or make it look larger."""


def narrow(width: float) -> str:
    """The class of a box of this width; empty for a wide one. Below a pixel, boxes without outlines merge."""
    return "t" if width < _TINY else "n" if width < _NARROW else ""


def wide(text: str, size: float = 11) -> float:
    """The approximate width of a text."""
    return len(text) * size * _WIDTH_OF_A_LETTER


def fitting(choices: Iterable[str], width: float, size: float = 11) -> str:
    """The first of the texts that fits; empty if none does."""
    return next((text for text in choices if wide(text, size) <= width), "")


def shortened(text: str, width: float, size: float = 11) -> str:
    """The text, shortened to fit."""
    room = int(width / (size * _WIDTH_OF_A_LETTER))
    return text if len(text) <= room else text[: max(1, room - 1)] + "…"


class Canvas:
    """A list of SVG elements."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._look: str | None = None

    def text(self, x: float, y: float, text: str, look: str = "", more: str = "") -> None:
        self._end_group()
        kind = f' class="{look}"' if look else ""
        self._parts.append(f'<text x="{number(x)}" y="{number(y)}"{kind}{more}>{words(text)}</text>\n')

    def raw(self, text: str) -> None:
        self._end_group()
        self._parts.append(text + "\n")

    def box(self, look: str, places: Iterable[tuple[float, float, float, float]], title: str) -> None:
        """Draw one object as boxes at one or several places, each (x, y, width, height)."""
        if look != self._look:
            self._end_group()
            self._parts.append(f'<g class="{look}">')
            self._look = look
        path = "".join(f"M{number(x)},{number(y)}h{number(w)}v{number(h)}h-{number(w)}z" for x, y, w, h in places)
        self._parts.append(f'<path d="{path}"><title>{words(title)}</title></path>\n')

    def rounded(self, look: str, x: float, y: float, w: float, h: float, title: str = "", radius: float = 6) -> None:
        self._end_group()
        place = " ".join(f'{key}="{number(value)}"' for key, value in
                         {"x": x, "y": y, "width": w, "height": h, "rx": radius}.items())  # fmt: skip
        inner = f"<title>{words(title)}</title>" if title else ""
        self._parts.append(f'<rect class="{look}" {place}>{inner}</rect>\n')

    def line(self, look: str, points: Iterable[tuple[float, float]], title: str = "") -> None:
        self._end_group()
        path = "M" + "L".join(f"{number(x)},{number(y)}" for x, y in points)
        inner = f"<title>{words(title)}</title>" if title else ""
        self._parts.append(f'<path class="{look}" d="{path}">{inner}</path>\n')

    def _end_group(self) -> None:
        if self._look is not None:
            self._parts.append("</g>\n")
            self._look = None

    def pieces(self) -> Iterator[str]:
        self._end_group()
        yield from self._parts
