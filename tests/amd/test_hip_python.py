"""AMD's own Python bindings on AMD's own library, over the stand-in."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from tests.conftest import ROOT

PROGRAM = ROOT / "tests" / "sim" / "clients" / "with_hip_python.py"


@pytest.mark.skipif(importlib.util.find_spec("hip") is None, reason="hip-python is not installed: --group clients")
def test_virtual_memory_managed_memory_and_peers(release: str) -> None:
    ran = subprocess.run([sys.executable, PROGRAM], capture_output=True, text=True)

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "hip-python: AMD Instinct MI300X gfx942:sramecc+:xnack-"
