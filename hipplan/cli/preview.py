"""hipplan preview: the steps a plan takes, the sizes, and what padding wastes. Changes nothing.

With --machine no driver is touched; without it, this machine is measured through the runtime.
More than 60 rows are grouped: --all shows each, --grep NAME those whose name contains NAME. JSON of more than 2 MiB
is grouped, too, under other keys (summed_up, steps_summary, resources_summary); --all writes every row.
With --from OLD: the changes in place that lead from a layout of that plan to this one (layout.update), and what they
lose: `+` is made, `~` altered, `-/+` recreated, `-` freed. The last line counts them.
For a plan with ranks: a line for each rank, or with --rank all of one, with what it maps of the others.

Examples:
  hipplan preview plan.yaml --machine mi300x-8
  hipplan preview plan.yaml --machine mi300x-8 --tensors --grep layers.0.
  hipplan preview new.yaml --from old.yaml --machine sim-2
  hipplan preview new.yaml --from old.yaml --machine sim-2 --fail-on-loss
  hipplan preview new.yaml --from old.yaml --lose "scratch.*" -o change.json
  hipplan preview plan.yaml --format json
  hipplan preview shards.yaml --ranks 8 --rank 2
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from hipplan.cli.arguments import (
    Parser,
    WrongUsage,
    format_option,
    not_empty,
    not_over,
    show_warnings,
    write_output,
)
from hipplan.cli.programs import program_options, programs
from hipplan.cli.ranks import programs_of_ranks, together
from hipplan.cli.variables import load_plan
from hipplan.errors import ExitCode
from hipplan.files import strict_json
from hipplan.plain import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hipplan.program.difference import Difference
    from hipplan.program.listing import Line
    from hipplan.program.program import Program
    from hipplan.program.steps import Step
    from hipplan.ranks.all_ranks import AllRanks

_FEW = 10
"""At most so many names are shown."""
_JSON_MAX = 2 << 20
"""The most bytes of JSON, which is ASCII, without --all."""


def declare(parser: Parser) -> None:
    program_options(parser)
    about = "with --from: exit with 6 if there are changes, 0 if there are none"
    parser.add_argument("--detailed-exitcode", action="store_true", help=about)
    about = "with --from: exit with 6 if a byte, an address or a right would be lost, 0 for any other change"
    parser.add_argument("--fail-on-loss", action="store_true", help=about)
    either = parser.add_mutually_exclusive_group()
    about = "show every row, also where there are more than 60, or more than 2 MiB of JSON"
    either.add_argument("--all", action="store_true", help=about)
    about = "show each row whose name contains NAME, in any case"
    either.add_argument("--grep", metavar="NAME", type=not_empty, help=about)
    about = "show the offset, dtype and shape of each tensor, instead of the steps"
    parser.add_argument("--tensors", action="store_true", help=about)
    about = "with --from: write the change to a file, for layout.update(FILE): what is reviewed is what happens"
    parser.add_argument("-o", "--output", metavar="FILE", type=not_empty, help=about)
    about = "with --output: what the change may lose: a name, in which * stands for any text; may be repeated"
    parser.add_argument("--lose", metavar="NAME", action="append", type=not_empty, default=[], help=about)
    format_option(parser)


def run(given: Namespace) -> int:
    from hipplan.language.budget import no_garbage_collection

    with no_garbage_collection():  # everything made here lives until the process ends
        return _preview(given)


def _preview(given: Namespace) -> int:
    from hipplan.program.difference import Difference
    from hipplan.program.program import Program

    if given.old is None and (given.detailed_exitcode or given.fail_on_loss):
        raise WrongUsage("--from-var, --from-var-file, --detailed-exitcode and --fail-on-loss need --from")
    if given.format == "json" and (given.grep or given.tensors):
        raise WrongUsage("--grep and --tensors choose rows of the text, not of JSON")
    if given.output is None and given.lose:
        raise WrongUsage("--lose needs --output: it is consent, which the file carries")
    if given.output is not None:
        _check_output(given)
    compiled = programs(given)
    if isinstance(compiled, Difference):
        lines = _preview_change(compiled, given)
        if given.output is not None:
            _write(compiled, given)
        is_lost = given.fail_on_loss and any(line.loss for line in lines)
        return ExitCode.CHANGES if is_lost or (lines and given.detailed_exitcode) else ExitCode.OK
    if isinstance(compiled, Program):
        _preview_one(compiled, given)
    else:
        _preview_all(compiled, given)
    return ExitCode.OK


def _check_output(given: Namespace) -> None:
    """Raises WrongUsage: --output names no file, or there is no change to write."""
    if given.old is None:
        raise WrongUsage("--output needs --from: it writes the change between two plans")
    if "-" in (given.file, given.output):
        raise WrongUsage("--output needs files: the plan is read again when the change is made")
    not_over([("--output", given.output)], given.file, given.old, given.machine, *given.var_file, *given.from_var_file)


def _write(change: Difference, given: Namespace) -> None:
    """Write a change for layout.update()."""
    from hipplan.program.reviewed import reviewed

    plan = load_plan(given.file, given)
    if plan.plan.ranks is not None:
        raise WrongUsage("--output: a plan for ranks has a change for each rank: pass the plan to layout.update()")
    not_over([("--output", given.output)], *plan.files)
    folder = os.path.dirname(os.path.abspath(given.output))  # noqa: PTH100, PTH120
    path = os.path.relpath(given.file, folder)
    write_output(given.output, reviewed(change, path, plan, given.lose).text(), "the change")


def _preview_one(program: Program, given: Namespace) -> None:
    from hipplan.lowering import pieces
    from hipplan.lowering.lowered import lowered
    from hipplan.program import open_sizes
    from hipplan.program.difference import from_nothing
    from hipplan.show import render, render_json, summary
    from hipplan.show.tables import console

    if given.format != "json" or given.strict:
        show_warnings(program.warnings, given)
    if given.format == "json":
        _print_json(render_json.program_json(program), lambda: render_json.program_summary(program), given)
        return
    steps = from_nothing(program).all_steps
    rank = f", rank {program.rank.rank} of {program.rank.ranks}" if program.rank.ranks > 1 else ""
    heading = f"{program.name} on {program.machine}{rank}: {counted(len(steps), 'step')}, nothing done"
    render.print_line(heading, style="bold")
    render.print_line(render.devices_text(program, here=not given.machine))
    if given.tensors:
        _print_tensors(program, given)
    else:
        _print_rows(steps, program, given)
    if (bars := summary.device_bars(program)).row_count:
        console().print(bars)
    print(render.totals(program))
    for note in filter(None, (open_sizes.note(program), pieces.note(lowered(program)))):
        render.print_line(note)


def _print_json(whole: dict[str, Any], summed_up: Callable[[], dict[str, Any]], given: Namespace) -> None:
    """Print a document, or a summary in its place if it is long: a few lines of a plan may become a million rows."""
    text: Iterable[str] = strict_json.pieces(whole)
    if not given.all:
        text = strict_json.within(text, _JSON_MAX) or strict_json.pieces(summed_up())
    sys.stdout.writelines(text)


def _print_rows(steps: Sequence[Step], program: Program, given: Namespace) -> None:
    """Print the steps and objects, or a summary of them."""
    from hipplan.show import render, summary

    by_kind = summary.resources_by_kind(program)
    rows = len(steps) + summary.how_many(by_kind)
    if not (given.all or given.grep or rows <= summary.ROWS_MAX):
        print(summary.steps_summary(steps))
        print(summary.resources_summary(by_kind))
        render.print_line(summary.left_out(rows))
        return
    numbered, resources = [*enumerate(steps, 1)], [*program.resources]
    if given.grep:
        numbered = summary.named(numbered, given.grep, lambda step: step[1].name)
        resources = summary.named(resources, given.grep, lambda resource: resource.name)
    if given.grep and not (numbered or resources):
        render.print_line(f"no name contains '{given.grep}'; --all shows every row")
    else:
        print(render.steps_table(numbered))
        print(render.resources_table(resources))


def _print_tensors(program: Program, given: Namespace) -> None:
    from hipplan.show import render, summary

    tensors = [resource for resource in program.resources if resource.kind == "tensor"]
    tensors = summary.named(tensors, given.grep, lambda tensor: tensor.name) if given.grep else tensors
    print(summary.tensors_table(tensors))
    render.print_line(counted(len(tensors), "tensor"))


def _preview_all(all_ranks: AllRanks, given: Namespace) -> None:
    """A line for each rank."""
    from hipplan.show import render, render_json, summary

    ranks = programs_of_ranks(all_ranks)
    if given.format != "json" or given.strict:
        show_warnings(together([program.warnings for program in ranks]), given)
    if given.format == "json":
        _print_json(render_json.ranks_json(ranks), lambda: render_json.ranks_summary(ranks), given)
        return
    first = ranks[0]
    nodes = counted(1 + max(rank.node for rank in all_ranks.ranks), "node")
    heading = f"{first.name} on {first.machine}: {counted(len(ranks), 'rank')} on {nodes}, nothing done"
    render.print_line(heading, style="bold")
    shown = ranks if given.all or len(ranks) <= summary.ROWS_MAX else ranks[: summary.ROWS_MAX - 1]
    print(render.ranks_table(shown))
    if len(shown) < len(ranks):
        render.print_line(f"and {len(ranks) - len(shown)} more ranks; --all shows each")


def _preview_change(difference: Difference, given: Namespace) -> list[Line]:
    """Print the change from one plan to another; returns what changes."""
    from hipplan.program import listing
    from hipplan.show import render, render_json, summary
    from hipplan.show.tables import console

    lines = listing.lines(difference)
    if given.format != "json" or given.strict:
        show_warnings(difference.new.warnings, given)
    if given.format == "json":
        whole = render_json.difference_json(difference)
        _print_json(whole, lambda: render_json.difference_summary(difference), given)
        return lines
    steps = [*enumerate(difference.all_steps, 1)]
    programs_text = f"{difference.old.source} -> {difference.new.source} on {difference.new.machine}"
    render.print_line(f"{programs_text}: nothing done", style="bold")
    if given.grep:
        differences = summary.named(lines, given.grep, lambda line: line.name)
        steps = summary.named(steps, given.grep, lambda step: step[1].name)
    else:
        differences = lines
    rows = len(differences) + len(steps)
    if given.all or given.grep or rows <= summary.ROWS_MAX:
        if differences:
            console().print(render.difference_table(differences), soft_wrap=True)
        if steps:
            print(render.steps_table(steps))
    else:
        console().print(render.coloured_signs(summary.changes_summary(lines)), soft_wrap=True)
        print(summary.steps_summary(difference.all_steps))
        render.print_line(summary.left_out(rows))
    if note := listing.note(difference):
        render.print_line(note)
    if difference.released:
        names = [step.name for step in reversed(difference.released)]
        few = names if given.all or len(names) <= summary.ROWS_MAX else names[:_FEW]
        more = f" and {len(names) - len(few)} more" if len(few) < len(names) else ""
        render.print_line(f"released at the end: {', '.join(few)}{more}")
    render.print_line(listing.summary(lines), style="bold")
    return lines
