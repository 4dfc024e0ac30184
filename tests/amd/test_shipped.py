"""Every shipped plan on AMD's own library, on the machine that it is for: eight MI300X, of which a runner of 16 GB has
the memory of a twelfth of one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hipplan.machines import topology
from hipplan.machines.profiles import load_machine
from tests.conftest import ROOT

PLANS = sorted((ROOT / "plans").rglob("*.yaml"))
RANKS = 4


def apply(plan: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "hipplan", "apply", str(plan), "--once", *arguments]
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, env=os.environ | variables, text=True, **piped)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: str(plan.relative_to(ROOT / "plans").with_suffix("")))
def test_a_shipped_plan_applies_on_eight_mi300x(release: str, plan: Path, tmp_path: Path) -> None:
    topology.write(tmp_path / "machine", load_machine("mi300x-8"))
    machine = {"KFDSIM_MACHINE": str(tmp_path / "machine")}
    if plan.parent.name == "ranks":
        processes = [
            apply(plan, "--group", str(tmp_path / "group"), **machine, RANK=str(rank), WORLD_SIZE=str(RANKS))
            for rank in range(RANKS)
        ]
    else:
        processes = [apply(plan, **machine)]
    outputs = [process.communicate()[0] for process in processes]

    assert [process.returncode for process in processes] == [0] * len(processes), outputs
    assert "nothing leaked" in outputs[0]
