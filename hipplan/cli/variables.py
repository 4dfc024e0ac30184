"""A plan and its variables, as the command line takes them: FILE, --var, --var-file and HIPPLAN_VAR_name.

The nearest to the command wins: --var before --var-file, a later file before an earlier one, and all of them before
the environment. A variable of the environment that the plan does not declare is ignored.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hipplan.cli.arguments import Parser, WrongUsage, machine_option, not_empty, runtime_option
from hipplan.errors import Diagnostic, PlanError, is_text
from hipplan.language.findings import in_order
from hipplan.start import without_plugins

if TYPE_CHECKING:
    from hipplan.language.loader import LoadedPlan, PlanSource
    from hipplan.language.rank import Rank

ENVIRONMENT = "HIPPLAN_VAR_"
"""Prefix of environment variables that set a variable of a plan."""


def plan_options(parser: Parser, *, runtime: bool = True) -> None:
    """The options of each verb that loads a plan for a machine. runtime: with --runtime, to measure this machine."""
    machine_option(parser)
    if runtime:
        runtime_option(parser)
    vars_option(parser)
    about = "let the plan include files from outside its own folder"
    parser.add_argument("--include-anywhere", action="store_true", help=about)
    about = "treat warnings as errors: exit with 2 and change nothing"
    parser.add_argument("--strict", action="store_true", help=about)


def load_plan(source: PlanSource, given: Namespace, rank: Rank | None = None, which: str = "") -> LoadedPlan:
    """Load a plan with the options' variables. rank: of a plan for ranks. which: as in vars_option().

    Raises PlanError, WrongUsage.
    """
    plan, errors = examine_plan(source, given, rank, which)
    if errors:
        raise PlanError(errors)
    return plan


def examine_plan(
    source: PlanSource, given: Namespace, rank: Rank | None = None, which: str = ""
) -> tuple[LoadedPlan, list[Diagnostic]]:
    """Loads a plan as load_plan() does, and returns the errors too. Raises PlanError if nothing is left to check."""
    without_plugins()
    from hipplan.language.loader import examine
    from hipplan.language.rank import Rank

    variables, anywhere = given_vars(given, which), given.include_anywhere
    return examine(source, variables, ambient=ambient_vars(), include_anywhere=anywhere, rank=rank or Rank())


def vars_option(parser: Parser, which: str = "", of: str = "the plan") -> None:
    """--var NAME=VALUE and --var-file FILE, any number of times. which: "from-" for the older of two plans."""
    about = f"set a variable of {of}; may be repeated"
    parser.add_argument(f"--{which}var", metavar="NAME=VALUE", action="append", default=[], help=about)
    about = f"take variables of {of} from a YAML file of NAME: VALUE; may be repeated"
    if not which:
        about += f". Also from the environment: {ENVIRONMENT}name"
    parser.add_argument(f"--{which}var-file", metavar="FILE", action="append", type=not_empty, default=[], help=about)


def given_vars(given: Namespace, which: str = "") -> dict[str, Any]:
    """The options' variables by name; the plan's default decides the type of a text.

    Raises WrongUsage for an option that is not NAME=VALUE, PlanError for a file that cannot be read as variables.
    """
    prefix = which.replace("-", "_")
    variables: dict[str, Any] = {}
    for file in getattr(given, f"{prefix}var_file"):
        variables.update(_from_file(file))
    for option in getattr(given, f"{prefix}var"):
        name, equals, value = option.partition("=")
        if not equals or not name:
            raise WrongUsage(f"--{which}var: {option!r} is not NAME=VALUE")
        if not is_text(option):
            raise WrongUsage(f"--{which}var: {option!r} is not text")
        variables[name] = value
    return variables


def ambient_vars() -> dict[str, str]:
    """The environment's variables by name. Raises WrongUsage for a value that is not valid text."""
    values = {}
    for variable, value in os.environ.items():
        if variable.startswith(ENVIRONMENT):
            if not is_text(value):
                raise WrongUsage(f"the environment variable {variable} is not text: {value!r}")
            values[variable.removeprefix(ENVIRONMENT)] = value
    return values


def _from_file(file: str) -> Mapping[str, Any]:
    from pathlib import Path

    from hipplan.language.scalars import VALUES, is_value
    from hipplan.language.source import load_yaml

    source = load_yaml(Path(file), wanted="variables")
    problems = list(source.findings)
    if not isinstance(source.data, dict):
        hint = "write one line for each, such as `layers: 80`"
        problems.append(Diagnostic("HP103", "a file of variables holds NAME: VALUE", source.span(), hint=hint))
        raise PlanError(in_order(problems))
    for name, value in source.data.items():
        if not is_value(value):
            summary = f"the variable '{name[:60]}' must be {VALUES}"
            problems.append(Diagnostic("HP103", summary, source.span((name,))))
    if problems:
        raise PlanError(in_order(problems))
    return source.data
