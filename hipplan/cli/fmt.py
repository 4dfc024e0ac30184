"""hipplan fmt: write plans in one canonical way, comments kept; or say that it cannot.

Prints one plan; --write changes files in place, --check only says which would change. A folder stands for the plans
in it and their parts.
Exit code: 0 done (or nothing to change), 2 a file is no plan or cannot be formatted, 6 with --check: something would
change.

Examples:
  hipplan fmt plan.yaml
  hipplan fmt --write plans/
  hipplan fmt --check plans/
"""

from __future__ import annotations

import io
import os
from argparse import Namespace
from pathlib import Path

from hipplan.cli.arguments import Parser, WrongUsage, not_empty, print_document, quiet_option, source_of
from hipplan.colours import show
from hipplan.errors import ExitCode, HipplanError, printable
from hipplan.output import write_document


def declare(parser: Parser) -> None:
    parser.add_argument(
        "files", metavar="FILE", type=not_empty, nargs="+", help="plans, folders of plans, or - for stdin"
    )
    quiet_option(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--check", action="store_true", help="write nothing; name the files that would change")
    which.add_argument("--write", action="store_true", help="change the files in place")


def run(given: Namespace) -> int:
    files = [file for named in given.files for file in _files(named)]
    if given.write and "-" in files:
        raise WrongUsage("--write changes files, and - is standard input")
    if len(files) > 1 and not (given.write or given.check):
        raise WrongUsage("one plan is printed; for several say --write or --check")
    worst, changed = ExitCode.OK, []
    for file in files:
        try:
            before, after = _formatted(file)
            if before != after.encode() and given.write:
                write_document(file, after, "the plan", in_place=True)
        except HipplanError as error:
            show(error.diagnostics)
            worst = error.exit_code
            continue
        if not (given.write or given.check):
            print_document(after)
        elif before != after.encode():
            changed.append(file)
            if not given.quiet:
                print(printable(f"{file}: {'formatted' if given.write else 'would change'}"))
    return ExitCode.CHANGES if changed and given.check and worst == ExitCode.OK else worst


def _files(named: str) -> list[str]:
    from hipplan.include import plans_below

    if named == "-" or not os.path.isdir(named):  # noqa: PTH112  # pathlib's raises for a name that is too long
        return [named]
    return [str(path) for path in plans_below(Path(named), parts=True)] or [named]


def _formatted(file: str) -> tuple[bytes, str]:
    """(what stands there, what should), of one plan."""
    from hipplan.canonical import canonical
    from hipplan.source import load_yaml, read_all

    source = source_of(file)
    before = read_all(source, file)  # once: a pipe has it only once
    return before, canonical(load_yaml(io.BytesIO(before), getattr(source, "name", file)))
