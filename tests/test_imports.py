"""What the first call of a process imports: most of the time that a command or an attach takes is that."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import ROOT

READS_PLANS = frozenset({
    "yaml", "hipplan.language.source", "hipplan.language.expand", "hipplan.language.resolve", "hipplan.language.loader",
    "hipplan.language.model.translate", "hipplan.machines.profiles", "hipplan.program.compiler",
    "hipplan.lowering.compiler", "hipplan.program.preflight", "hipplan.program.devices", "hipplan.program.lock",
    "hipplan.layout.recorded", "hipplan.language.model.plan", "hipplan.kinds.plans", "hipplan.kinds.plan",
})  # fmt: skip
"""What attaching to memory need not import: the program is made already."""
HEAVY = frozenset({
    "pydantic", "yaml", "rich", "numpy", "importlib.metadata", "email", "concurrent.futures", "difflib", "asyncio",
    "subprocess", "hipplan.language", "hipplan.program", "hipplan.layout",
})  # fmt: skip
"""What commands that only ask a holder need not import."""


def imported(script: str) -> set[str]:
    script += "\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return {*done.stdout.splitlines()[-1].split()}


def test_attaching_imports_nothing_that_reads_plans() -> None:
    modules = imported("import hipplan; hipplan.attach")

    assert "hipplan.layout.layout" in modules
    assert modules & (READS_PLANS | {"rich", "numpy", "importlib.metadata", "asyncio", "concurrent.futures"}) == set()


def test_the_first_apply_imports_nothing_that_only_other_calls_need() -> None:
    """Imports are most of what the first apply in a process takes longer than the second."""
    modules = imported("import hipplan; hipplan.apply; hipplan.load")

    assert "hipplan.layout.layout" in modules and "hipplan.language.loader" in modules
    others = {"ctypes", "rich", "numpy", "asyncio", "concurrent.futures", "torch"}
    rooms = {f"hipplan.{room}" for room in ("show", "pictures", "holders", "ranks", "checkup", "experiment", "cli")}
    assert modules & (others | rooms) == set()


def test_an_apply_that_prints_to_a_file_imports_nothing_that_it_does_not_print_with() -> None:
    """Nor pydantic's search for plugins, which is for the processes of users: no variable tells their children."""
    line = ["apply", str(ROOT / "plans" / "quickstart.yaml"), "--once", "--runtime", "sim"]
    script = f"""
import os
from hipplan.cli.main import run
before = dict(os.environ)
assert run({line!r}) == 0 and os.environ == before"""
    modules = imported(script)

    assert "hipplan.layout.run" in modules
    others = {
        "rich",
        "importlib.metadata",
        "email",
        "difflib",
        "hipplan.program.written",
        "hipplan.language.model.translate",
    }
    rooms = {f"hipplan.{room}" for room in ("machines.provenance", "pictures", "holders", "ranks", "experiment")}
    assert modules & (others | rooms) == set()


def test_a_holder_imports_nothing_that_reads_plans() -> None:
    modules = imported("import hipplan.cli.main, hipplan.cli.up, hipplan.holders.holder")

    assert modules & (READS_PLANS | {"pydantic", "hipplan.language.model", "hipplan._core"}) == set()


@pytest.mark.parametrize(
    "line",
    [
        ["--help"],
        ["ps"],
        ["ps", "--format", "json"],
        ["down", "no"],
        ["sleep", "no"],
        ["wake", "no"],
        ["attach", "--help"],
    ],
)
def test_a_command_that_needs_no_plan_imports_neither_plans_nor_layouts(line: list[str]) -> None:
    modules = imported(f"from hipplan.cli.main import run; run({line!r})")

    assert "hipplan.cli.main" in modules
    assert modules & (HEAVY | {"hipplan._core"}) == set()


def test_the_version_needs_no_machine() -> None:
    modules = imported("from hipplan.cli.main import run; run(['--version'])")

    assert modules & HEAVY == set()
