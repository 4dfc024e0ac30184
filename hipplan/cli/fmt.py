"""hipplan fmt: format plans; comments are kept; refuse what cannot be kept.

Prints one plan; --write changes files in place, --check only names those that would change. A folder means the plans
in it and their parts. Only files with the key `hipplan:` are formatted.
Exit code: 0 done (or nothing to change), 2 a file is not a plan or cannot be formatted, 6 with --check: something would
change.

Examples:
  hipplan fmt plan.yaml
  hipplan fmt --write plans/
  hipplan fmt --check plans/
"""

from __future__ import annotations

import io
from argparse import Namespace

from hipplan.cli.arguments import (
    Parser,
    WrongUsage,
    plan_files,
    plans_named,
    print_document,
    quiet_option,
    source_of,
)
from hipplan.errors import Diagnostic, ExitCode, HipplanError, PlanError, printable
from hipplan.files.output import write_document
from hipplan.show.colours import show


def declare(parser: Parser) -> None:
    plan_files(parser)
    quiet_option(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--check", action="store_true", help="write nothing; list the files that would change")
    which.add_argument("--write", action="store_true", help="change the files in place")


def run(given: Namespace) -> int:
    from hipplan.language.budget import no_garbage_collection

    with no_garbage_collection():
        return _format(given)


def _format(given: Namespace) -> int:
    files = plans_named(given, parts=True)
    if given.write and "-" in files:
        raise WrongUsage("--write changes files in place; - is standard input")
    if len(files) > 1 and not (given.write or given.check):
        raise WrongUsage("only one plan can be printed; use --write or --check for several")
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


def _formatted(file: str) -> tuple[bytes, str]:
    """(current bytes, formatted text) of one plan or experiment."""
    from hipplan.language.canonical import canonical
    from hipplan.language.kinds import says
    from hipplan.language.source import load_yaml, read_all

    source = source_of(file)
    before = read_all(source, file)  # a pipe can be read only once
    name = getattr(source, "name", file)
    if says(before, b"hipplan_experiment"):
        from hipplan.experiment.model import Experiment

        return before, canonical(load_yaml(io.BytesIO(before), name, "experiment"), Experiment, "experiment")
    document = load_yaml(io.BytesIO(before), name)
    if not isinstance(document.data, dict) or "hipplan" not in document.data:
        where, hint = document.span(()), "a plan, and each file that it includes, begins with `hipplan: 1`"
        raise PlanError(Diagnostic("HP102", f"{document.name} is not a plan and was left unchanged", where, hint=hint))
    return before, canonical(document)
