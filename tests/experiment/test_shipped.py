"""The experiments in experiments/ are valid, their plans make the calls of the programs that they follow, and one
small cell of each runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from hipplan.cli.main import run
from hipplan.experiment import results
from hipplan.experiment.document import read
from hipplan.machines.runtimes import choose
from tests.conftest import Simulator
from tests.experiment.conftest import experiment
from tests.experiment.shipped import EXPERIMENTS, FOLDER, calls_of, each_plan

ON_TWO_GPUS = ("to", "device", "holder")
"""Axes that name a GPU: the simulator has two."""


@each_plan
def test_a_plan_makes_the_calls_of_the_program(
    plan: str, variables: dict[str, Any], expected: dict[str, int], sim: Simulator, tmp_path: Path
) -> None:
    assert calls_of(plan, variables, choose("sim"), tmp_path / "trace") == expected


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: str(path.relative_to(FOLDER)))
def test_an_experiment_fits_the_machine_that_it_is_about(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = {"multi-gpu-comm": "mi250x-8", "comm-scope": "mi250x-8", "mi300a": "mi300a-4"}[path.parent.name]

    assert run(["validate", str(path), "--machine", machine]) == 0, capsys.readouterr().err
    assert run(["fmt", "--check", str(path)]) == 0


@pytest.mark.in_parts
@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: str(path.relative_to(FOLDER)))
def test_a_small_cell_of_it_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if path.name == "stream.experiment.yaml":
        pytest.skip("it needs PyTorch: test_on_one_gpu.py runs it with a stand-in")
    monkeypatch.setenv("HIPPLAN_RUNTIME", "sim")
    axes = read(str(path)).experiment.vary
    only = [f"--only={name}=gpu.0,gpu.1" for name in ON_TWO_GPUS if name in axes]

    assert (
        experiment("run", path, f"--only=size={axes['size'][0]}", *only, "--repeat=1", "-qo", tmp_path / "r.jsonl") == 0
    )
    lines = results.read(str(tmp_path / "r.jsonl"))
    assert lines
    assert all(line["metrics"] for line in lines)


def test_each_page_says_where_its_calls_are_from() -> None:
    for page in FOLDER.glob("*/README.md"):
        text = page.read_text()
        assert "arXiv" in text and "What hipplan does not say" in text, page
        for plan in re.findall(r"\]\(([\w-]+\.(?:experiment\.)?(?:yaml|py))\)", text):
            assert (page.parent / plan).is_file(), plan
    assert len(list(FOLDER.glob("*/README.md"))) == 3
