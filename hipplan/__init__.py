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

from hipplan import forks

# typing is slow to import, and this file comes before the command can look at signals.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hipplan._core import HipError
    from hipplan.api import apply
    from hipplan.errors import (
        ApplyError,
        Diagnostic,
        GroupError,
        GroupInDoubt,
        HeldError,
        HipplanError,
        LayoutInUse,
        LeakError,
        MachineError,
        PlanError,
        ProfileError,
        RecordError,
        RuntimeUnavailable,
        SettingError,
    )
    from hipplan.holders.attaching import attach
    from hipplan.language.loader import LoadedPlan, load
    from hipplan.language.rank import Rank
    from hipplan.layout.dma_buf import DmaBuf
    from hipplan.layout.layout import Layout
    from hipplan.layout.streams import Stream
    from hipplan.layout.transfer import Transfer
    from hipplan.layout.views import Piece
    from hipplan.lowering.compiler import compile  # noqa: A004
    from hipplan.machines.machine import Machine
    from hipplan.machines.profiles import load_machine as machine
    from hipplan.pictures.picture import Picture, draw
    from hipplan.program.difference import Difference
    from hipplan.program.program import Program
    from hipplan.ranks.groups import Group, group

__version__ = "0.1.0"

__all__ = [
    "ApplyError",
    "Diagnostic",
    "Difference",
    "DmaBuf",
    "Group",
    "GroupError",
    "GroupInDoubt",
    "HeldError",
    "HipError",
    "HipplanError",
    "Layout",
    "LayoutInUse",
    "LeakError",
    "LoadedPlan",
    "Machine",
    "MachineError",
    "Picture",
    "Piece",
    "PlanError",
    "ProfileError",
    "Program",
    "Rank",
    "RecordError",
    "RuntimeUnavailable",
    "SettingError",
    "Stream",
    "Transfer",
    "apply",
    "attach",
    "compile",
    "draw",
    "group",
    "load",
    "machine",
]
_WHERE = {
    "Difference": "program.difference",
    "DmaBuf": "layout.dma_buf",
    "Group": "ranks.groups",
    "HipError": "_core",
    "Layout": "layout.layout",
    "LoadedPlan": "language.loader",
    "Machine": "machines.machine",
    "Picture": "pictures.picture",
    "Piece": "layout.views",
    "Program": "program.program",
    "Rank": "language.rank",
    "Stream": "layout.streams",
    "Transfer": "layout.transfer",
    "apply": "api",
    "attach": "holders.attaching",
    "compile": "lowering.compiler",
    "draw": "pictures.picture",
    "group": "ranks.groups",
    "load": "language.loader",
    "machine": "machines.profiles:load_machine",
}
"""Modules; what has none here is in `errors`."""


forks.no_child_waits_for_threads_of_its_parent()


def __dir__() -> list[str]:
    """Lists the names for completion, and Python's "did you mean": a name is in globals() only after its first use."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def __getattr__(name: str) -> Any:
    if name == "_core":
        return _compiled_part()
    if name not in __all__:
        raise AttributeError(f"module 'hipplan' has no attribute {name!r}")
    module, _, attribute = _WHERE.get(name, "errors").partition(":")
    holder = _compiled_part() if module == "_core" else import_module(f"hipplan.{module}")
    value = getattr(holder, attribute or name)
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
            why="this is the pure-Python hipplan: it checks plans, but cannot apply one or measure a machine",
            hint="install a hipplan wheel for this Python and platform, or build one with a C++20 compiler: run "
            "`pip install .` in its source folder",
        )
    )
