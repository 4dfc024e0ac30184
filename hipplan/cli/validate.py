"""hipplan validate: is the plan right? Needs no driver and no compiled part."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from hipplan.cli.options import Format, FormatOption, MachineOption, VarsOption, parse_vars, source_of
from hipplan.errors import Diagnostic, ExitCode, HipplanError


def validate(
    files: Annotated[list[str], typer.Argument(metavar="FILES...", help="Plans, or - for stdin.")],
    machine: MachineOption = None,
    var: VarsOption = [],  # noqa: B006
    format: FormatOption = Format.text,  # noqa: A002
) -> None:
    """Check plans; with --machine also whether that machine can hold them. Changes nothing, needs no GPU.

    Exit code: 0 all good, 2 a plan is invalid, 3 a plan is good but the machine cannot hold it.
    """
    from hipplan.profiles import load_machine

    profile = load_machine(machine) if machine else None
    variables = parse_vars(var)
    worst = ExitCode.OK
    results: list[dict[str, Any]] = []
    for file in files:
        code, found = _check(file, variables, profile)
        worst = _worse(worst, code)
        results.append({"file": file, "valid": code == ExitCode.OK, "diagnostics": [d.to_json() for d in found]})
        if format is Format.text:
            for diagnostic in found:
                print(diagnostic, file=sys.stderr)
            if code == ExitCode.OK:
                print(f"{file}: good" + (f", and {profile.name} can hold it" if profile else ""))
    if format is Format.json:
        print(json.dumps({"format_version": 1, "files": results}, indent=2))
    raise typer.Exit(worst)


def _check(file: str, variables: dict[str, str], profile: Any) -> tuple[ExitCode, list[Diagnostic]]:
    from hipplan.compiler import compile as compile_plan
    from hipplan.loader import load

    try:
        plan = load(source_of(file), variables)
        if profile is None:
            return ExitCode.OK, list(plan.warnings)
        return ExitCode.OK, list(compile_plan(plan, profile).warnings)
    except HipplanError as error:
        return error.exit_code, list(error.diagnostics)


def _worse(a: ExitCode, b: ExitCode) -> ExitCode:
    """An invalid plan outweighs a machine that is too small: mend that first."""
    order = (ExitCode.OK, ExitCode.MACHINE, ExitCode.INVALID)
    return max(a, b, key=order.index)
