"""Shared parts of the verbs about holders: starting a process of hipplan, and printing a holder's state."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from hipplan.errors import printable
from hipplan.units import about_size

_MAIN = "import sys; sys.path[:] = [p for p in sys.path if p]; from hipplan.cli.main import main; main()"
"""Not -m hipplan, which would import modules of the working folder in place of Python's own."""


def this_command(verb: str, arguments: Sequence[str]) -> list[str]:
    """The command line for a process of this hipplan."""
    return [sys.executable, "-c", _MAIN, verb, *arguments]


def filler_command(descriptor: int, arguments: Sequence[str]) -> list[str]:
    """The command line for the process that fills for a holder."""
    return this_command("up", [*arguments, "--filler", str(descriptor)])


def arguments_of(given: Namespace, name: str = "") -> list[str]:
    """The options about a plan, as arguments for another process. name: of the holder, if it is not given.name."""
    arguments = [f"--name={name or given.name}", f"--format={given.format}"]
    for option in ("machine", "runtime", "locked", "access"):
        if (value := getattr(given, option, None)) is not None:
            arguments.append(f"--{option}={value}")
    for option in ("include_anywhere", "strict", "quiet"):
        arguments += [f"--{option.replace('_', '-')}"] * getattr(given, option)
    arguments += [f"--var={one}" for one in given.var] + [f"--var-file={value}" for value in given.var_file]
    return [*arguments, "--", given.file]


def print_status(status: dict[str, Any]) -> None:
    """Print a line for a holder, and one for each attached process."""
    generation = status["generations"][-1] if status["generations"] else None
    what = "" if generation is None else f" {generation['plan']}, {sizes(generation['bytes'])},"
    print(printable(f"{status['name']}: {state_of(status)};{what} process {status['pid']}"))


def state_of(status: dict[str, Any]) -> str:
    """The state as text: filling 40 %, ready, replacing, ending."""
    filled = status["filled"]
    share = f" {100 * filled[0] // filled[1]} %" if filled and filled[1] else ""
    return f"{status['state']}{share}"


def sizes(by_device: dict[str, int]) -> str:
    """Bytes by device, for people."""
    return ", ".join(f"{about_size(size)} on {name}" for name, size in by_device.items())


def ago(since: float) -> str:
    """How long ago, for people."""
    passed = max(0, int(time.time() - since))
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if passed >= unit:
            return f"{passed // unit} {name}"
    return f"{passed} s"
