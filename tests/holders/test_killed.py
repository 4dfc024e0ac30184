"""Holders and fillers that are killed at any message: an error, the name is free at once, and no process stays."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import hipplan
from hipplan.cli.main import run
from hipplan.errors import HipplanError
from hipplan.holders import names, requests
from tests.conftest import WHOLE, Simulator
from tests.descriptors import descriptors
from tests.faults.harness import points
from tests.holders.test_holders import f32, until

PLAN = """hipplan: 1
devices: {gpu: {count: 1}}
regions: {model: {device: gpu.0, tensors: {b: {dtype: f32, shape: [16]}}}}
contents: {model.b: {value: 2.5}}
"""
MOST = 40
"""Messages, which nothing comes near to."""


@pytest.fixture
def path(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A plan, and processes that can be killed; none of them is there at the end."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "killing"))
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN)
    yield plan
    until(lambda: not about(plan))


def about(plan: Path) -> list[int]:
    """Processes whose command names the plan."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and str(plan).encode() in (process / "cmdline").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue
    return found


def killed(monkeypatch: pytest.MonkeyPatch, role: str, number: int) -> None:
    points[f"{role}s that are killed"] += 1
    monkeypatch.setenv("HOLDERS_KILL", f"{role}:{number}")


@pytest.mark.parametrize("role", ["filler", "holder"])
def test_up_is_an_error_wherever_one_of_its_processes_is_killed(
    path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], role: str
) -> None:
    for number in range(1, MOST, 1 if WHOLE else 2):
        killed(monkeypatch, role, number)
        code = run(["up", str(path), "--name", "w"])
        said = capfd.readouterr()
        if code == 0:
            break
        assert code == 4, said.err
        assert "signal 9" in said.err or "HP455" in said.err
        until(lambda: not about(path))
        until(lambda: not any(runs for _, _, runs in names.known()))
        names.remove_leftovers("w")
    assert 5 < number < MOST - 1
    assert run(["down", "w", "--quiet"]) == (4 if role == "holder" else 0)  # killed at its next message
    until(lambda: not any(runs for _, _, runs in names.known()))
    names.remove_leftovers("w")


def test_a_filler_that_is_killed_while_it_replaces_leaves_the_old(
    path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], sim: Simulator
) -> None:
    monkeypatch.setenv("HOLDERS_KILL", "file")
    assert run(["up", str(path), "--name", "w", "--quiet"]) == 0
    process = requests.status("w")["pid"]
    opened = len([*Path(f"/proc/{process}/fd").iterdir()])
    for number in range(1, MOST, 2):
        points["fillers that are killed"] += 1
        (path.parent / "kill").write_text(f"filler:{number}")
        code = run(["replace", "w", str(path), "--quiet"])
        said = capfd.readouterr().err
        if code == 0:
            break
        assert code == 4
        assert "signal 9" in said
        until(lambda: len([*Path(f"/proc/{process}/fd").iterdir()]) <= opened)
        with hipplan.attach("w", answer=False) as layout:
            assert f32(layout, "model.b", sim) == {2.5}
            assert layout.lost == {}
    assert 5 < number < MOST - 1
    assert run(["down", "w", "--wait", "--quiet"]) == 0


@pytest.mark.parametrize("verb", ["sleep", "wake"])
def test_a_filler_that_is_killed_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], sim: Simulator, verb: str
) -> None:
    monkeypatch.setenv("HOLDERS_KILL", "file")
    assert run(["up", str(path), "--name", "w", "--quiet"]) == 0
    if verb == "wake":
        assert run(["sleep", "w", "--quiet"]) == 0
    before = requests.status("w")
    opened = len([*Path(f"/proc/{before['pid']}/fd").iterdir()])
    for number in range(1, MOST, 1 if WHOLE else 2):
        points["fillers that are killed"] += 1
        (path.parent / "kill").write_text(f"filler:{number}")
        code = run([verb, "w", "--quiet"])
        said = capfd.readouterr().err
        if code == 0:
            break
        assert code == 4
        assert "signal 9" in said
        now = requests.status("w")
        assert (now["state"], now["asleep"]) == (before["state"], before["asleep"])
        until(lambda: len([*Path(f"/proc/{before['pid']}/fd").iterdir()]) <= opened)
    assert 2 < number < MOST - 1
    (path.parent / "kill").write_text("")
    assert run(["wake", "w", "--quiet"]) == 0
    with hipplan.attach("w", answer=False) as layout:
        assert f32(layout, "model.b", sim) == {2.5}
    assert run(["down", "w", "--wait", "--quiet"]) == 0


@pytest.mark.parametrize("verb", ["sleep", "wake"])
def test_a_holder_that_is_killed_while_it_sleeps_or_wakes_is_an_error(
    path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setenv("HOLDERS_KILL", "file")
    for number in range(1, MOST, 1 if WHOLE else 3):
        points["holders that are killed"] += 1
        (path.parent / "kill").write_text("")
        assert run(["up", str(path), "--name", "w", "--quiet"]) == 0
        if verb == "wake":
            assert run(["sleep", "w", "--quiet"]) == 0
        process = requests.status("w")["pid"]
        (path.parent / "kill").write_text(f"holder:{number}")
        os.kill(process, signal.SIGUSR1)
        code = run([verb, "w", "--quiet"])
        if code == 0:
            os.kill(process, signal.SIGKILL)
            break
        assert code == 4
        until(lambda: not about(path))
        names.remove_leftovers("w")
    assert 3 < number < MOST - 1
    until(lambda: not any(runs for _, _, runs in names.known()))
    names.remove_leftovers("w")


def test_who_attaches_to_a_holder_that_is_killed_has_all_or_an_error(
    path: Path, monkeypatch: pytest.MonkeyPatch, sim: Simulator
) -> None:
    monkeypatch.setenv("HOLDERS_KILL", "file")
    opened, number = descriptors(but="hipsim"), 0
    for number in range(1, MOST, 1 if WHOLE else 2):
        points["holders that are killed"] += 1
        (path.parent / "kill").write_text("")
        assert run(["up", str(path), "--name", "w", "--quiet"]) == 0
        process = requests.status("w")["pid"]
        (path.parent / "kill").write_text(f"holder:{number}")
        os.kill(process, signal.SIGUSR1)
        try:
            with hipplan.attach("w", answer=False) as layout:
                assert f32(layout, "model.b", sim) == {2.5}
                os.kill(process, signal.SIGKILL)
                until(lambda: layout.lost == {"w": "ended"})
            break
        except HipplanError as error:
            assert error.diagnostics[0].code in ("HP452", "HP455")
        assert sim.alive() == set()
        assert descriptors(but="hipsim") == opened
        names.remove_leftovers("w")
    assert 3 < number < MOST - 1
    names.remove_leftovers("w")
