"""hipplan logs: show the last lines of a holder's log, also of a holder that has failed.

A holder in the foreground (`hipplan up --foreground`) writes to its standard error and has no log.
Exit code: 0, 4 there is no such holder, or it has no log.

Examples:
  hipplan logs weights
  hipplan logs weights --lines 1000
"""

from __future__ import annotations

import os
from argparse import Namespace

from hipplan.cli.arguments import Parser, WrongUsage, integer, not_empty
from hipplan.errors import Diagnostic, ExitCode, HeldError, printable, reason_of

_BYTES_MAX = 1 << 20
"""Only so many bytes at the end of a log are read."""


def declare(parser: Parser) -> None:
    parser.add_argument("name", metavar="HOLDER", type=not_empty, help="the name from `hipplan up --name`")
    about = f"how many lines from the end (default: 100); at most those in the last {_BYTES_MAX >> 20} MiB"
    parser.add_argument("--lines", metavar="N", type=integer, default=100, help=about)


def run(given: Namespace) -> int:
    from hipplan.holders import names

    if given.lines < 1:
        raise WrongUsage("--lines is at least 1")
    logs = {name: log for name, log, _ in names.known()}
    if given.name not in logs:
        raise names.missing(given.name)
    path = logs[given.name]
    if not path:
        why = "it runs in the foreground, or its files were removed"
        raise HeldError(Diagnostic("HP452", f"the holder '{given.name}' has no log", why=why))
    try:
        text = _end_of(path)
    except OSError as error:
        raise HeldError(Diagnostic("HP452", f"cannot read {path}: {reason_of(error)}")) from None
    for line in text.splitlines()[-given.lines :]:
        print(printable(line))
    return ExitCode.OK


def _end_of(path: str) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb", buffering=0) as log:  # noqa: PTH123
        begin = max(0, os.fstat(descriptor).st_size - _BYTES_MAX)
        log.seek(begin)
        text = log.read(_BYTES_MAX).decode("utf-8", "replace")
    return text.partition("\n")[2] if begin else text
