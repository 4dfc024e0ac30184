"""hipplan preview: the steps a plan would take. Changes nothing."""

from __future__ import annotations

import json
import sys

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


def preview(
    file: PlanFile,
    machine: MachineOption = None,
    runtime: RuntimeOption = None,
    var: VarsOption = [],  # noqa: B006
    format: FormatOption = Format.text,  # noqa: A002
) -> None:
    """Show the steps a plan takes, the sizes, and what padding wastes. Changes nothing.

    With --machine no driver is touched; without it, this machine is measured through the runtime.
    """
    from hipplan import render
    from hipplan.compiler import compile as compile_plan
    from hipplan.loader import load
    from hipplan.profiles import load_machine

    plan = load(source_of(file), parse_vars(var))
    if machine:
        profile = load_machine(machine)
    else:
        from hipplan.cli.measured import measured

        profile = measured(runtime)
    program = compile_plan(plan, profile)
    if format is Format.json:
        print(json.dumps(render.program_json(program), indent=2))
        return
    for warning in program.warnings:
        print(warning, file=sys.stderr)
    out = render.console()
    out.print(f"{program.name} on {program.machine}: {len(program.steps)} steps, nothing done", style="bold")
    out.print(render.steps_table(program.steps))
    out.print(render.resources_table(program.resources))
    out.print(render.totals(program))
