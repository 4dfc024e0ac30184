"""hipplan attach: run a command whose hipplan.attach() finds a holder.

It waits until all is filled, or awake. Then the command replaces this one; its environment has HIPPLAN_HOLDER. It may
write what the plan marks with attached: rw; hipplan.attach(access=...) in the command asks for more or less.
Exit code: that of the command; 4 there is no such holder, or it is asleep, 2 there is no such command.

Examples:
  hipplan attach weights -- python serve.py
"""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace

from hipplan.cli.arguments import Parser, WrongUsage, not_empty
from hipplan.errors import Diagnostic, ExitCode, HeldError, printable

_AGAIN_S = 0.1


def declare(parser: Parser) -> None:
    parser.set_defaults(rest=[])
    parser.add_argument("name", metavar="HOLDER", type=not_empty, help="the name from `hipplan up --name`")


def run(given: Namespace) -> int:
    from hipplan.holders import names
    from hipplan.holders.requests import status

    if not given.rest:
        raise WrongUsage("name a command: hipplan attach NAME -- COMMAND ...")
    while (state := status(given.name)["state"]) in ("filling", "waking"):
        time.sleep(_AGAIN_S)
    if state == "asleep":
        hint = f"hipplan wake {given.name}"
        raise HeldError(Diagnostic("HP441", f"the holder '{given.name}' is asleep", hint=hint))
    os.environ[names.VARIABLE] = given.name
    sys.stdout.flush()
    try:
        os.execvp(given.rest[0], given.rest)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        print(printable(f"hipplan attach: error: {given.rest[0]} cannot be run: {why}"), file=sys.stderr)
        return ExitCode.INVALID
