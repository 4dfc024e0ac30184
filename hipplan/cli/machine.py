"""hipplan machine: measure this machine, list and show known ones, compare two."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from hipplan.cli.options import Format, FormatOption, RuntimeOption

app = typer.Typer(help="Measure this machine as a profile; list, show and compare profiles.")


@app.callback(invoke_without_command=True)
def machine(
    context: typer.Context,
    runtime: RuntimeOption = None,
    format: FormatOption = Format.text,  # noqa: A002
    diff: Annotated[
        tuple[str, str] | None,
        typer.Option("--diff", metavar="A B", help="Show where two profiles differ.", show_default=False),
    ] = None,
) -> None:
    """Measure this machine and print its profile: `hipplan machine > box.yaml`."""
    if context.invoked_subcommand is not None:
        return
    if diff is not None:
        _diff(*diff, format)
        return
    from hipplan.cli.measured import measured
    from hipplan.profiles import to_yaml

    found = measured(runtime)
    from hipplan import _core

    if format is Format.json:
        body = found.model_dump(exclude_none=True)
        print(json.dumps({"format_version": 1, "built_with": _core.compiler, "machine": body}, indent=2))
        return
    print(f"# measured by hipplan {_core.__version__}, built with {_core.compiler}")
    print(to_yaml(found), end="")


@app.command("list")
def list_profiles(format: FormatOption = Format.text) -> None:  # noqa: A002
    """List the profiles that come with hipplan."""
    from hipplan.profiles import load_machine, machine_names

    known = {name: load_machine(name) for name in machine_names()}
    if format is Format.json:
        rows = [{"name": name, "description": m.description, "devices": len(m.devices)} for name, m in known.items()]
        print(json.dumps({"format_version": 1, "machines": rows}, indent=2))
        return
    width = max(map(len, known))
    for name, profile in known.items():
        print(f"{name:<{width}}  {profile.description}")


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="A shipped name or a YAML file.")],
    format: FormatOption = Format.text,  # noqa: A002
) -> None:
    """Print one profile."""
    from hipplan.profiles import load_machine, to_yaml

    profile = load_machine(name)
    if format is Format.json:
        print(json.dumps({"format_version": 1, "machine": profile.model_dump(exclude_none=True)}, indent=2))
    else:
        print(to_yaml(profile), end="")


def _diff(a: str, b: str, format: Format) -> None:  # noqa: A002
    from hipplan.profiles import diff, load_machine

    differences = diff(load_machine(a), load_machine(b))
    if format is Format.json:
        rows = [{"figure": figure, "a": left, "b": right} for figure, left, right in differences]
        print(json.dumps({"format_version": 1, "differences": rows}, indent=2))
        return
    for figure, left, right in differences:
        print(f"{figure}: {left} -> {right}")
