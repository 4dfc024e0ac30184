"""hipplan validate: check plans; with --machine also whether that machine can hold them.

Changes nothing, needs no GPU and no compiled part. A folder means the plans in it, at any depth: files named
*.yaml or *.yml with the key `hipplan:`, except those that another plan includes.
Exit code: 0 all good, 2 a plan is invalid, 3 a plan is good but the machine cannot hold it.

Examples:
  hipplan validate plan.yaml
  hipplan validate plans/ --machine mi300x-8 --strict
  hipplan validate plan.yaml --var layers=80 --var-file sizes.yaml
  hipplan validate plans/ --format sarif > hipplan.sarif
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hipplan.cli.arguments import (
    Parser,
    as_errors,
    format_option,
    is_folder,
    plan_files,
    plans_named,
    quiet_option,
    source_of,
)
from hipplan.cli.start import without_plugins
from hipplan.cli.variables import ambient_vars, given_vars, plan_options
from hipplan.errors import (
    DIAGNOSTICS_MAX,
    Diagnostic,
    ExitCode,
    MachineError,
    PlanError,
    ProfileError,
    at_most,
    printable,
)
from hipplan.language.findings import in_order
from hipplan.show.colours import show

if TYPE_CHECKING:
    from hipplan.cli.reports import Checked
    from hipplan.machines.profiles import Machine


def declare(parser: Parser) -> None:
    plan_files(parser)
    plan_options(parser, runtime=False)
    quiet_option(parser)
    format_option(parser, "github", "sarif")


def run(given: Namespace) -> int:
    without_plugins()
    profile, no_profile = None, None
    if given.machine:
        from hipplan.machines.profiles import load_machine

        try:
            profile = load_machine(given.machine)
        except ProfileError as error:
            if given.format != "text":
                raise
            no_profile = error  # the plans can be checked all the same
    variables = given_vars(given)
    checked: list[Checked] = []
    left = DIAGNOSTICS_MAX
    for file in plans_named(given):
        code, found = _check(file, variables, given.include_anywhere, profile)
        if given.strict and found and code == ExitCode.OK:
            code, found = ExitCode.INVALID, as_errors(found)
        found = at_most(found, left)
        left -= sum(not one.left_out for one in found)
        checked.append((file, code, found))
        if given.format == "text":
            _show(checked[-1], profile, given.quiet or no_profile is not None)
    if given.format != "text":
        from hipplan.cli import reports

        as_text = {"json": reports.as_json, "github": reports.as_github, "sarif": reports.as_sarif}[given.format]
        print(as_text(checked), end="\n" if given.format != "github" or any(found for _, _, found in checked) else "")
    if no_profile is not None:
        raise no_profile
    # An invalid plan outweighs a machine that is too small: mend that first.
    order = (ExitCode.OK, ExitCode.MACHINE, ExitCode.INVALID)
    return max((code for _, code, _ in checked), key=order.index, default=ExitCode.OK)


def _check(
    file: str, variables: dict[str, Any], include_anywhere: bool, profile: Machine | None
) -> tuple[ExitCode, Sequence[Diagnostic]]:
    from hipplan.language.loader import examine

    if is_folder(file):
        hint = "a plan is a file named *.yaml or *.yml that says hipplan: 1"
        return ExitCode.INVALID, [Diagnostic("HP001", f"there is no plan in the folder {file}", hint=hint)]
    try:
        plan, errors = examine(source_of(file), variables, ambient=ambient_vars(), include_anywhere=include_anywhere)
    except PlanError as error:
        return ExitCode.INVALID, list(error.diagnostics)
    code, found = ExitCode.OK, list(plan.warnings)
    if profile is not None:
        from hipplan.program.compiler import compile as compile_plan

        try:
            found = list(compile_plan(plan, profile).warnings)
        except (MachineError, PlanError) as error:
            code, found = error.exit_code, list(error.diagnostics)
    if errors:  # of what is sound, the machine's errors too
        more = [one for one in found if one.severity == "error"] if code != ExitCode.OK else []
        return ExitCode.INVALID, in_order([*errors, *more])
    return code, found


def _show(checked: Checked, profile: Machine | None, quiet: bool) -> None:
    file, code, found = checked
    show(found)
    if code == ExitCode.OK and not quiet:
        print(printable(f"{file}: good" + (f", and {profile.name} can hold it" if profile else "")))
