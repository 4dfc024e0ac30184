"""hipplan validate: check plans; with --machine, also check that the machine can hold them.

Changes nothing, needs no GPU and no compiled part. A folder means the plans in it, at any depth: files named
*.yaml or *.yml with the key `hipplan:` or `hipplan_experiment:`, except those that another plan includes.
A plan for ranks is checked for each of them; with --machine every node is one like it. Of an experiment the plan of
each cell is checked.
Exit code: 0 all good, 2 a plan is invalid, 3 a plan is good but the machine cannot hold it.

Examples:
  hipplan validate plan.yaml
  hipplan validate plans/ --machine mi300x-8 --strict
  hipplan validate plan.yaml --var layers=80 --var-file sizes.yaml
  hipplan validate plan.yaml --ranks 8 --machine h200-4
  hipplan validate plans/ --format sarif > hipplan.sarif
  hipplan validate plans/ --format junit > hipplan.xml
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hipplan.cli import experiments
from hipplan.cli.arguments import (
    Parser,
    as_errors,
    format_option,
    is_folder,
    plan_files,
    plans_named,
    print_notice,
    quiet_option,
)
from hipplan.cli.ranks import programs_of_ranks, ranks_option, read_again, together
from hipplan.cli.variables import examine_plan, given_vars, plan_options
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
from hipplan.start import without_plugins

if TYPE_CHECKING:
    from hipplan.cli.reports import Checked
    from hipplan.language.loader import LoadedPlan, PlanSource
    from hipplan.machines.machine import Machine


_ORDER = (ExitCode.OK, ExitCode.MACHINE, ExitCode.INVALID)
"""An invalid plan outweighs a machine that is too small: fix the plan first."""


def declare(parser: Parser) -> None:
    plan_files(parser)
    plan_options(parser, runtime=False)
    ranks_option(parser)
    quiet_option(parser)
    format_option(parser, "github", "sarif", "junit", "gitlab")


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
            no_profile = error  # the plans can still be checked
    given_vars(given)  # raises here, because an error in them is not an error of a plan
    checked: list[Checked] = []
    left = DIAGNOSTICS_MAX
    for file in plans_named(given):
        code, diagnostics = _check(file, given, profile)
        if given.strict and diagnostics and code == ExitCode.OK:
            code, diagnostics = ExitCode.INVALID, as_errors(diagnostics)
        diagnostics = at_most(diagnostics, left)
        left -= sum(not diagnostic.left_out for diagnostic in diagnostics)
        checked.append((file, code, diagnostics))
        if given.format == "text":
            _show(checked[-1], profile, given.quiet or no_profile is not None)
    if given.format == "text":
        show(at_most(diagnostic for _, _, of_file in checked for diagnostic in of_file if diagnostic.left_out))
    else:
        from hipplan.cli import ci_reports, reports

        as_text = {
            "json": reports.as_json,
            "github": reports.as_github,
            "sarif": reports.as_sarif,
            "junit": ci_reports.as_junit,
            "gitlab": ci_reports.as_gitlab,
        }[given.format]
        print(
            as_text(checked),
            end="\n" if given.format != "github" or any(diagnostics for _, _, diagnostics in checked) else "",
        )
    if no_profile is not None:
        raise no_profile
    return max((code for _, code, _ in checked), key=_ORDER.index, default=ExitCode.OK)


def _check(file: str, given: Namespace, profile: Machine | None) -> tuple[ExitCode, Sequence[Diagnostic]]:
    if is_folder(file):
        hint = "a plan is a file named *.yaml or *.yml with the key hipplan: 1"
        return ExitCode.INVALID, [Diagnostic("HP001", f"there is no plan in the folder {file}", hint=hint)]

    try:
        read = read_again(file)
        if experiments.is_experiment(read()):
            return _check_experiment(read, profile)
        plan, errors = examine_plan(read(), given)
        if plan.plan.ranks is not None:
            return _check_ranks(file, plan, read, given, profile)
    except PlanError as error:
        return ExitCode.INVALID, list(error.diagnostics)
    code, diagnostics = ExitCode.OK, list(plan.warnings)
    if profile is not None:
        from hipplan.lowering.compiler import compile as compile_plan

        try:
            diagnostics = list(compile_plan(plan, profile).warnings)
        except (MachineError, PlanError) as error:
            code, diagnostics = error.exit_code, list(error.diagnostics)
    if errors:  # also report the machine's errors for the sound objects
        more = (
            [diagnostic for diagnostic in diagnostics if diagnostic.severity == "error"] if code != ExitCode.OK else []
        )
        return ExitCode.INVALID, in_order([*errors, *more])
    return code, diagnostics


def _check_experiment(read: Callable[[], PlanSource], profile: Machine | None) -> tuple[ExitCode, Sequence[Diagnostic]]:
    """The experiment, and the plan of each of its cells. Raises PlanError."""
    from hipplan.experiment.checks import check_cells, merged
    from hipplan.experiment.document import read as read_experiment

    return merged(check_cells(read_experiment(read()), profile))


def _check_ranks(
    file: str, plan: LoadedPlan, read: Callable[[], PlanSource], given: Namespace, profile: Machine | None
) -> tuple[ExitCode, Sequence[Diagnostic]]:
    """Does what _check() does, for a plan for ranks. Raises PlanError if nothing of a rank's part is left to check."""
    from hipplan.ranks.all_ranks import AllRanks, ranks_of

    ranks = ranks_of(plan, given.ranks)
    spec = plan.plan.ranks
    if not given.quiet and not (given.ranks or (spec and (spec.count or spec.per_node))):
        print_notice(f"{file}: only one rank is checked; --ranks checks more")
    if not given.quiet and len(ranks) < ranks[0].ranks:
        print_notice(f"{file}: only the first {len(ranks)} of {ranks[0].ranks} ranks are checked")
    plans, wrong = [], []
    for rank in ranks:
        of_rank, errors = examine_plan(read(), given, rank)
        plans.append(of_rank)
        wrong.append(errors)
    if any(wrong):
        return ExitCode.INVALID, in_order(together(wrong))
    if profile is None:
        return ExitCode.OK, in_order(together([plan.warnings for plan in plans]))
    try:
        programs = programs_of_ranks(AllRanks(ranks, lambda rank: plans[rank.rank], profile))
    except (MachineError, PlanError) as error:
        return error.exit_code, list(error.diagnostics)
    return ExitCode.OK, in_order(together([program.warnings for program in programs]))


def _show(checked: Checked, profile: Machine | None, quiet: bool) -> None:
    file, code, diagnostics = checked
    show(diagnostic for diagnostic in diagnostics if not diagnostic.left_out)  # one line at the end counts the rest
    if code == ExitCode.OK and not quiet:
        print(printable(f"{file}: good" + (f", and {profile.name} can hold it" if profile else "")))
