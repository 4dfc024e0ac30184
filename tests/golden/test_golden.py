"""Whole outputs of `hipplan validate` for a handful of bad plans: places, carets, hints, order, expansions.

Each folder of tests/golden holds a plan and what is said of it; `HIPPLAN_GOLDEN=write pytest tests/golden` writes that
anew, to be read before it is committed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Run, hipplan, started  # noqa: F401

CASES = sorted(path for path in Path(__file__).parent.iterdir() if (path / "plan.yaml").exists())


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_the_output_equals_the_golden_file(case: Path, hipplan: Run) -> None:  # noqa: F811
    machine = re.match(r"# machine: (\S+)", (case / "plan.yaml").read_text())
    done = hipplan("validate", "plan.yaml", *(["--machine", machine[1]] if machine else []), cwd=case)
    output = f"{done.stdout}{done.stderr}\nexit code {done.returncode}\n"
    if os.environ.get("HIPPLAN_GOLDEN") == "write":
        (case / "said.txt").write_text(output)

    assert output == (case / "said.txt").read_text()


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 8
