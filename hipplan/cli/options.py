"""Options that several verbs share."""

from __future__ import annotations

import sys
from enum import Enum
from typing import IO, Annotated

import typer

from hipplan.errors import Diagnostic, PlanError


class Format(str, Enum):
    """How results are printed."""

    text = "text"
    json = "json"


PlanFile = Annotated[str, typer.Argument(metavar="FILE", help="The plan, or - for stdin.", show_default=False)]
FormatOption = Annotated[Format, typer.Option("--format", help="Results as text for people or JSON for programs.")]
VarsOption = Annotated[
    list[str], typer.Option("--var", metavar="NAME=VALUE", help="Sets a variable of the plan; may be repeated.")
]
MachineOption = Annotated[
    str | None,
    typer.Option("--machine", metavar="PROFILE", help="A machine profile: a shipped name or a YAML file."),
]
RuntimeOption = Annotated[
    str | None,
    typer.Option(
        "--runtime",
        metavar="auto|amd|cuda|sim|PATH",
        envvar="HIPPLAN_RUNTIME",
        help="The HIP runtime. auto: amd if it has a device, else cuda, else the simulator.",
        show_default="auto",
    ),
]


def parse_vars(given: list[str]) -> dict[str, str]:
    """NAME=VALUE options as a dict; the plan's own default decides the type of each value."""
    wrong = [one for one in given if "=" not in one or one.startswith("=")]
    if wrong:
        raise typer.BadParameter(f"'{wrong[0]}' is not NAME=VALUE", param_hint="--var")
    return dict(one.split("=", 1) for one in given)


def source_of(file: str) -> str | IO[bytes]:
    """A path, or standard input for `-`."""
    if file != "-":
        # A text with a line break would be read as a document; a file name is never meant so here.
        if "\n" in file or "\0" in file:
            raise PlanError(Diagnostic("HP001", "a file name cannot hold a line break or a NUL"))
        return file
    return sys.stdin.buffer
