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

from hipplan.cli.arguments import Parser, WrongUsage, format_option, show_warnings
from hipplan.cli.programs import program_options, programs
from hipplan.cli.ranks import together
from hipplan.errors import ExitCode
from hipplan.files import strict_json
from hipplan.plain import counted

if TYPE_CHECKING:
    from hipplan.program.all_ranks import AllRanks
    from hipplan.program.difference import Difference
    from hipplan.program.program import Program


def declare(parser: Parser) -> None:
    program_options(parser)
    about = "with --from: exit with 6 if there are changes, 0 if there are none"
    parser.add_argument("--detailed-exitcode", action="store_true", help=about)
    format_option(parser)


def run(given: Namespace) -> int:
    from hipplan.language.budget import no_garbage_collection

    with no_garbage_collection():  # what is shown stays until the process ends
        return _preview(given)


def _preview(given: Namespace) -> int:
    from hipplan.program.all_ranks import AllRanks
    from hipplan.program.difference import Difference

    if given.old is None and given.detailed_exitcode:
        raise WrongUsage("--from-var, --from-var-file and --detailed-exitcode need --from")
    found = programs(given)
    if isinstance(found, Difference):
        changes = _preview_change(found, given)
        return ExitCode.CHANGES if changes and given.detailed_exitcode else ExitCode.OK
    if isinstance(found, AllRanks):
        _preview_all(found, given)
    else:
        _preview_one(found, given)
    return ExitCode.OK


def _preview_one(program: Program, given: Namespace) -> None:
    from hipplan.program import pieces
    from hipplan.program.difference import from_nothing
    from hipplan.show import render, render_json

    if given.format != "json" or given.strict:
        show_warnings(program.warnings, given)
    if given.format == "json":
        sys.stdout.writelines(strict_json.pieces(render_json.program_json(program)))
        return
    steps = from_nothing(program).all_steps
    render.tell(f"{program.name} on {program.machine}: {counted(len(steps), 'step')}, nothing done", style="bold")
    render.tell(render.devices_text(program, here=not given.machine))
    print(render.steps_table(steps))
    print(render.resources_table(program.resources))
    print(render.totals(program))
    if note := pieces.note(program):
        render.tell(note)


def _preview_all(everybody: AllRanks, given: Namespace) -> None:
    """A line for each rank."""
    from hipplan.show import render, render_json

    ranks = [everybody.whole(rank.rank) for rank in everybody.ranks]
    if given.format != "json" or given.strict:
        show_warnings(together([program.warnings for program in ranks]), given)
    if given.format == "json":
        sys.stdout.writelines(strict_json.pieces(render_json.ranks_json(ranks)))
        return
    first = ranks[0]
    nodes = counted(1 + max(rank.node for rank in everybody.ranks), "node")
    heading = f"{first.name} on {first.machine}: {counted(len(ranks), 'rank')} on {nodes}, nothing done"
    render.tell(heading, style="bold")
    print(render.ranks_table(ranks))


def _preview_change(found: Difference, given: Namespace) -> bool:
    """Prints what leads from one plan to another; whether it is anything."""
    from hipplan.program import listing
    from hipplan.show import render, render_json

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
