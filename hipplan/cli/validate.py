"""hipplan validate: check plans; with --machine also whether that machine can hold them.

Changes nothing, needs no GPU and no compiled part.
Exit code: 0 all good, 2 a plan is invalid, 3 a plan is good but the machine cannot hold it.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import Any

from hipplan.cli.arguments import Parser, format_option, machine_option, parse_vars, source_of, vars_option
from hipplan.cli.start import without_plugins
from hipplan.errors import Diagnostic, ExitCode, HipplanError


def declare(parser: Parser) -> None:
    parser.add_argument("files", metavar="FILE", nargs="+", help="plans, or - for stdin")
    machine_option(parser)
    vars_option(parser)
    format_option(parser)


def run(given: Namespace) -> int:
    without_plugins()
    profile = None
    if given.machine:
        from hipplan.profiles import load_machine

        profile = load_machine(given.machine)
    variables = parse_vars(given.var)
    worst = ExitCode.OK
    results: list[dict[str, Any]] = []
    for file in given.files:
        code, found = _check(file, variables, profile)
        worst = _worse(worst, code)
        results.append({"file": file, "valid": code == ExitCode.OK, "diagnostics": [d.to_json() for d in found]})
        if given.format == "text":
            for diagnostic in found:
                print(diagnostic, file=sys.stderr)
            if code == ExitCode.OK:
                print(f"{file}: good" + (f", and {profile.name} can hold it" if profile else ""))
    if given.format == "json":
        import json

        print(json.dumps({"format_version": 1, "files": results}, indent=2))
    return worst


def _check(file: str, variables: dict[str, str], profile: Any) -> tuple[ExitCode, list[Diagnostic]]:
    from hipplan.loader import load

    try:
        plan = load(source_of(file), variables)
        if profile is None:
            return ExitCode.OK, list(plan.warnings)
        from hipplan.compiler import compile as compile_plan

        return ExitCode.OK, list(compile_plan(plan, profile).warnings)
    except HipplanError as error:
        return error.exit_code, list(error.diagnostics)


def _worse(a: ExitCode, b: ExitCode) -> ExitCode:
    """An invalid plan outweighs a machine that is too small: mend that first."""
    order = (ExitCode.OK, ExitCode.MACHINE, ExitCode.INVALID)
    return max(a, b, key=order.index)
