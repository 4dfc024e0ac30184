"""The command as the ranks of real launchers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.ranks.test_agreement import PLAN

MPIRUN = shutil.which("mpirun") or ""


@pytest.mark.skipif(not MPIRUN, reason="there is no mpirun: apt install openmpi-bin")
@pytest.mark.parametrize("faults", ["", "hipMemCreate@1=2"])
def test_the_command_under_mpirun(tmp_path: Path, faults: str) -> None:
    """Over a folder; mpirun says which rank each process is."""
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN)
    line = [MPIRUN, "-n", "4", "--oversubscribe", "--allow-run-as-root", sys.executable, "-m", "hipplan"]
    line += ["apply", str(plan), "--once", "--runtime", "sim", "--group", str(tmp_path / "group"), "--format", "json"]
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    environment |= {"PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}", "HIPSIM_FAIL": faults}
    done = subprocess.run(line, capture_output=True, text=True, env=environment)

    events = re.findall('"event": "([^"]*)"', done.stdout)  # mpirun may put lines of several ranks together
    if faults:
        assert set(events) == {"failed"}
        assert done.returncode == 4
    else:
        assert (done.returncode, sorted(events)) == (0, ["applied"] * 4 + ["torn down"] * 4), done.stderr
