"""Diagnostics for people, on standard error: in colours on a terminal, plain in files and pipes.

NO_COLOR (no-color.org) and FORCE_COLOR (force-color.org) decide first, in this order; empty values are ignored.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TextIO

from hipplan.errors import Diagnostic

_STYLES = (
    (r"(?m)^(?:.*?: )?error\[HP\d+\]: .*$", "bold"),
    (r"(?m)^(?:.*?: )?warning\[HP\d+\]: .*$", "bold"),
    (r"\berror\[HP\d+\]", "bold red"),
    (r"\bwarning\[HP\d+\]", "bold yellow"),
    (r"(?m)^ +\| +\^.*$", "red"),
    (r"(?m)^ +\d* ?\| ", "blue"),
    (r"(?m)^  (?:why|hint|in|first|and|given): ", "cyan"),
)
"""(pattern in a rendered diagnostic, style); later ones win."""


def wanted(stream: TextIO) -> bool:
    """Whether output to this stream has colours."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def show(diagnostics: Iterable[Diagnostic]) -> None:
    """Prints them on standard error."""
    if not wanted(sys.stderr):
        for diagnostic in diagnostics:
            print(diagnostic, file=sys.stderr)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=sys.stderr, force_terminal=True)
    for diagnostic in diagnostics:
        text = Text(str(diagnostic))
        for pattern, style in _STYLES:
            text.highlight_regex(pattern, style)
        console.print(text, soft_wrap=True)
