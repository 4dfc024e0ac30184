"""The plans of experiments/ make, on AMD's own library, the calls of the programs that they follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hipplan.machines.runtimes import choose
from tests.experiment.shipped import calls_of, each_plan


@pytest.fixture(autouse=True)
def on_amd(release: str) -> None:
    """Skips where there is no library of AMD's."""


@each_plan
def test_a_plan_makes_the_calls_of_the_program(
    plan: str, variables: dict[str, Any], expected: dict[str, int], tmp_path: Path
) -> None:
    assert calls_of(plan, variables, choose(), tmp_path / "trace") == expected
