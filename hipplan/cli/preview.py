"""hipplan preview: the steps a plan takes, the sizes, and what padding wastes. Changes nothing.

With --machine no driver is touched; without it, this machine is measured through the runtime.
With --from OLD: the changes in place that lead from a layout of that plan to this one (layout.update).
Of a plan for ranks: a line for each rank, or with --rank all of one, with what it maps of the others.

Examples:
  hipplan preview plan.yaml --machine mi300x-8
  hipplan preview new.yaml --from old.yaml --machine sim-2
  hipplan preview plan.yaml --format json
  hipplan preview shards.yaml --ranks 8 --rank 2
"""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from hipplan.cli.arguments import Parser, WrongUsage, format_option, plan_file, show_warnings
from hipplan.cli.ranks import rank_option, ranks_option, read_again, refuse_without_ranks, together
from hipplan.cli.variables import examine_plan, load_plan, plan_options, vars_option
from hipplan.errors import ExitCode, PlanError
from hipplan.files import strict_json
from hipplan.plain import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from hipplan.language.loader import LoadedPlan, PlanSource
    from hipplan.machines.profiles import Machine
    from hipplan.program.all_ranks import AllRanks


def declare(parser: Parser) -> None:
    plan_file(parser)
    plan_options(parser)
    parser.add_argument("--from", dest="old", metavar="OLD", help="show the changes from this plan to FILE: + ~ -")
    vars_option(parser, "from-", "the plan OLD")
    about = "with --from: exit with 6 if there are changes, 0 if there are none"
    parser.add_argument("--detailed-exitcode", action="store_true", help=about)
    ranks_option(parser)
    rank_option(parser)
    format_option(parser)


def run(given: Namespace) -> int:
    from hipplan.language.budget import no_garbage_collection

    with no_garbage_collection():  # what is shown stays until the process ends
        return _preview(given)


def _preview(given: Namespace) -> int:
    from hipplan.cli.measured import machine_of
    from hipplan.program import pieces
    from hipplan.program.compiler import compile as compile_plan
    from hipplan.program.difference import from_nothing
    from hipplan.show import render, render_json

    if given.old == given.file == "-":
        raise WrongUsage("only one of the two plans can be standard input")
    if given.old is None and (given.from_var or given.from_var_file or given.detailed_exitcode):
        raise WrongUsage("--from-var, --from-var-file and --detailed-exitcode need --from")
    read, read_old = read_again(given.file), None if given.old is None else read_again(given.old)
    plan, errors = examine_plan(read(), given)
    everybody = None
    if plan.plan.ranks is None:
        if errors:
            raise PlanError(errors)
        refuse_without_ranks(given)
    profile = machine_of(given)
    if plan.plan.ranks is not None:
        everybody = _of_ranks(plan, read, profile, given)
    if read_old is not None:
        changes = _preview_change(plan, everybody, read_old, profile, given)
        return ExitCode.CHANGES if changes and given.detailed_exitcode else 0
    if everybody is not None and given.rank is None:
        return _preview_all(everybody, given)
    program = compile_plan(plan, profile) if everybody is None else everybody.whole(given.rank)
    if given.format != "json" or given.strict:
        show_warnings(program.warnings, given)
    if given.format == "json":
        sys.stdout.writelines(strict_json.pieces(render_json.program_json(program)))
        return 0
    steps = from_nothing(program).all_steps
    render.tell(f"{program.name} on {program.machine}: {counted(len(steps), 'step')}, nothing done", style="bold")
    render.tell(render.devices_text(program, here=not given.machine))
    print(render.steps_table(steps))
    print(render.resources_table(program.resources))
    print(render.totals(program))
    if note := pieces.note(program):
        render.tell(note)
    return 0


def _of_ranks(plan: LoadedPlan, read: Callable[[], PlanSource], profile: Machine, given: Namespace) -> AllRanks:
    """Raises WrongUsage for a rank that there is not."""
    from hipplan.program.all_ranks import AllRanks, ranks_of

    ranks = ranks_of(plan, given.ranks)
    if given.rank is not None and given.rank >= len(ranks):
        count = ranks[0].ranks
        what = (
            f"there is no rank {given.rank} of {count}" if given.rank >= count else f"the last one is {len(ranks) - 1}"
        )
        raise WrongUsage(f"--rank: {what}")
    return AllRanks(ranks, lambda rank: load_plan(read(), given, rank), profile)


def _preview_all(everybody: AllRanks, given: Namespace) -> int:
    """A line for each rank."""
    from hipplan.show import render, render_json

    programs = [everybody.whole(rank.rank) for rank in everybody.ranks]
    if given.format != "json" or given.strict:
        show_warnings(together([program.warnings for program in programs]), given)
    if given.format == "json":
        sys.stdout.writelines(strict_json.pieces(render_json.ranks_json(programs)))
        return 0
    first = programs[0]
    nodes = counted(1 + max(rank.node for rank in everybody.ranks), "node")
    heading = f"{first.name} on {first.machine}: {counted(len(programs), 'rank')} on {nodes}, nothing done"
    render.tell(heading, style="bold")
    print(render.ranks_table(programs))
    return 0


def _preview_change(
    plan: LoadedPlan,
    everybody: AllRanks | None,
    read_old: Callable[[], PlanSource],
    profile: Machine,
    given: Namespace,
) -> bool:
    """Prints what leads from one plan to another; whether it is anything."""
    from hipplan.program import listing
    from hipplan.program.all_ranks import AllRanks
    from hipplan.program.compiler import compile as compile_plan
    from hipplan.program.compiler import compile_change
    from hipplan.show import render, render_json

    if everybody is None:
        found = compile_change(compile_plan(load_plan(read_old(), given, which="from-"), profile), plan, profile)
    else:
        if given.rank is None:
            raise WrongUsage("--from: choose the rank with --rank")
        before = AllRanks(everybody.ranks, lambda rank: load_plan(read_old(), given, rank, "from-"), profile)
        own = everybody.load(everybody.ranks[given.rank])
        found = compile_change(before.whole(given.rank), own, everybody.machine, meet=everybody.meeting(given.rank))
    lines = listing.lines(found)
    if given.format != "json" or given.strict:
        show_warnings(found.new.warnings, given)
    if given.format == "json":
        sys.stdout.writelines(strict_json.pieces(render_json.difference_json(found)))
        return bool(lines)
    steps = found.all_steps
    heading = f"{found.old.source} -> {found.new.source} on {found.new.machine}: {listing.summary(lines)}, nothing done"
    render.tell(heading, style="bold")
    if lines:
        render.console().print(render.difference_table(lines), soft_wrap=True)
    if steps:
        print(render.steps_table(steps))
    if note := listing.note(found):
        render.tell(note)
    if found.released:
        render.tell(f"given back at the end: {', '.join(step.name for step in reversed(found.released))}")
    return bool(lines)
