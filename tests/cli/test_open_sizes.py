"""size: fill on the command line: preview shows the bytes, a lock keeps them, validate needs no machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.conftest import ROOT

PLAN = """hipplan: 1
name: filled
devices: {gpu: {count: 2}}
buffers:
  w: {kind: device, size: 2GiB}
regions:
  kv: {device: gpu.0, size: fill, reserve: 10%, chunk: 1GiB}
  half: {device: gpu.1, size: 50%}
"""
GIB = 2**30


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN)
    return path


def busy(tmp_path: Path, gib: int) -> Path:
    """A profile of sim-2 with memory in use."""
    path = tmp_path / f"busy-{gib}.yaml"
    text = (ROOT / "hipplan" / "machines" / "sim-2.yaml").read_text()
    path.write_text(text.replace("    memory: 192GiB", f"    memory: 192GiB\n    in_use: {gib}GiB"))
    return path


def test_preview_shows_the_bytes(plan: Path, hipplan: Run) -> None:
    text = hipplan("preview", plan, "--machine", "sim-2").stdout
    whole = json.loads(hipplan("preview", plan, "--machine", "sim-2", "--format", "json", "--all").stdout)
    sizes = {resource["name"]: resource["size"] for resource in whole["resources"]}

    assert "decided for sim-2: half is 96GiB (50%); kv is 170GiB (fill, reserve: 10%)" in text
    assert whole["open_sizes"] == [
        {"name": "half", "asked": "50%", "size": 96 * GIB},
        {"name": "kv", "asked": "fill, reserve: 10%", "size": 170 * GIB},
    ]
    assert (sizes["kv"], sizes["half"]) == (170 * GIB, 96 * GIB)
    assert "decided for" not in hipplan("preview", "-", "--machine", "sim-2", stdin="hipplan: 1\n").stdout


def test_hundreds_of_them_are_a_short_note(tmp_path: Path, hipplan: Run) -> None:
    plan = tmp_path / "many.yaml"
    plan.write_text("hipplan: 1\nregions:\n  r: {each: 50, size: 1%}\n")

    text = hipplan("preview", plan, "--machine", "sim-2").stdout
    assert text.count("(1%)") == 10
    assert text.endswith("and 40 more\n")


def test_validate_leaves_them_open_and_a_machine_decides_them(plan: Path, tmp_path: Path, hipplan: Run) -> None:
    assert hipplan("validate", plan).returncode == 0
    assert hipplan("validate", plan, "--machine", "sim-2").stdout.endswith("good, and sim-2 can hold it\n")
    short = hipplan("validate", plan, "--machine", busy(tmp_path, 171))

    assert short.returncode == 3
    assert "error[HP301]: nothing of gpu.0 is left for 'kv' to fill" in short.stderr
    assert "171GiB in use, the rest of the plan takes 2GiB, about 19.2GiB are reserved" in short.stderr


def test_a_lock_keeps_the_bytes_that_were_free_then(plan: Path, tmp_path: Path, hipplan: Run) -> None:
    lock = tmp_path / "plan.lock"
    assert hipplan("lock", plan, "--machine", "sim-2", "-o", lock).returncode == 0
    now = busy(tmp_path, 10)
    again = tmp_path / "again.lock"

    assert hipplan("lock", plan, "--machine", now, "--check", lock).stdout.endswith("is up to date\n")
    assert hipplan("lock", plan, "--machine", now, "-o", again).returncode == 0
    assert "kv#0..169" in lock.read_text()
    assert "kv#0..159" in again.read_text()
    assert "kv#160" not in again.read_text()
    full = hipplan("lock", plan, "--machine", busy(tmp_path, 30), "--check", lock)
    assert full.returncode == 3
    assert "HP301" in full.stderr


def test_a_change_keeps_what_the_older_plan_has(plan: Path, tmp_path: Path, hipplan: Run) -> None:
    new = tmp_path / "new.yaml"
    new.write_text(PLAN.replace("regions:", "  more: {kind: device, size: 4GiB}\nregions:"))

    change = json.loads(hipplan("preview", new, "--from", plan, "--machine", "sim-2", "--format", "json").stdout)
    assert [line["name"] for line in change["changes"]] == ["more"]


def test_draw_shows_them(plan: Path, tmp_path: Path, hipplan: Run) -> None:
    picture = tmp_path / "plan.svg"
    assert hipplan("draw", plan, "--machine", "sim-2", "-o", picture).returncode == 0
    assert "170GiB" in picture.read_text()
