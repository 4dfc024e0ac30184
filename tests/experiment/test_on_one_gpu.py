"""tests/hardware/experiments.py, which measures on a machine with a GPU, on the simulator; and STREAM's kernels."""

from __future__ import annotations

import shutil
import tarfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from hipplan.experiment import results
from tests.experiment.conftest import experiment
from tests.experiment.shipped import FOLDER
from tests.hardware import experiments

pytestmark = pytest.mark.in_turns

TORCH = """
from types import SimpleNamespace

class Tensor:
    def __init__(self, piece): self.shape = piece.shape
    def fill_(self, value): pass
    def copy_(self, other): assert self.shape == other.shape

cuda = SimpleNamespace(synchronize=lambda: None)

def from_dlpack(piece):
    assert piece.__dlpack_device__()[1] == 0, piece.__dlpack_device__()
    return Tensor(piece)

def mul(a, factor, out): assert a.shape == out.shape
def add(a, b, out, alpha=1): assert a.shape == b.shape == out.shape
"""
"""What STREAM uses of PyTorch, whose kernels cannot run here: it takes the arrays, and computes nothing."""


@pytest.fixture(autouse=True)
def on_the_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPPLAN_RUNTIME", "sim")


def rounds(folder: Path, monkeypatch: pytest.MonkeyPatch, count: int, only: list[str]) -> int:
    """Measures so many rounds of one experiment, of which only some cells; returns the exit code."""
    monkeypatch.setattr(experiments, "CHOSEN", {"comm-scope/pinned": only})
    monkeypatch.setattr(experiments, "ROUNDS", count)
    return experiments.main(str(folder), "3600")


def test_rounds_end_with_reports_in_two_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rounds(tmp_path, monkeypatch, 2, ["size=256B,4KiB", "device=gpu.0"]) == 0
    said = capsys.readouterr().out
    assert "measured without a failure: comm-scope/pinned" in said
    assert "| 256B | gpu.0 | copy pinned > on_gpu |" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["experiments.md", "experiments.tar.gz"]
    with tarfile.open(tmp_path / "experiments.tar.gz") as packed:
        names = {name.removeprefix("experiments/") for name in packed.getnames()}
        lines = packed.extractfile("experiments/pinned.results.jsonl")
        assert lines is not None and len(lines.readlines()) == 4
    assert {"log.txt", "pinned.results.csv"} <= names
    assert "plots/pinned-copy.png" in names or find_spec("matplotlib") is None


def test_a_failed_repetition_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rounds(tmp_path, monkeypatch, 1, ["size=256B", "device=gpu.7"]) == 1
    assert "size=256B device=gpu.7: 1 of 1: HP3" in capsys.readouterr().out


@pytest.mark.skipif(find_spec("torch") is not None, reason="the one that is installed would be taken")
def test_stream_asks_pytorch_for_its_kernels_on_the_arrays_of_the_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(FOLDER / "multi-gpu-comm", tmp_path / "copy")
    path = tmp_path / "copy" / "stream.experiment.yaml"
    path.with_name("torch.py").write_text(TORCH)
    only = ["--only", "size=1MiB,2MiB", "--only", "holder=gpu.0,gpu.1"]

    assert experiment("run", path, "--repeat", 1, *only) == 0, capsys.readouterr().out
    lines = results.read(str(path.with_name("stream.results.jsonl")))
    assert len(lines) == 4
    for line in lines:
        assert line["metrics"].keys() == {"copy", "scale", "add", "triad"}
        assert set(line["units"].values()) == {"GB/s"}
