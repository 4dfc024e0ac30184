"""hipplan sleep: free the device memory of a holder for a while; `hipplan wake` restores it.

With --keep host, the default, the bytes are moved to host memory, and restored at the same addresses. With --keep drop
no bytes are kept, and `hipplan wake` fills the plan again: for weights that come from files. It fails while a process
is attached; --wait waits until none is. On any failure the memory stays where it is.
Exit code: 0 it is asleep, 3 the host lacks memory for the bytes, 4 there is no such holder, a process is attached, or a
driver call failed and was rolled back, 5 an object could not be freed, 130 interrupted.

Examples:
  hipplan sleep weights
  hipplan sleep weights --keep drop
  hipplan sleep weights --wait --timeout 60
"""

from __future__ import annotations

import sys
from argparse import Namespace

from hipplan.cli.arguments import Parser, format_option, not_empty, quiet_option
from hipplan.cli.held import options_of, print_change, timeout_of, wait_of, wait_options


def declare(parser: Parser) -> None:
    parser.add_argument("name", metavar="HOLDER", type=not_empty, help="the name from `hipplan up --name`")
    about = "host: keep the bytes in host memory (the default); drop: keep none, and `wake` fills the plan again"
    choices = ("host", "drop", "mapped")  # the last is refused with its reason
    parser.add_argument("--keep", choices=choices, metavar="{host,drop}", default="host", help=about)
    wait_options(parser)
    quiet_option(parser)
    format_option(parser)


def run(given: Namespace) -> int:
    from hipplan.holders.requests import sleep

    sys.stdout.flush()
    wait_s, options = wait_of(given), options_of(given)
    code, reply = sleep(
        given.name,
        keep=given.keep,
        wait_s=wait_s,
        options=options,
        streams=(0, 1, 2),
        timeout_s=timeout_of(given),
    )
    return print_change(given, code, reply, "its memory stays where it is")
