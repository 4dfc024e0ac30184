"""The command line of another process of this hipplan."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

_MAIN = "import sys; sys.path[:] = [p for p in sys.path if p]; from {} import main; main()"
"""Not -m, which would import modules of the working folder in place of Python's own."""


def this_command(verb: str, arguments: Sequence[str]) -> list[str]:
    """The command line for a verb of this hipplan."""
    return main_of("hipplan.cli.main", [verb, *arguments])


def main_of(module: str, arguments: Sequence[str]) -> list[str]:
    """The command line for the function main() of a module."""
    return [sys.executable, "-c", _MAIN.format(module), *arguments]


def as_typed(words: Sequence[str]) -> str:
    """The command line of a process, for people. What this hipplan has started is shown as its user would type it."""
    started = this_command("", ())[1:3]
    return shlex.join(["hipplan", *words[3:]] if [*words[1:3]] == started else words)
