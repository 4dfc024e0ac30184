"""Holders and fillers are killed at any message: an error, the name is free at once, and no process is left."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import hipplan
from hipplan.errors import HipplanError
from hipplan.holders import names, requests
from tests.conftest import WHOLE, Simulator
from tests.descriptors import descriptors
from tests.faults.counting import points
from tests.holders.test_holders import f32, until
from tests.started import run

pytestmark = pytest.mark.in_turns

PLAN = """hipplan: 1
devices: {gpu: {count: 1}}
regions: {model: {device: gpu.0, tensors: {b: {dtype: f32, shape: [16]}}}}
contents: {model.b: {value: 2.5}}
"""
MOST = 40
"""More packets than any process here sends and receives."""
NUMBERS = range(1, MOST, 1 if WHOLE else 4)
"""Before which packets a process is killed."""


@pytest.fixture
def path(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A plan, whose holder and fillers can be killed; no process of it may run at the end."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "killing"))
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN)
    yield plan
    until(lambda: not about(plan))


def about(plan: Path) -> list[int]:
    """Process IDs whose command lines contain the plan's path."""
    processes = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and str(plan).encode() in (process / "cmdline").read_bytes():
                processes.append(int(process.name))
        except OSError:
            continue
    return processes


def is_spared(plan: Path) -> bool:
    """Takes the order to kill the holder back. False: it came too late, as the end of a connection counts too."""
    (plan.parent / "kill").write_text("holder:0")
    for process in about(plan):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGUSR1)
    try:
        return bool(requests.status("w"))
    except HipplanError:
        return False


@pytest.mark.parametrize("role", ["filler", "holder"])
def test_up_fails_if_its_holder_or_filler_is_killed(
    path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], role: str
) -> None:
    monkeypatch.setenv("HOLDERS_KILL", "1")
    for number in NUMBERS:
        points[f"{role}s that are killed"] += 1
        (path.parent / "kill").write_text(f"{role}:{number}")
        code = run(["up", str(path), "--name", "w"])
        errors = capfd.readouterr().err
        if code == 0 and (role == "filler" or is_spared(path)):
            break
        assert code == 0 or (code == 4 and ("signal 9" in errors or "HP455" in errors)), errors
        until(lambda: not about(path))
        until(lambda: not any(runs for _, _, runs in names.known()))
        names.remove_leftovers("w")
    assert 5 < number < MOST - 1
    if role == "holder":  # is killed at its next packet
        (path.parent / "kill").write_text("holder:1")
        os.kill(*about(path), signal.SIGUSR1)
    assert run(["down", "w", "--quiet"]) == (4 if role == "holder" else 0)
    until(lambda: not any(runs for _, _, runs in names.known()))
    names.remove_leftovers("w")


def test_the_old_memory_stays_if_the_filler_of_a_replace_is_killed(
    path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], sim: Simulator
) -> None:
    monkeypatch.setenv("HOLDERS_KILL", "1")
    assert run(["up", str(path), "--name", "w", "--quiet"]) == 0
    process = requests.status("w")["pid"]
    opened = len([*Path(f"/proc/{process}/fd").iterdir()])
    for number in NUMBERS:
        points["fillers that are killed"] += 1
        (path.parent / "kill").write_text(f"filler:{number}")
        code = run(["replace", "w", str(path), "--quiet"])
        errors = capfd.readouterr().err
        if code == 0:
            break
        assert code == 4
        assert "signal 9" in errors
        until(lambda: len([*Path(f"/proc/{process}/fd").iterdir()]) <= opened)
        with hipplan.attach("w") as layout:
            assert f32(layout, "model.b", sim) == {2.5}
            assert layout.lost == {}
    assert 5 < number < MOST - 1
    assert run(["down", "w", "--wait", "--quiet"]) == 0


@pytest.mark.parametrize("verb", ["sleep", "wake"])
def test_sleep_or_wake_changes_nothing_if_the_filler_is_killed(
    path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], sim: Simulator, verb: str
) -> None:
    monkeypatch.setenv("HOLDERS_KILL", "1")
    assert run(["up", str(path), "--name", "w", "--quiet"]) == 0
    if verb == "wake":
        assert run(["sleep", "w", "--quiet"]) == 0
    before = requests.status("w")
    opened = len([*Path(f"/proc/{before['pid']}/fd").iterdir()])
    for number in NUMBERS:
        points["fillers that are killed"] += 1
        (path.parent / "kill").write_text(f"filler:{number}")
        code = run([verb, "w", "--quiet"])
        errors = capfd.readouterr().err
        if code == 0:
            break
        assert code == 4
        assert "signal 9" in errors
        now = requests.status("w")
        assert (now["state"], now["asleep"]) == (before["state"], before["asleep"])
        until(lambda: len([*Path(f"/proc/{before['pid']}/fd").iterdir()]) <= opened)
    assert 2 < number < MOST - 1
    (path.parent / "kill").write_text("")
    assert run(["wake", "w", "--quiet"]) == 0
    with hipplan.attach("w") as layout:
        assert f32(layout, "model.b", sim) == {2.5}
    assert run(["down", "w", "--wait", "--quiet"]) == 0


@pytest.mark.parametrize("verb", ["sleep", "wake"])
def test_sleep_or_wake_fails_if_the_holder_is_killed(path: Path, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    monkeypatch.setenv("HOLDERS_KILL", "1")
    for number in NUMBERS:
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


def test_attach_succeeds_or_fails_completely_if_the_holder_is_killed(
    path: Path, monkeypatch: pytest.MonkeyPatch, sim: Simulator
) -> None:
    monkeypatch.setenv("HOLDERS_KILL", "1")
    run(["version"])  # starts the process that tests fork, if no test before this one has
    opened, number = descriptors(but="hipsim"), 0
    for number in NUMBERS:
        points["holders that are killed"] += 1
        (path.parent / "kill").write_text("")
        assert run(["up", str(path), "--name", "w", "--quiet"]) == 0
        process = requests.status("w")["pid"]
        (path.parent / "kill").write_text(f"holder:{number}")
        os.kill(process, signal.SIGUSR1)
        try:
            with hipplan.attach("w") as layout:
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
