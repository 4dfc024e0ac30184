"""The command as the ranks of real launchers."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.pauses import wait_until
from tests.ranks.test_agreement import PLAN


def _path() -> dict[str, str]:
    """The repository's hipplan first."""
    return {"PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}


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
    environment |= {**_path(), "HIPSIM_FAIL": faults}
    done = subprocess.run(line, capture_output=True, text=True, env=environment)

    events = re.findall('"event": "([^"]*)"', done.stdout)  # mpirun may put lines of several ranks together
    if faults:
        assert set(events) == {"failed"}
        assert done.returncode == 4
    else:
        assert (done.returncode, sorted(events)) == (0, ["applied"] * 4 + ["torn down"] * 4), done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_command_that_is_interrupted_while_it_waits_reports_the_others(tmp_path: Path, number: int) -> None:
    """Rank 1 of 3 waits for rank 0, which comes later and gets the error before its own deadline."""
    plan, folder = tmp_path / "plan.yaml", tmp_path / "group"
    plan.write_text(PLAN)
    line = [sys.executable, "-m", "hipplan", "apply", str(plan), "--once", "--runtime", "sim", "--group", str(folder)]

    def rank(number: int) -> subprocess.Popen[str]:
        environment = {**os.environ, **_path(), "RANK": str(number), "WORLD_SIZE": "3"}
        return subprocess.Popen([*line, "--timeout", "3600"], stderr=subprocess.PIPE, text=True, env=environment)

    first = rank(1)
    wait_until((folder / "1.hello.1").exists, "rank 1 waits")
    first.send_signal(number)
    first.communicate()
    second = rank(0)
    _, err = second.communicate()

    assert (first.returncode, second.returncode) == (128 + number, 4)
    assert "rank 1 failed" in err
    assert signal.Signals(number).name in err
