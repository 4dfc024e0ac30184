"""Types of hipplan's public interface, as a type checker reports them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import hipplan
from tests.conftest import ROOT

PROGRAM = """\
import hipplan
from hipplan.ranks import ray_store

plan: hipplan.LoadedPlan = hipplan.load("plan.yaml", vars={"chunks": 128}, rank=hipplan.Rank(rank=1, ranks=2))
machine: hipplan.Machine = hipplan.machine("mi300x-8")
program: hipplan.Program = hipplan.compile(plan, machine=machine)
picture: hipplan.Picture = hipplan.draw([program, program])
ranks: hipplan.Group = hipplan.group("folder", rank=0, size=1)
actors: hipplan.Group = hipplan.group(ray_store.start(name="store"), rank=0, size=1)


def first(layout: hipplan.Layout) -> hipplan.Piece:
    return layout["scratch"]


try:
    with hipplan.apply(plan, on_step=lambda number, step: print(number, step.name), group=ranks) as layout:
        print(first(layout).address, layout.drift())
        layout.draw().save("layout.html")
        changes: hipplan.Difference = layout.update(plan)
        layout.sleep(["scratch"], to="drop", on_unmap=print, on_map=lambda names: print(len(names)))
        asleep: dict[str, str] = layout.asleep
        stream = layout["copy"]
        handle: int = stream.handle
        if isinstance(stream, hipplan.Stream):
            transfer: hipplan.Transfer = layout.copy("inbox", "scratch", stream=stream)
            transfer.wait(timeout=1.0)
        with layout.export_dma_buf("weights") as exported:
            registered: hipplan.DmaBuf = exported
            print(registered.fileno(), registered.size)
        layout.watch("weights", on_unmap=print).stop()
        layout.write("scratch", layout.read("inbox"))
        layout.wake(retain=False)
    with hipplan.attach("weights") as by_plan:
        print(by_plan["model"].read_only)
    with hipplan.attach("weights", access="r", addresses="any") as attached:
        print([f"{who}: {how}" for who, how in attached.lost.items()])
except (hipplan.ApplyError, hipplan.GroupError, hipplan.LeakError) as error:
    print(error.leaks)
except hipplan.GroupInDoubt as doubt:
    doubt.close()
except hipplan.HipError as error:
    print(error.call, error.code)
except (
    hipplan.HeldError,
    hipplan.LayoutInUse,
    hipplan.MachineError,
    hipplan.PlanError,
    hipplan.ProfileError,
    hipplan.RecordError,
    hipplan.RuntimeUnavailable,
    hipplan.SettingError,
) as error:
    told: tuple[hipplan.Diagnostic, ...] = error.diagnostics
except hipplan.HipplanError:
    raise
"""


def checked(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(program)
    line = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "program.py"]
    return subprocess.run(line, capture_output=True, text=True, timeout=600, cwd=folder)


def test_a_program_with_every_public_name_is_strictly_typed(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    assert {name for name in hipplan.__all__ if f"hipplan.{name}" not in PROGRAM} == set()

    good, wrong = checked(tmp_path, PROGRAM), checked(tmp_path, PROGRAM.replace('"mi300x-8"', "8"))

    assert good.stdout == "Success: no issues found in 1 source file\n"
    assert 'Argument 1 to "load_machine" has incompatible type "int"' in wrong.stdout


def test_the_types_match_the_code() -> None:
    tree = ast.parse((ROOT / "hipplan" / "__init__.py").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imported = [alias.asname or alias.name for line in block.body
                if isinstance(line, ast.ImportFrom) and str(line.module).startswith("hipplan")
                for alias in line.names]  # fmt: skip
    (listed,) = (ast.literal_eval(node.value) for node in tree.body
                 if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__")  # fmt: skip

    assert listed == sorted(imported)
    assert {getattr(hipplan, name).__name__ for name in listed} >= set(listed) - {"machine"}
