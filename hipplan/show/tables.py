"""Tables for people as plain text: columns side by side under a rule, folded where a terminal is narrower.

rich's tables take half a minute for a hundred thousand rows.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Literal

from hipplan.errors import printable
from hipplan.show.colours import wanted

if TYPE_CHECKING:
    from rich.console import Console

_GAP = "  "
_NAME, _NAMES = "name", "names"
"""The titles of columns whose names are never folded: people search for them, and copy them."""
_NARROW, _WIDE = 12, 200
"""No column is folded to less than _NARROW; without a width, no cell is padded to more than _WIDE."""


def console() -> Console:
    """Standard output. Wide when it is no terminal, so that nothing is cut in a file or a pipe."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _WIDE
    system: Literal["auto"] | None = "auto" if wanted(sys.stdout) else None
    return Console(width=width, color_system=system, highlight=False, markup=False, emoji=False)  # names are not markup


def is_plain(line: str) -> bool:
    """Whether standard output gets just this line from console(): it has no colours, and nothing is folded."""
    fits = line.isascii() and line.isprintable() and len(line) <= _WIDE
    return fits and not sys.stdout.isatty() and not wanted(sys.stdout)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None) -> str:
    """The rows under their titles. A column whose title begins with > is aligned right and never folded,
    nor is a name.

    width: of the terminal; None: unlimited. If the table is wider, its widest columns are folded.
    """
    titles = [title.removeprefix(">") for title in columns]
    right = [title.startswith(">") for title in columns]
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    if width is None:
        widths = [min(w, _WIDE) for w in widths]
    room = None if width is None else width - len(_GAP) * (len(columns) - 1)
    folded = room is not None and sum(widths) > room and _narrow(widths, titles, right, room)
    forms = [f"{{:{'>' if ragged else '<'}{w}}}" for ragged, w in zip(right, widths, strict=True)]
    if not right[-1]:
        forms[-1] = "{}"  # not padded, or one long cell would make every line as long
    form = _GAP.join(forms)
    line = _line_of(sys.stdout.encoding)
    rule = _GAP.join(line * w for w in widths)
    lines = [form.format(*titles), rule if width is None else rule[:width]]
    for row in rows:
        lines += [form.format(*line) for line in _folded(row, widths, titles)] if folded else [form.format(*row)]
    return "\n" + "\n".join(printable(line).rstrip() for line in lines) + "\n"


def _line_of(encoding: str | None) -> str:
    """The character of rules: - if the encoding has no box characters."""
    line = "\N{BOX DRAWINGS LIGHT HORIZONTAL}"
    try:
        line.encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return "-"
    return line


def _narrow(widths: list[int], titles: Sequence[str], right: Sequence[bool], room: int) -> bool:
    """Narrow the widest columns until all fit, if possible. Returns whether any was narrowed."""
    least = [
        w if ragged or title == _NAME else min(w, max(len(title), _NARROW))
        for w, title, ragged in zip(widths, titles, right, strict=True)
    ]
    before = list(widths)
    while sum(widths) > room and widths != least:
        _, widest = max((w, n) for n, w in enumerate(widths) if w > least[n])
        widths[widest] -= 1
    return widths != before


def _folded(row: Sequence[str], widths: Sequence[int], titles: Sequence[str]) -> list[tuple[str, ...]]:
    """The lines of one row."""
    if all(len(cell) <= w for cell, w in zip(row, widths, strict=True)):
        return [tuple(row)]
    from textwrap import wrap

    cells = [
        wrap(cell, max(w, 1), break_on_hyphens=False, break_long_words=title != _NAMES)
        for cell, w, title in zip(row, widths, titles, strict=True)
    ]
    return list(zip_longest(*cells, fillvalue=""))


def fitted_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """table() with the terminal's width."""
    return table(columns, rows, console().width if sys.stdout.isatty() else None)
