"""hipplan sim: run any HIP program on the simulator."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from hipplan.cli.options import MachineOption
from hipplan.errors import Diagnostic, RuntimeUnavailable


def sim(
    command: Annotated[list[str], typer.Argument(metavar="CMD...", help="The program and its arguments, after --.")],
    machine: MachineOption = None,
    hip_version: Annotated[
        str | None, typer.Option("--hip-version", metavar="X.Y", help="The HIP release to be, as 6.3 or 7.2.")
    ] = None,
    fail: Annotated[
        str | None, typer.Option("--fail", metavar="RULES", help="Fail calls, as hipMemMap@3=hipErrorOutOfMemory.")
    ] = None,
    trace: Annotated[
        str | None, typer.Option("--trace", metavar="FILE", help="Append a JSON line per call to a file.")
    ] = None,
) -> None:
    """Run a program that asks for libamdhip64 on the simulator; its exit code is passed on.

    Example: hipplan sim --machine mi300x-8 --hip-version 6.3 -- ./my_program --its-own-option
    """
    from hipplan.simulator import run

    given = {"HIPSIM_FAIL": fail, "HIPSIM_TRACE": trace}
    variables = {name: value for name, value in given.items() if value is not None}
    try:
        code = run(command, _profile(machine, hip_version), variables)
    except (FileNotFoundError, PermissionError) as error:
        hint = "name a program that can be run, after --"
        raise RuntimeUnavailable(Diagnostic("HP407", f"the program cannot be started: {error}", hint=hint)) from None
    raise typer.Exit(code)


def _profile(machine: str | None, hip_version: str | None) -> str | None:
    """The simulator's profile text; None leaves it to HIPSIM_PROFILE, or to the simulator's own default."""
    from hipplan.profiles import Machine, load_machine, sim_profile

    if machine is None and hip_version is None:
        return None if "HIPSIM_PROFILE" in os.environ else sim_profile(load_machine("sim-2"))
    profile = load_machine(machine or "sim-2")
    if hip_version is not None:
        if not all(part.isdigit() for part in hip_version.split(".")) or hip_version.count(".") not in (1, 2):
            raise typer.BadParameter(f"'{hip_version}' is not a version such as 6.3", param_hint="--hip-version")
        profile = Machine.model_validate(profile.model_dump(exclude_none=True) | {"hip_version": hip_version})
    return sim_profile(profile)
