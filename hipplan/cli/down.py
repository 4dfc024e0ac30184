"""hipplan down: end a holder and free what it holds.

It fails while a process is attached. --wait waits for them; --force does not: they keep what they have mapped until
they detach, and only then its memory is free. Exit code: 0 it has ended, 4 a process is attached, or there is no such
holder, 130 interrupted: the holder keeps running.

Examples:
  hipplan down weights
  hipplan down weights --wait
  hipplan down weights --force
"""

from __future__ import annotations

from argparse import Namespace

from hipplan.cli.arguments import Parser, WrongUsage, format_option, not_empty, quiet_option, seconds
from hipplan.cli.held import sizes
from hipplan.errors import printable
from hipplan.files import strict_json


def declare(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME", type=not_empty, help="the name from `hipplan up --name`")
    parser.add_argument("--wait", action="store_true", help="wait until no process is attached")
    parser.add_argument("--timeout", metavar="S", type=seconds, help="with --wait: at most this many seconds")
    parser.add_argument(
        "--force", action="store_true", help="end it even if processes are attached; they keep the memory that they map"
    )
    quiet_option(parser)
    format_option(parser)


def run(given: Namespace) -> int:
    from hipplan.holders.asking import FOR_EVER, down

    if given.timeout is not None and not given.wait:
        raise WrongUsage("--timeout needs --wait")
    wait_s = None if not given.wait else FOR_EVER if given.timeout is None else given.timeout
    reply = down(given.name, wait_s=wait_s, force=given.force, look=lambda: False)
    if given.format == "json":
        print(strict_json.document(None, event="down", name=given.name, **reply))
    elif not given.quiet:
        print(printable(f"{given.name}: ended; {sizes(reply['given_back']) or 'nothing'} freed"))
        for process in reply["attached"]:
            print(printable(f"  process {process['pid']} ({process['command']}) keeps the memory that it maps"))
    return 0
