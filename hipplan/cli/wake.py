"""hipplan wake: restore the memory of a holder that sleeps, at the same addresses.

It returns when all bytes are restored. On any failure the holder stays asleep, and keeps its bytes.
Exit code: 0 it is ready, 4 there is no such holder, the device lacks memory, or a driver call failed and was rolled
back, 5 an object could not be freed, 130 interrupted; after --keep drop it fills the plan as `hipplan up` does, with
the same exit codes.

Examples:
  hipplan wake weights
"""

from __future__ import annotations

import sys
from argparse import Namespace

from hipplan.cli.arguments import Parser, format_option, not_empty, quiet_option
from hipplan.cli.held import options_of, print_change, timeout_of, timeout_option


def declare(parser: Parser) -> None:
    parser.add_argument("name", metavar="HOLDER", type=not_empty, help="the name from `hipplan up --name`")
    timeout_option(parser)
    quiet_option(parser)
    format_option(parser)


def run(given: Namespace) -> int:
    from hipplan.holders.requests import wake

    sys.stdout.flush()
    code, reply = wake(given.name, options=options_of(given), streams=(0, 1, 2), timeout_s=timeout_of(given))
    return print_change(given, code, reply, "it stays asleep")
