"""hipplan down: end a holder and free what it holds.

It fails while a process is attached. --wait waits until none is. --force does not wait: attached processes keep the
memory that they map, which is freed when they detach; a holder that gives no sign of life within --timeout is killed.
Exit code: 0 it has ended, 4 a process is attached, or there is no such holder, 130 interrupted: the holder keeps
running.

Examples:
  hipplan down weights
  hipplan down weights --wait
  hipplan down weights --force --timeout 5
"""

from __future__ import annotations

from argparse import Namespace

from hipplan.cli.arguments import Parser, format_option, not_empty, quiet_option
from hipplan.cli.held import sizes, timeout_of, wait_of, wait_options
from hipplan.errors import printable
from hipplan.files import strict_json


def declare(parser: Parser) -> None:
    parser.add_argument("name", metavar="HOLDER", type=not_empty, help="the name from `hipplan up --name`")
    wait_options(parser)
    parser.add_argument(
        "--force", action="store_true", help="end it even if processes are attached; they keep the memory that they map"
    )
    quiet_option(parser)
    format_option(parser)


def run(given: Namespace) -> int:
    from hipplan.holders.requests import down

    reply = down(given.name, wait_s=wait_of(given), force=given.force, timeout_s=timeout_of(given))
    if given.format == "json":
        print(strict_json.document(None, event="down", name=given.name, **reply))
    elif not given.quiet and "killed" in reply:
        silence = f"process {reply['killed']} gave no sign of life and was killed"
        print(printable(f"{given.name}: {silence}; attached processes keep the memory that they map"))
    elif not given.quiet:
        waits = reply.get("waits_for_attached", bool(reply["attached"]))  # a holder of an older hipplan does not say
        freed = "is freed when these processes detach:" if waits else "freed"
        if reply["attached"] and not waits:
            freed += "; these processes keep memory that was replaced until they detach:"
        print(printable(f"{given.name}: ended; {sizes(reply['given_back']) or 'nothing'} {freed}"))
        for process in reply["attached"]:
            print(printable(f"  process {process['pid']} ({process['command']})"))
    return 0
