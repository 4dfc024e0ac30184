"""hipplan apply: apply a plan, report, hold it until told, tear it down."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hipplan.cli.interrupts import Interrupted, Interrupts
from hipplan.cli.options import (
    Format,
    FormatOption,
    MachineOption,
    PlanFile,
    RuntimeOption,
    VarsOption,
    parse_vars,
    source_of,
)
from hipplan.errors import LeakError

if TYPE_CHECKING:
    from hipplan.layout import Layout
    from hipplan.program import Program


def apply(
    file: PlanFile,
    once: Annotated[bool, typer.Option("--once", help="Tear down at once instead of holding until ^C.")] = False,
    machine: MachineOption = None,
    runtime: RuntimeOption = None,
    var: VarsOption = [],  # noqa: B006
    verify: Annotated[bool, typer.Option(help="Read back what the driver did and compare.")] = True,
    format: FormatOption = Format.text,  # noqa: A002
) -> None:
    """Apply a plan, all or nothing; report; hold it until ^C or SIGTERM; tear it down.

    While it is held, `hipplan verify` reads it back from another process.
    --machine shapes the simulator. With --format json, two JSON documents, a line each: when applied, when torn
    down. Exit code: 0 done, 2 invalid plan, 3 the machine cannot hold it, 4 failed and rolled back, 5 something
    could not be given back, 130 and 143 interrupted.
    """
    from hipplan.api import prepare
    from hipplan.loader import load
    from hipplan.profiles import load_machine
    from hipplan.runtimes import choose
    from hipplan.transaction import run
    from hipplan.undo import hurry

    plan = load(source_of(file), parse_vars(var))
    profile = load_machine(machine) if machine else None
    chosen = choose(runtime, profile)
    if chosen.notice:
        print(f"notice: {chosen.notice}", file=sys.stderr)
    program = prepare(plan, chosen, profile)
    for warning in program.warnings:
        print(warning, file=sys.stderr)
    with Interrupts(hurry) as interrupts, _progress(program) as advance:

        def between(number: int, step: object) -> None:
            interrupts.check()
            advance(number)

        try:
            layout = run(program, chosen.runtime, on_step=between, check=verify, notice=chosen.notice)
        except Interrupted as interrupted:
            print(f"{interrupted}: rolled back", file=sys.stderr)
            cause = interrupted.__cause__
            if isinstance(cause, Exception):
                raise cause from None
            raise typer.Exit(interrupted.exit_code) from None
        _report(layout, format)
        if not once:
            _hold(layout, interrupts)
        _tear_down(layout, format)
    # Also of a signal that came after the last step: whoever sent it is told that it was heard.
    raise typer.Exit(128 + interrupts.number if interrupts.number else 0)


def _hold(layout: Layout, interrupts: Interrupts) -> None:
    from hipplan import held

    with held.Answers(lambda: held.report(layout)) as answers:
        print("holding; ^C or SIGTERM tears it down", file=sys.stderr, flush=True)
        interrupts.wait(answers)


def _report(layout: Layout, format: Format) -> None:  # noqa: A002
    from hipplan import render
    from hipplan.runtimes import version_of
    from hipplan.undo import retried_text

    if format is Format.json:
        print(json.dumps(render.layout_json(layout)), flush=True)
        return
    program = layout.program
    out = render.console()
    checks = f"{len(layout.checks)} checks passed" if layout.checks else "not verified"
    where = f"{program.machine}, {version_of(layout.runtime)}"
    out.print(f"{program.name}: applied on {where}; {len(program.steps)} steps, {checks}", style="bold")
    out.print(render.resources_table(program.resources, layout))
    out.print(render.totals(program))
    if layout.retries:
        out.print(retried_text(layout.retries))
    sys.stdout.flush()


def _tear_down(layout: Layout, format: Format) -> None:  # noqa: A002
    from hipplan import render

    try:
        undone = layout.close()
    except LeakError as error:
        if format is Format.json and error.undone is not None:
            print(json.dumps(render.undone_json(error.undone)), flush=True)
        raise
    if format is Format.json:
        print(json.dumps(render.undone_json(undone)), flush=True)
    else:
        print(f"torn down: {undone.summary()}", flush=True)


def _progress(program: Program) -> Any:
    """A progress bar on stderr for long programs on a terminal."""
    from contextlib import nullcontext

    if not sys.stderr.isatty() or len(program.steps) < 200:
        return nullcontext(lambda number: None)
    from hipplan.cli.progress import progress

    return progress("applying", len(program.steps))
