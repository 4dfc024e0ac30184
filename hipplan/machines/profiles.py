"""Machine profiles: documents that say what a machine has.

machine = load_machine("mi300x-8")      # a shipped profile by name, or a YAML file by path
to_yaml(machine)                        # the document again
"""

from __future__ import annotations

import io
import os
from functools import cache
from importlib import resources
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import yaml
from pydantic import ValidationError

from hipplan.errors import Diagnostic, PlanError, ProfileError, suggest
from hipplan.language.findings import in_order
from hipplan.language.source import load_yaml
from hipplan.language.yaml12 import number_like
from hipplan.machines.machine import Machine

if TYPE_CHECKING:
    from importlib.abc import Traversable


def machine_names() -> list[str]:
    """The shipped profiles."""
    return [*_names()]


@cache
def _names() -> tuple[str, ...]:
    return tuple(sorted(entry.name[:-5] for entry in _shipped().iterdir() if entry.name.endswith(".yaml")))


def _shipped() -> Traversable:
    return resources.files("hipplan") / "machines"


@cache
def _shipped_machine(name: str) -> Machine:
    """Read once in a process: each apply on the simulator asks for its profile."""
    return _read(io.StringIO((_shipped() / f"{name}.yaml").read_text("utf-8")), f"{name}.yaml")


def load_machine(machine: str | os.PathLike[str] | Machine) -> Machine:
    """A shipped profile by name, any profile by path, or one that is loaded already, as it is.

    Raises ProfileError with every error of the file.
    """
    if isinstance(machine, Machine):
        return machine
    given = os.fsdecode(machine)
    if given in machine_names():
        return _shipped_machine(given).model_copy()  # what a machine works out once must not get into its copies
    if not (os.path.isfile(given) or os.sep in given or given.endswith((".yaml", ".yml"))):  # noqa: PTH113
        hint = suggest(given, machine_names()) or f"one of {', '.join(machine_names())}, or a path to a profile"
        raise ProfileError(Diagnostic("HP110", f"there is no machine profile '{given}'", hint=hint))
    return _read(Path(given), given)


def _read(file: Path | IO[str], name: str) -> Machine:
    try:
        source = load_yaml(file, name, "profile")
    except PlanError as error:  # the text is not YAML; the error is about a profile, not a plan
        raise ProfileError(error.diagnostics) from None
    problems = list(source.findings)
    try:
        machine = Machine.model_validate(source.data)
    except ValidationError as error:
        from hipplan.language.model.translate import translate  # for errors alone

        problems = [*problems, *translate(error, Machine, source.data, source.span)]
    if problems:
        raise ProfileError(in_order(problems))
    return machine


class Dumper(yaml.SafeDumper):
    """PyYAML quotes what YAML 1.1 would not read as text; this does so for 1.2, where 1e5 is a number."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if number_like(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


Dumper.add_representer(str, _text)


def to_yaml(machine: Machine) -> str:
    """The profile as a document that load_machine reads back to an equal Machine."""
    data = machine.model_dump(exclude_none=True, exclude_defaults=True)
    return yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100)


def diff(a: Machine, b: Machine) -> list[tuple[str, Any, Any]]:
    """Where two profiles differ: (figure, in a, in b). Names, notes and sources are not compared."""
    figures_a, figures_b = _figures(a), _figures(b)
    return [
        (figure, figures_a.get(figure), figures_b.get(figure))
        for figure in dict.fromkeys([*figures_a, *figures_b])
        if figures_a.get(figure) != figures_b.get(figure)
    ]


def _figures(machine: Machine) -> dict[str, Any]:
    own = ("hip_version", "runtime", "host_memory", "host_granularity")
    figures: dict[str, Any] = {figure: getattr(machine, figure) for figure in own}
    figures |= {f"limits.{key}": value for key, value in machine.limits}
    for ordinal, device in enumerate(machine.devices):
        figures |= {f"devices.{ordinal}.{key}": value for key, value in device}
    for source, target, link in machine.reachable():
        figures[f"links.{source}.{target}"] = f"{link.type},{link.hops}"
    return {figure: value for figure, value in figures.items() if value is not None}
