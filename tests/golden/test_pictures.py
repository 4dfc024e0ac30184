"""Whole pictures, those of the docs; `HIPPLAN_GOLDEN=write pytest tests/golden` writes them anew, to be looked at."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.conftest import Run, hipplan, started  # noqa: F401
from tests.conftest import ROOT

FOLDER = ROOT / "docs" / "pictures"
CASES = {
    "quickstart": ["quickstart.yaml", "--machine", "sim-2"],
    "expert-parallel": ["expert-parallel.yaml", "--machine", "sim-2"],
    "hpc-staging": ["hpc-staging.yaml", "--machine", "sim-2"],
    "sealed-weights": ["sealed-weights.yaml", "--machine", "mi300a-4"],
    "llama-3-70b": ["mi300x-8/llama-3-70b.yaml", "--machine", "mi300x-8", "--var", "tp=1"],
    "spread-tensor": ["h200-4/spread-tensor.yaml", "--machine", "h200-4"],
    "symmetric-heap": ["ranks/symmetric-heap.yaml", "--machine", "h200-4"],
    "shared-weights": ["ranks/shared-weights.yaml", "--machine", "mi300x-8", "--ranks", "8"],
    "change": ["../docs/pictures/after.yaml", "--from", "../docs/pictures/before.yaml", "--machine", "sim-2"],
}


@pytest.mark.parametrize("name", CASES)
def test_the_picture_equals_the_golden_file(name: str, hipplan: Run) -> None:  # noqa: F811
    done = hipplan("draw", *CASES[name], cwd=ROOT / "plans")
    golden = FOLDER / f"{name}.svg"
    if os.environ.get("HIPPLAN_GOLDEN") == "write":
        golden.write_text(done.stdout)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == golden.read_text()


def test_the_page_of_the_docs_is_fresh(hipplan: Run, tmp_path: Path) -> None:  # noqa: F811
    drawn, golden = tmp_path / "drawn.html", FOLDER / "llama-3-70b.html"
    assert hipplan("draw", *CASES["llama-3-70b"], "-o", drawn, cwd=ROOT / "plans").returncode == 0
    if os.environ.get("HIPPLAN_GOLDEN") == "write":
        golden.write_bytes(drawn.read_bytes())

    assert drawn.read_bytes() == golden.read_bytes()


def test_the_docs_have_no_other_pictures() -> None:
    assert {path.stem for path in FOLDER.glob("*.svg")} == set(CASES)
