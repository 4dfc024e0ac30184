"""Groups over an actor of Ray: ranks that are actors on two nodes, one of which is lost."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install ray")


def test_a_rank_is_lost_and_the_plan_applied_again() -> None:
    path = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    line = [sys.executable, "-m", "tests.ranks.ray_ranks"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])

    assert report["first"] == report["again"] == [[0, [1]], [0, [0]], [1, [3]], [1, [2]]]
    assert report["lost"] == "ended"
    assert all(item.endswith("nothing leaked") for item in report["closed"])
    assert report["bytes"] == [[0], [1], [2], [3]]
    assert report["without the last"] == ["HP431", "HP431", "HP431", "gone"]
