"""hipplan bench: measure copies between all devices; or a plan's own memory: copies, prefetch, first touch, map.

Bandwidth counts each copied byte once; latency is the time of a copy of 4096 bytes and of the wait for it. Without PLAN
it needs twice the size on each device, four times with --compare.
With PLAN: copies between its objects, all pairs of the first 16, or of --objects, that have the rights; prefetch and
first touch of its managed memory; map and unmap of its mapped memory. Each stands beside the same of ordinary buffers
(hipMalloc, hipHostMalloc).

Examples:
  hipplan bench
  hipplan bench --size 64MiB --compare --format json
  hipplan bench plan.yaml --measure copy,latency --objects 'weights,kv.*'
"""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from hipplan.cli.arguments import (
    Parser,
    WrongUsage,
    format_option,
    integer,
    machine_option,
    not_empty,
    print_notice,
    runtime_option,
    sized_by,
)
from hipplan.cli.interrupts import Interrupted, Interrupts
from hipplan.cli.progress import Bars
from hipplan.cli.variables import vars_option
from hipplan.errors import ExitCode
from hipplan.files import strict_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from hipplan.bench import CopySpeed, Matrix

REPEATS_MAX = 100_000


def declare(parser: Parser) -> None:
    parser.add_argument("file", metavar="PLAN", nargs="?", type=not_empty, help="the plan whose memory is measured")
    about = "with PLAN: which of copy, latency, prefetch, first_touch and map, with commas between (default: all)"
    parser.add_argument("--measure", metavar="KINDS", type=not_empty, help=about)
    about = (
        "with PLAN: copy between these: names or patterns such as 'kv.*', with commas between (default: the first 16)"
    )
    parser.add_argument("--objects", metavar="NAMES", type=not_empty, help=about)
    parser.add_argument("--size", default="", help="bytes per copy (default: 256MiB, simulated 16MiB)")
    about = "copies of each kind; the median is reported (default: 20)"
    parser.add_argument("--repeats", type=integer, default=20, help=about)
    about = "also measure ordinary buffers, and print the ratio"
    parser.add_argument("--compare", action="store_true", help=about)
    machine_option(parser)
    runtime_option(parser)
    vars_option(parser)
    about = "let the plan include files from outside its own folder"
    parser.add_argument("--include-anywhere", action="store_true", help=about)
    format_option(parser)


def run(given: Namespace) -> int:
    if not 1 <= given.repeats <= REPEATS_MAX:
        raise WrongUsage(f"--repeats: from 1 to {REPEATS_MAX}")
    if given.file is not None:
        from hipplan.cli.bench_plan import run as run_plan

        if given.size or given.compare:
            raise WrongUsage("--size and --compare are for copies between devices: leave them out, or PLAN")
        return run_plan(given)
    if given.measure or given.objects or given.var or given.var_file or given.include_anywhere:
        raise WrongUsage("--measure, --objects, --var, --var-file and --include-anywhere are for PLAN")
    return _between_devices(given)


def _between_devices(given: Namespace) -> int:
    from dataclasses import asdict

    from hipplan.bench import measure
    from hipplan.layout.undo import answer_interrupt
    from hipplan.machines.runtimes import choose
    from hipplan.units import parse_size

    if given.machine is not None:
        raise WrongUsage("--machine is for --without-gpu")
    chosen = choose(given.runtime)
    print_notice(chosen.notice)
    try:
        wanted = parse_size(given.size or ("16MiB" if chosen.kind == "sim" else "256MiB"))
    except ValueError as error:
        raise WrongUsage(f"--size: {error}") from None
    if wanted <= 0:
        raise WrongUsage("--size: must be more than 0")
    try:
        with sized_by(HP105="--size", HP301="--size"), Interrupts(answer_interrupt) as interrupts, Bars() as bars:

            def between(done: int, total: int) -> None:
                interrupts.check()
                bars.show("copying", done, total, f"{done} of {total}")

            matrix = measure(chosen, wanted, given.repeats, given.compare, between)
    except Interrupted as interrupted:
        return interrupted.exit_code
    if given.format == "json":
        print(strict_json.document(None, event="bench", runtime=chosen.kind, **asdict(matrix)))
    else:
        _print(matrix, given.compare)
    return ExitCode.OK


def _print(matrix: Matrix, compare: bool) -> None:
    from hipplan.show import render
    from hipplan.units import short_size

    names = ", ".join(dict.fromkeys(matrix.devices))
    render.print_line(f"{len(matrix.devices)} x {names}; copies of {short_size(matrix.size)}", style="bold")
    _grid(matrix, "GB/s", lambda cell: _rounded(cell.bandwidth / 1e9))
    _grid(matrix, "latency, us", lambda cell: f"{cell.latency * 1e6:.1f}")
    if compare:
        _grid(
            matrix,
            "bandwidth relative to ordinary buffers",
            lambda cell: f"{cell.bandwidth / (cell.plain_bandwidth or 1):.3f}",
        )


def _rounded(figure: float) -> str:
    """Rounded to a tenth; smaller figures to two digits."""
    return f"{figure:.1f}" if figure >= 0.1 else f"{figure:.2g}"


def _grid(matrix: Matrix, title: str, text: Callable[[CopySpeed], str]) -> None:
    from hipplan.show.tables import fitted_table

    count = len(matrix.devices)
    columns = ["from \\ to", *(f">{to}" for to in range(count))]
    rows = [[str(source), *map(text, matrix.cells[source * count : (source + 1) * count])] for source in range(count)]
    print(f"\n{title}{fitted_table(columns, rows)}", end="")
