"""What the verbs about holders share: how one starts a process of hipplan, and what is shown of a holder."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from hipplan.errors import printable
from hipplan.units import about_size

_MAIN = "import sys; sys.path[:] = [p for p in sys.path if p]; from hipplan.cli.main import main; main()"
"""Not -m hipplan: modules that lie in the working folder would be taken for Python's own."""


def this_command(verb: str, arguments: Sequence[str]) -> list[str]:
    """A process of this hipplan."""
    return [sys.executable, "-c", _MAIN, verb, *arguments]


def filler_command(descriptor: int, arguments: Sequence[str]) -> list[str]:
    """The process that fills for a holder."""
    return this_command("up", [*arguments, "--filler", str(descriptor)])


def arguments_of(given: Namespace, name: str = "") -> list[str]:
    """What a command line said of a plan, said again. name: of the holder, if it is not given.name."""
    arguments = [f"--name={name or given.name}", f"--format={given.format}"]
    for option in ("machine", "runtime", "locked", "access"):
        if (value := getattr(given, option, None)) is not None:
            arguments.append(f"--{option}={value}")
    for option in ("include_anywhere", "strict", "quiet"):
        arguments += [f"--{option.replace('_', '-')}"] * getattr(given, option)
    arguments += [f"--var={one}" for one in given.var] + [f"--var-file={value}" for value in given.var_file]
    return [*arguments, "--", given.file]


def print_status(status: dict[str, Any]) -> None:
    """A holder in a line, and those attached in one each."""
    generation = status["generations"][-1] if status["generations"] else None
    what = "" if generation is None else f" {generation['plan']}, {sizes(generation['bytes'])},"
    print(printable(f"{status['name']}: {state_of(status)};{what} process {status['pid']}"))


def state_of(status: dict[str, Any]) -> str:
    """filling 40 %, ready, replacing, ending."""
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
