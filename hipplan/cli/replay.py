"""hipplan replay: show what an apply that was recorded did: each step with its time and result, what was read back, and
what was freed. Makes no driver call. With --format perfetto: a timeline, which https://ui.perfetto.dev opens.

Exit code: 0, also if the record ends in the middle because the process was killed; 2 the file is not a record.

Examples:
  hipplan replay apply.jsonl
  hipplan replay apply.jsonl --format json
  hipplan replay apply.jsonl --format perfetto > apply.perfetto.json
"""

from __future__ import annotations

import sys
from argparse import Namespace

from hipplan.cli.arguments import Parser, WrongUsage, format_option, not_empty
from hipplan.errors import ExitCode, printable
from hipplan.files import strict_json


def declare(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", type=not_empty, help="what `hipplan apply --record FILE` wrote")
    format_option(parser, "perfetto")


def run(given: Namespace) -> int:
    from hipplan.layout.recorded import read
    from hipplan.show import render
    from hipplan.show.tables import console

    if given.file == "-":
        raise WrongUsage("a record cannot be read from standard input; name a file (./- for one named -)")
    record = read(given.file)
    if given.format == "json":
        print(strict_json.document(complete=record.complete, events=record.events))
        return ExitCode.OK
    if given.format == "perfetto":
        from hipplan.show.perfetto import trace

        sys.stdout.writelines(strict_json.pieces(trace(record)))
        return ExitCode.OK
    out = console()
    for part in render.record_parts(record):
        out.print(part, soft_wrap=True)
    if not record.complete:
        print(printable(f"{given.file} ends before the layout was torn down"), file=sys.stderr)
    return ExitCode.OK
