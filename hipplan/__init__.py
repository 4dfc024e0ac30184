"""hipplan: one YAML plan for a GPU experiment's memory, checked without a GPU, applied all or nothing.

    plan = hipplan.load("plan.yaml", vars={"kv_chunks": 128})
    program = hipplan.compile(plan, machine=hipplan.machine("mi300x-8"))
    with hipplan.apply(plan) as layout:
        layout["scratch"].address, layout["scratch"].size

Everything is loaded when it is first used, so importing hipplan is quick, and loading and compiling plans
needs no compiled part.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hipplan.api import apply
    from hipplan.compiler import compile  # noqa: A004
    from hipplan.errors import (
        ApplyError,
        Diagnostic,
        HipplanError,
        LayoutInUse,
        LeakError,
        MachineError,
        PlanError,
        RuntimeUnavailable,
    )
    from hipplan.layout import Layout
    from hipplan.loader import LoadedPlan, load
    from hipplan.profiles import Machine
    from hipplan.profiles import load_machine as machine
    from hipplan.program import Program
    from hipplan.views import Piece

__version__ = "0.1.0"

_WHERE = {
    "ApplyError": "errors",
    "Diagnostic": "errors",
    "HipplanError": "errors",
    "Layout": "layout",
    "LayoutInUse": "errors",
    "LeakError": "errors",
    "LoadedPlan": "loader",
    "Machine": "profiles",
    "MachineError": "errors",
    "Piece": "views",
    "PlanError": "errors",
    "Program": "program",
    "RuntimeUnavailable": "errors",
    "apply": "api",
    "compile": "compiler",
    "load": "loader",
    "machine": "profiles.load_machine",
}
__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name == "_core":
        return _compiled_part()
    where = _WHERE.get(name)
    if where is None:
        raise AttributeError(f"module 'hipplan' has no attribute {name!r}")
    module, _, attribute = where.partition(".")
    value = getattr(import_module(f"hipplan.{module}"), attribute or name)
    globals()[name] = value
    return value


def _compiled_part() -> Any:
    """`from hipplan import _core` comes here first: a missing compiled part explains itself, wherever it shows."""
    try:
        return import_module("hipplan._core")
    except ModuleNotFoundError as error:
        if error.name != "hipplan._core":
            raise
    from hipplan.errors import Diagnostic, RuntimeUnavailable

    raise RuntimeUnavailable(
        Diagnostic(
            "HP408",
            "the compiled part of hipplan (hipplan._core) is missing",
            why="applying a plan and measuring a machine need it; validate and preview --machine do not",
            hint="run `pip install .` in hipplan's source folder, with a C++ compiler at hand",
        )
    )
