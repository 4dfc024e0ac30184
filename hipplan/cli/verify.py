"""hipplan verify: ask a held layout whether it is still as its plan says."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from hipplan.cli.options import Format, FormatOption
from hipplan.errors import ExitCode


def verify(
    process: Annotated[
        int | None,
        typer.Argument(metavar="[PID]", help="The process that holds it; may be left out if only one does.", min=1),
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="List the processes that hold a layout.")] = False,
    format: FormatOption = Format.text,  # noqa: A002
) -> None:
    """Read a layout back that `hipplan apply` holds in another process, and show what differs from its plan.

    Exit code: 0 all is as the plan says, 6 something differs, 4 no layout of this user can be asked.
    """
    from hipplan import held, render

    if list_all:
        holding = held.processes()
        if format is Format.json:
            print(json.dumps({"format_version": 1, "processes": holding}))
        else:
            print("\n".join(map(str, holding)) or "no process of this user holds a layout")
        return
    answer = held.ask(process)
    if format is Format.json:
        print(json.dumps(answer, indent=2))
    else:
        print(render.verified_text(answer))
    raise typer.Exit(ExitCode.CHANGES if answer.get("differ") else ExitCode.OK)
