"""hipplan preview: the steps a plan takes, the sizes, and what padding wastes. Changes nothing.

With --machine no driver is touched; without it, this machine is measured through the runtime.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace

from hipplan.cli.arguments import (
    Parser,
    format_option,
    include_option,
    machine_option,
    parse_vars,
    plan_file,
    runtime_option,
    source_of,
    vars_option,
)


def declare(parser: Parser) -> None:
    plan_file(parser)
    machine_option(parser)
    runtime_option(parser)
    vars_option(parser)
    include_option(parser)
    format_option(parser)


def run(given: Namespace) -> int:
    from hipplan import render
    from hipplan.compiler import compile as compile_plan
    from hipplan.loader import load
    from hipplan.profiles import load_machine

    plan = load(source_of(given.file), parse_vars(given.var), include_anywhere=given.include_anywhere)
    if given.machine:
        profile = load_machine(given.machine)
    else:
        from hipplan.cli.measured import measured

        profile = measured(given.runtime)
    program = compile_plan(plan, profile)
    if given.format == "json":
        print(json.dumps(render.program_json(program), indent=2))
        return 0
    for warning in program.warnings:
        print(warning, file=sys.stderr)
    out = render.console()
    out.print(f"{program.name} on {program.machine}: {len(program.steps)} steps, nothing done", style="bold")
    out.print(render.devices_text(program, here=not given.machine), markup=False)
    out.print(render.steps_table(program.steps))
    out.print(render.resources_table(program.resources))
    out.print(render.totals(program))
    return 0
