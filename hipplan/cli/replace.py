"""hipplan replace: fill another plan while a holder keeps its memory, and switch to the new memory when all is filled.

Attached processes keep the old memory until they attach again, and are notified (layout.lost). The device needs room
for both. On any failure the old memory stays.
It is refused if attached processes may have written the old memory, or if the new plan lacks names or rights of the
old one, unless --lose names them.
Exit code: 0 it is replaced, 2 invalid plan, 3 the machine cannot hold both, 4 there is no such holder, it refuses, or
it failed and rolled back, 5 an object could not be freed, 130 interrupted: the old memory stays.

Examples:
  hipplan replace weights new.yaml
  hipplan replace weights new.yaml --var step=2000
  hipplan replace serving new.yaml --lose cache
"""

from __future__ import annotations

import sys
from argparse import Namespace

from hipplan.cli.arguments import Parser, format_option, not_empty, plan_file, quiet_option
from hipplan.cli.held import arguments_of, print_change, timeout_of, timeout_option
from hipplan.cli.variables import plan_options


def declare(parser: Parser) -> None:
    parser.add_argument("name", metavar="HOLDER", type=not_empty, help="the name from `hipplan up --name`")
    plan_file(parser)
    about = "a file that `hipplan lock` wrote: apply exactly that, with the same addresses, or fail"
    parser.add_argument("--locked", metavar="LOCK", type=not_empty, help=about)
    about = "what the new plan may lose: a name, in which * stands for any text; may be repeated"
    parser.add_argument("--lose", metavar="NAME", action="append", type=not_empty, default=[], help=about)
    plan_options(parser)
    timeout_option(parser)
    quiet_option(parser)
    format_option(parser)


def run(given: Namespace) -> int:
    from hipplan.holders.requests import replace

    sys.stdout.flush()
    streams = 0, 1, 2
    code, reply = replace(given.name, arguments_of(given), streams, lose=given.lose, timeout_s=timeout_of(given))
    return print_change(given, code, reply, "it keeps its old memory")
