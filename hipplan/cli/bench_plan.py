"""`hipplan bench PLAN`: the figures of a plan's own memory."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from hipplan.cli.arguments import WrongUsage, print_notice, source_of
from hipplan.cli.interrupts import Interrupted, Interrupts
from hipplan.cli.progress import Bars
from hipplan.cli.variables import load_plan
from hipplan.errors import ExitCode, Problem, suggest_or_list
from hipplan.files import strict_json

if TYPE_CHECKING:
    from hipplan.measure.copies import Unmeasured
    from hipplan.measure.figures import Figure

SHOWN_MAX = 8
"""Copies without a figure that the text names."""


def run(given: Namespace) -> int:
    from dataclasses import asdict

    from hipplan.layout.assembly import target
    from hipplan.layout.prepare import prepare
    from hipplan.layout.undo import answer_interrupt
    from hipplan.machines.place import System
    from hipplan.machines.provenance import kind_of
    from hipplan.machines.runtimes import described
    from hipplan.measure.copies import OBJECTS_MAX, measurable, selected, unmeasured
    from hipplan.measure.measured import KINDS, measured

    kinds = given.measure.split(",") if given.measure else list(KINDS)
    for kind in kinds:
        if kind not in KINDS:
            raise WrongUsage(f"--measure: there is no '{kind}'; {suggest_or_list(kind, KINDS)}")
    plan = load_plan(source_of(given.file), given)
    where = target(given.runtime, given.machine)
    chosen, profile = where.chosen, where.profile
    print_notice(chosen.notice)
    patterns = given.objects.split(",") if given.objects else []
    left_out, without_figure = 0, []
    if set(kinds) & {"copy", "latency"}:
        program = prepare(plan, chosen, profile)
        try:
            names = selected(program, patterns)
            left_out = 0 if patterns else len(measurable(program)) - len(names)
            without_figure = unmeasured(program, patterns)
        except Problem as problem:
            raise WrongUsage(f"--objects: {problem.summary}; {problem.hint}") from None
    figures: list[Figure] = []
    try:
        with Interrupts(answer_interrupt) as interrupts, Bars() as bars:

            def between(what: str) -> None:
                interrupts.check()
                bars.show("measuring", len(figures), len(figures) + 1, what)

            for figure in measured(plan, chosen, profile, kinds, patterns, given.repeats, between):
                figures.append(figure)
    except Interrupted as interrupted:
        return interrupted.exit_code
    if given.format == "json":
        body = {"plan": plan.digest, "runtime": kind_of(chosen.kind, System.here()), "left_out": left_out}
        rows = {"figures": [*map(asdict, figures)], "unmeasured": [copy._asdict() for copy in without_figure]}
        print(strict_json.document(None, event="bench", library=described(chosen.runtime), **body, **rows))
    else:
        _print(figures, without_figure)
        if left_out:
            print(
                f"objects left out: {left_out}, after the first {OBJECTS_MAX}; --objects names those to copy, '*' all"
            )
    return ExitCode.OK


def _print(figures: list[Figure], without_figure: list[Unmeasured]) -> None:
    from hipplan.show import render
    from hipplan.show.tables import fitted_table
    from hipplan.units import short_size

    for copy in without_figure[:SHOWN_MAX]:
        render.print_line(f"{copy.name} has no figure: {copy.why}")
    if len(without_figure) > SHOWN_MAX:
        render.print_line(f"and {len(without_figure) - SHOWN_MAX} more copies have none: --format json names them")
    if not figures and not without_figure:
        render.print_line("there is nothing to measure: see --measure and --objects; a copy needs two objects")
    if not figures:
        return
    rows = [
        [
            figure.what,
            figure.name,
            short_size(figure.bytes),
            f"{figure.value:.4g} {figure.unit}",
            f"{figure.lowest:.4g} to {figure.highest:.4g}",
            "" if figure.plain is None else f"{figure.plain:.4g}",
        ]
        for figure in figures
    ]
    print(fitted_table(["", "of", "bytes", "median", "range", "ordinary buffers"], rows), end="")
