"""`hipplan doctor --report` and `--compare`."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from pathlib import Path

from hipplan.cli.arguments import WrongUsage
from hipplan.errors import Diagnostic, ExitCode, RuntimeUnavailable, printable
from hipplan.files import strict_json

_PAGE = ".txt"


def report(given: Namespace) -> int:
    """Writes FILE and the page beside it, which it also prints."""
    from hipplan import __version__
    from hipplan.checkup.asking import NoRuntime
    from hipplan.checkup.examination import MEMORY, examined, is_wrong
    from hipplan.checkup.page import page
    from hipplan.files.output import check_replacing, write_document
    from hipplan.units import parse_size

    try:
        memory = parse_size(given.memory) if given.memory else MEMORY
    except ValueError as error:
        raise WrongUsage(f"--memory: {error}") from None
    if memory < _LEAST:
        raise WrongUsage("--memory: a checkup needs 64MiB or more")
    file = Path(given.report)
    beside = file.with_suffix(_PAGE)
    if file.suffix == _PAGE:
        raise WrongUsage(f"--report: FILE is JSON, and the page of text goes to {_PAGE} beside it; name it .json")
    _require_consent(memory, given.yes)
    for path in (file, beside):
        check_replacing(str(path), "the report")
    try:
        document = examined(given.runtime or "", memory, __version__, _show)
    except NoRuntime as error:
        hint = "`hipplan doctor` says what is missing; --runtime sim is the simulator"
        raise RuntimeUnavailable(
            Diagnostic("HP407", "there is no runtime to report on", why=str(error), hint=hint)
        ) from None
    text = page(document)
    write_document(str(file), strict_json.document(**document) + "\n", "the report")
    write_document(str(beside), text, "the report")
    for line in text.splitlines():
        print(printable(line))
    print(printable(f"written: {file}, {beside}. They name no host, user or device; attach both to an issue."))
    return ExitCode.CHANGES if is_wrong(document) else ExitCode.OK


_LEAST = 64 * 2**20


def _require_consent(memory: int, yes: bool) -> None:
    from hipplan.checkup.examination import MEMORY
    from hipplan.units import short_size

    if memory <= MEMORY or yes:
        return
    if not sys.stdin.isatty():
        raise WrongUsage(f"--memory {short_size(memory)}: more than 1GiB needs --yes where nobody can be asked")
    print(f"Take up to {short_size(memory)} of the devices' and the host's memory? [y/N] ", end="", file=sys.stderr)
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise WrongUsage("nothing was taken")


def _show(part: str) -> None:
    if os.isatty(2):
        print(f"checking: {part}", file=sys.stderr, flush=True)


def compare(given: Namespace) -> int:
    from hipplan.checkup.page import differences
    from hipplan.checkup.reading import read
    from hipplan.show.tables import fitted_table

    rows = differences(*map(read, given.compare))
    if given.format == "json":
        keys = ("what", "a", "b")
        print(strict_json.document(event="compare", differences=[dict(zip(keys, row, strict=True)) for row in rows]))
    elif rows:
        print(fitted_table(["", *given.compare], [list(row) for row in rows]), end="")
    else:
        print("the reports say the same")
    return ExitCode.CHANGES if rows else ExitCode.OK
