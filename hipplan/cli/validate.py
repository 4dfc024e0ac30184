"""hipplan validate: check plans; with --machine also whether that machine can hold them.

Changes nothing, needs no GPU and no compiled part. A folder stands for the plans in it, at any depth: files named
*.yaml or *.yml that say `hipplan:`, but for those that another one includes.
Exit code: 0 all good, 2 a plan is invalid, 3 a plan is good but the machine cannot hold it.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from hipplan.cli.arguments import (
    Parser,
    format_option,
    include_option,
    machine_option,
    not_empty,
    parse_vars,
    source_of,
    vars_option,
)
from hipplan.cli.start import without_plugins
from hipplan.errors import Diagnostic, ExitCode, HipplanError, printable

if TYPE_CHECKING:
    from hipplan.cli.reports import Checked
    from hipplan.profiles import Machine


def declare(parser: Parser) -> None:
    parser.add_argument(
        "files", metavar="FILE", type=not_empty, nargs="+", help="plans, folders of plans, or - for stdin"
    )
    machine_option(parser)
    vars_option(parser)
    include_option(parser)
    format_option(parser, "github", "sarif")


def run(given: Namespace) -> int:
    without_plugins()
    profile = None
    if given.machine:
        from hipplan.profiles import load_machine

        profile = load_machine(given.machine)
    variables = parse_vars(given.var)
    checked: list[Checked] = []
    for named in given.files:
        for file in _plans_in(named):
            checked.append((file, *_check(file, variables, given.include_anywhere, profile)))
            if given.format == "text":
                _tell(checked[-1], profile)
    if given.format != "text":
        from hipplan.cli import reports

        as_text = {"json": reports.as_json, "github": reports.as_github, "sarif": reports.as_sarif}[given.format]
        print(as_text(checked), end="\n" if given.format != "github" or any(found for _, _, found in checked) else "")
    # An invalid plan outweighs a machine that is too small: mend that first.
    order = (ExitCode.OK, ExitCode.MACHINE, ExitCode.INVALID)
    return max((code for _, code, _ in checked), key=order.index)


def _check(
    file: str, variables: dict[str, str], include_anywhere: bool, profile: Machine | None
) -> tuple[ExitCode, list[Diagnostic]]:
    from hipplan.loader import load

    if _is_folder(file):
        hint = "a plan is a file named *.yaml or *.yml that says hipplan: 1"
        return ExitCode.INVALID, [Diagnostic("HP001", f"there is no plan in the folder {file}", hint=hint)]
    try:
        plan = load(source_of(file), variables, include_anywhere=include_anywhere)
        if profile is None:
            return ExitCode.OK, list(plan.warnings)
        from hipplan.compiler import compile as compile_plan

        return ExitCode.OK, list(compile_plan(plan, profile).warnings)
    except HipplanError as error:
        return error.exit_code, list(error.diagnostics)


def _tell(checked: Checked, profile: Machine | None) -> None:
    file, code, found = checked
    for diagnostic in found:
        print(diagnostic, file=sys.stderr)
    if code == ExitCode.OK:
        print(printable(f"{file}: good" + (f", and {profile.name} can hold it" if profile else "")))


def _plans_in(named: str) -> list[str]:
    """The file itself, or the plans of a folder; a folder without one stands for itself."""
    if not _is_folder(named):
        return [named]
    from pathlib import Path

    from hipplan.include import plans_below

    return [str(path) for path in plans_below(Path(named))] or [named]


def _is_folder(named: str) -> bool:
    return named != "-" and "\0" not in named and os.path.isdir(named)  # noqa: PTH112  # before pathlib is needed
