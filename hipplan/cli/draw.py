"""hipplan draw: a picture of a plan: the machine, what lies at which address, who may use it, and what padding wastes.

An SVG, or with -o FILE.html a page with zoom and search that needs no network. With --machine no driver is touched.
With --from OLD: what an update in place would change. Of a plan for ranks: a column for each rank, or with --rank one.

Examples:
  hipplan draw plan.yaml --machine mi300x-8 -o plan.svg
  hipplan draw plan.yaml --machine mi300x-8 -o plan.html
  hipplan draw new.yaml --from old.yaml --machine sim-2 -o change.svg
  hipplan draw shards.yaml --ranks 8 --machine h200-4 -o ranks.html
"""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from hipplan.cli.arguments import Parser, WrongUsage, not_over, output_option, show_warnings, write_output
from hipplan.cli.programs import program_options, programs
from hipplan.cli.ranks import programs_of_ranks, together
from hipplan.errors import ExitCode

if TYPE_CHECKING:
    from hipplan.pictures.picture import Picture

_PAGE, _IMAGE = (".html", ".htm"), (".svg",)


def declare(parser: Parser) -> None:
    program_options(parser)
    output_option(parser, "FILE")


def run(given: Namespace) -> int:
    from hipplan.language.budget import no_garbage_collection

    name = given.output.lower()
    if given.output != "-" and not name.endswith((*_PAGE, *_IMAGE)):
        raise WrongUsage(f"-o: {given.output} is not FILE.svg or FILE.html")
    read = (given.file, given.old, given.machine, *given.var_file, *given.from_var_file)
    not_over([("--output", given.output)], *read)
    with no_garbage_collection():
        picture = _picture(given)
        write_output(given.output, picture.html if name.endswith(_PAGE) else picture.svg, "the picture")
    return ExitCode.OK


def _picture(given: Namespace) -> Picture:
    """Raises PlanError, MachineError, WrongUsage."""
    from hipplan.pictures.picture import draw
    from hipplan.program.difference import Difference
    from hipplan.ranks.all_ranks import AllRanks

    compiled = programs(given)
    if isinstance(compiled, AllRanks):
        ranks = programs_of_ranks(compiled)
        show_warnings(together([program.warnings for program in ranks]), given)
        return draw(ranks, more_ranks=compiled.ranks[0].ranks - len(ranks))
    show_warnings((compiled.new if isinstance(compiled, Difference) else compiled).warnings, given)
    return draw(compiled)
