"""Makes what preview and draw show: a program, the programs of all ranks, or the change from one plan to another."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from hipplan.cli.arguments import Parser, WrongUsage, plan_file
from hipplan.cli.ranks import rank_option, ranks_option, read_again, refuse_without_ranks
from hipplan.cli.variables import examine_plan, load_plan, plan_options, vars_option
from hipplan.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hipplan.language.loader import LoadedPlan, PlanSource
    from hipplan.machines.machine import Machine
    from hipplan.program.difference import Difference
    from hipplan.program.program import Program
    from hipplan.ranks.all_ranks import AllRanks


def program_options(parser: Parser) -> None:
    """The options for programs()."""
    plan_file(parser)
    plan_options(parser)
    parser.add_argument("--from", dest="old", metavar="OLD", help="show the changes from this plan to FILE: + ~ -/+ -")
    vars_option(parser, "from-", "the plan OLD")
    ranks_option(parser)
    rank_option(parser)


def programs(given: Namespace) -> Program | AllRanks | Difference:
    """Raises PlanError, MachineError, WrongUsage."""
    from hipplan.cli.measured import machine_of
    from hipplan.lowering.compiler import compile as compile_plan
    from hipplan.lowering.compiler import compile_change

    if given.old == given.file == "-":
        raise WrongUsage("only one of the two plans can be standard input")
    if given.old is None and (given.from_var or given.from_var_file):
        raise WrongUsage("--from-var and --from-var-file need --from")
    read = read_again(given.file)
    read_old = None if given.old is None else read_again(given.old)
    plan, errors = examine_plan(read(), given)
    if plan.plan.ranks is None:
        if errors:
            raise PlanError(errors)
        refuse_without_ranks(given)
    profile = machine_of(given)
    if plan.plan.ranks is not None:
        all_ranks = _of_ranks(plan, read, profile, given)
        if read_old is not None:
            return _change_of_rank(all_ranks, read_old, given)
        return all_ranks if given.rank is None else all_ranks.whole(given.rank)
    if read_old is None:
        return compile_plan(plan, profile)
    return compile_change(compile_plan(load_plan(read_old(), given, which="from-"), profile), plan, profile)


def _of_ranks(plan: LoadedPlan, read: Callable[[], PlanSource], profile: Machine, given: Namespace) -> AllRanks:
    """Raises WrongUsage for a rank that does not exist."""
    from hipplan.ranks.all_ranks import AllRanks, ranks_of

    ranks = ranks_of(plan, given.ranks)
    if given.rank is not None and given.rank >= len(ranks):
        count = ranks[0].ranks
        if given.rank < count:
            raise WrongUsage(f"--rank: the last one is {len(ranks) - 1}")
        more = "" if given.ranks else "; --ranks says how many there are"
        raise WrongUsage(f"--rank: there is no rank {given.rank} of {count}; ranks count from 0{more}")
    return AllRanks(ranks, lambda rank: load_plan(read(), given, rank), profile)


def _change_of_rank(all_ranks: AllRanks, read_old: Callable[[], PlanSource], given: Namespace) -> Difference:
    from hipplan.lowering.compiler import compile_change
    from hipplan.ranks.all_ranks import AllRanks

    if given.rank is None:
        raise WrongUsage("--from: choose the rank with --rank")
    before = AllRanks(all_ranks.ranks, lambda rank: load_plan(read_old(), given, rank, "from-"), all_ranks.machine)
    own = all_ranks.load(all_ranks.ranks[given.rank])
    return compile_change(before.whole(given.rank), own, all_ranks.machine, meet=all_ranks.meeting(given.rank))
