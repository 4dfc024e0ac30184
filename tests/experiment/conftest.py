"""An experiment in a folder, and running it as the command does: its repetitions are processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hipplan.experiment.results import ResultLine
from tests.started import run

PLAN = """hipplan: 1
vars: {size: 4MiB, device: gpu.0}
regions:
  a: {device: $(device), size: $(size), attached: rw}
"""
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """write(text, code="", plan=PLAN): the path of an experiment with this text, its plan and its module code.py."""
    monkeypatch.setenv("HIPPLAN_RUNTIME", "sim")
    monkeypatch.chdir(tmp_path)

    def write(text: str, code: str = "", plan: str = PLAN) -> Path:
        (tmp_path / "plan.yaml").write_text(plan)
        (tmp_path / "measured.py").write_text(code)
        path = tmp_path / "e.experiment.yaml"
        path.write_text(f"hipplan_experiment: 1\nplan: plan.yaml\n{text}")
        return path

    return write


def experiment(*arguments: object) -> int:
    """The exit code. It runs in a process of its own."""
    return run(["experiment", *map(str, arguments)])


def lines(path: Path) -> list[dict[str, Any]]:
    """The results of an experiment."""
    return [json.loads(line) for line in path.with_name("e.results.jsonl").read_text().splitlines()]


def synthetic(number: int) -> ResultLine:
    """A line of results, of a cell of its own."""
    return {
        "experiment": {}, "cell": {"vary": {"a": number}, "env": {}}, "repetition": 0, "result": "ok", "metrics": {},
        "units": {}, "plan": {}, "provenance": {},
    }  # fmt: skip
