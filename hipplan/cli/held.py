"""Shared parts of the verbs about holders: starting a process of hipplan, and printing a holder's state."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from hipplan.cli.arguments import Parser, seconds
from hipplan.errors import printable
from hipplan.files import strict_json
from hipplan.processes.command import this_command
from hipplan.units import about_size

TIMEOUT_S = 30.0
"""How long a holder may give no sign of life, unless --timeout says otherwise."""


def filler_command(descriptor: int, arguments: Sequence[str]) -> list[str]:
    """The command line for the process that fills for a holder."""
    return this_command("up", [*arguments, "--filler", str(descriptor)])


def arguments_of(given: Namespace) -> list[str]:
    """The arguments about a plan, for a holder or filler process."""
    arguments = [f"--name={given.name}", *options_of(given)]
    for option in ("machine", "runtime", "locked", "access"):
        if (value := getattr(given, option, None)) is not None:
            arguments.append(f"--{option}={value}")
    for option in ("include_anywhere", "strict"):
        arguments += [f"--{option.replace('_', '-')}"] * getattr(given, option)
    arguments += [f"--var={variable}" for variable in given.var] + [f"--var-file={file}" for file in given.var_file]
    return [*arguments, "--", given.file]


def options_of(given: Namespace) -> list[str]:
    """The arguments about output."""
    return [f"--format={given.format}", *["--quiet"] * given.quiet]


def timeout_option(parser: Parser, more: str = "") -> None:
    """--timeout, as given.timeout: see timeout_of(). more: what else it limits."""
    about = f"give up after so many seconds without a sign of life of the holder (default: {TIMEOUT_S:g}){more}"
    parser.add_argument("--timeout", metavar="S", type=seconds, help=about)


def wait_options(parser: Parser) -> None:
    """--wait and --timeout: see wait_of()."""
    parser.add_argument("--wait", action="store_true", help="wait until no process is attached")
    timeout_option(parser, "; with --wait also after so many in which processes stay attached (default: no limit)")


def wait_of(given: Namespace) -> float | None:
    """How many seconds to wait until no process is attached; None: without limit."""
    return given.timeout if given.wait else 0.0


def timeout_of(given: Namespace) -> float:
    """How many seconds the holder may give no sign of life."""
    return given.timeout or TIMEOUT_S


def print_change(given: Namespace, code: int, reply: dict[str, Any], stays: str) -> int:
    """Shows how a change of a holder ended; its exit code. reply: status, or why it failed. stays: what holds then."""
    if code != 0:
        print(printable(f"{given.name}: {reply['why']}; {stays}"), file=sys.stderr)
    elif given.format == "json":
        print(strict_json.document(None, **reply))
    elif not given.quiet:
        print_status(reply)
    return code


def print_status(status: dict[str, Any]) -> None:
    """Print a line for a holder."""
    generation = status["generations"][-1] if status["generations"] else None
    what = "" if generation is None else f" {generation['plan']}, {place_of(generation, status)},"
    print(printable(f"{status['name']}: {state_of(status)};{what} process {status['pid']}"))


def place_of(generation: dict[str, Any], status: dict[str, Any]) -> str:
    """How much memory a generation takes, and where."""
    asleep = status["asleep"] if generation is status["generations"][-1] else None
    if asleep is None:
        return sizes(generation["bytes"])
    return f"{about_size(asleep['bytes'])} in host memory" if asleep["kept"] == "host" else "no bytes kept"


def state_of(status: dict[str, Any]) -> str:
    """The state as text: filling 40 %, ready, replacing, sleeping, asleep, waking, ending."""
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
