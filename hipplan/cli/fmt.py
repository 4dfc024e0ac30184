"""hipplan fmt: write plans in one canonical way, comments kept; or say that it cannot.

Prints one plan; --write changes files in place, --check only says which would change. A folder stands for the plans
in it and their parts.
Exit code: 0 done (or nothing to change), 2 a file is no plan or cannot be formatted, 6 with --check: something would
change.
"""

from __future__ import annotations

import os
import sys
import tempfile
from argparse import Namespace
from pathlib import Path

from hipplan.cli.arguments import Parser, WrongUsage, print_document, source_of
from hipplan.errors import Diagnostic, ExitCode, HipplanError, PlanError


def declare(parser: Parser) -> None:
    parser.add_argument("files", metavar="FILE", nargs="+", help="plans, folders of plans, or - for stdin")
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
        except HipplanError as error:
            print(error, file=sys.stderr)
            worst = error.exit_code
            continue
        if not (given.write or given.check):
            print_document(after)
        elif before != after.encode():
            changed.append(file)
            if given.write:
                _replace(Path(file), after)
            print(f"{file}: {'formatted' if given.write else 'would change'}")
    return ExitCode.CHANGES if changed and given.check and worst == ExitCode.OK else worst


def _files(named: str) -> list[str]:
    from hipplan.include import plans_below

    if named == "-" or not os.path.isdir(named):  # noqa: PTH112  # pathlib's raises for a name that is too long
        return [named]
    return [str(path) for path in plans_below(Path(named), parts=True)] or [named]


def _formatted(file: str) -> tuple[bytes, str]:
    """(what stands there, what should), of one plan."""
    from hipplan.canonical import canonical
    from hipplan.source import load_yaml

    source = load_yaml(source_of(file))
    after = canonical(source)
    if file == "-":
        return source.text.encode(), after
    try:
        return Path(file).read_bytes(), after
    except OSError as error:
        raise PlanError(Diagnostic("HP001", f"cannot read {file}: {error.strerror}")) from None


def _replace(file: Path, text: str) -> None:
    """The file as a whole or not at all; a link stays one, and rights stay as they are."""
    target = file.resolve()
    try:
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with open(descriptor, "w", encoding="utf-8", newline="\n") as out:  # noqa: PTH123
                out.write(text)
            Path(name).chmod(target.stat().st_mode & 0o7777)
            os.replace(name, target)  # noqa: PTH105
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise PlanError(Diagnostic("HP001", f"cannot write {file}: {error.strerror}")) from None
