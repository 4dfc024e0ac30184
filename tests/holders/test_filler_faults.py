"""The driver fails in the filler of a real holder, and clocks jump: the holder goes on with what it had."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

import hipplan
from hipplan.holders import requests
from tests.clocks import jumping_clock
from tests.conftest import ROOT, Simulator
from tests.faults.counting import each, points
from tests.holders.test_holders import f32, until
from tests.holders.test_killed import path
from tests.started import run

pytestmark = pytest.mark.in_turns

__all__ = ["path"]

VERBS = {"replace": "ready", "sleep": "asleep", "wake": "ready"}
"""Verb -> the state of the holder afterwards."""


def faults(plan: Path, *lines: str) -> None:
    """Environment variables of the fillers that start from now on."""
    (plan.parent / "environment").write_text("\n".join(lines))


def quietly(verb: str, plan: Path) -> int:
    return run([verb, "w", *[str(plan)] * (verb == "replace"), "--quiet"])


def begin(verb: str, plan: Path) -> None:
    """Bring the holder into the state from which the verb changes it."""
    faults(plan)
    assert quietly("sleep" if verb == "wake" else "wake", plan) == 0


def calls_of(verb: str, plan: Path) -> int:
    """How many driver calls the filler makes."""
    trace = plan.parent / "trace"
    begin(verb, plan)
    faults(plan, f"HIPSIM_TRACE={trace}")
    assert quietly(verb, plan) == 0
    return sum("call" in json.loads(line) for line in trace.read_text().splitlines())


@pytest.mark.in_parts
@pytest.mark.parametrize("verb", VERBS)
def test_each_driver_call_of_a_filler_fails(
    path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], sim: Simulator, verb: str
) -> None:
    monkeypatch.setenv("HOLDERS_KILL", "1")
    assert run(["up", str(path), "--name", "w", "--quiet"]) == 0
    calls, unheard = calls_of(verb, path), 0
    assert calls > 20
    phase = f"calls of fillers that {verb}"
    for number in each(phase, range(1, calls + 1), calls // 3):
        begin(verb, path)
        before = requests.status("w")
        opened = files_of(before["pid"])
        points[phase] += 1
        faults(path, f"HIPSIM_FAIL=*@{number}=hipErrorOutOfMemory")
        capfd.readouterr()
        code, errors = quietly(verb, path), capfd.readouterr().err
        now = requests.status("w")
        if code == 0:  # such as a call that sets the current device back, which is made again
            unheard += 1
            assert now["state"] == VERBS[verb]
            continue
        assert code in (3, 4, 5), errors
        assert "error[HP" in errors
        assert (now["state"], now["asleep"], now["generations"]) == (
            before["state"],
            before["asleep"],
            before["generations"],
        )
        until(lambda: files_of(before["pid"]) <= opened)  # noqa: B023
    assert unheard <= points[phase] // 2
    faults(path)
    assert quietly("wake", path) == 0
    with hipplan.attach("w") as layout:
        assert f32(layout, "model.b", sim) == {2.5}
    assert run(["down", "w", "--wait", "--quiet"]) == 0


def files_of(process: int) -> int:
    return len([*Path(f"/proc/{process}/fd").iterdir()])


def test_a_clock_that_jumps_ends_no_request(path: Path, monkeypatch: pytest.MonkeyPatch, sim: Simulator) -> None:
    """All deadlines of holders, fillers and their clients go by a clock that never jumps."""
    monkeypatch.setenv("HOLDERS_CLOCK", "jumps")
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=":")
    points["clocks of holders that jump"] += 1
    with jumping_clock():
        assert run(["up", str(path), "--name", "w", "--quiet"]) == 0
        with hipplan.attach("w") as layout:
            assert f32(layout, "model.b", sim) == {2.5}
            assert layout.verify().mismatches() == []
        until(lambda: requests.status("w")["attached"] == [])
        for verb in ("sleep", "wake"):
            assert quietly(verb, path) == 0
        with contextlib.ExitStack() as attached:
            for _ in range(3):
                attached.enter_context(hipplan.attach("w", addresses="any"))
                assert quietly("replace", path) == 0
            order = [client["generation"] for client in requests.status("w")["attached"]]
            assert order == [1, 2, 3]  # as they came
        assert run(["ps"]) == 0
        assert run(["down", "w", "--wait", "--timeout", "60", "--quiet"]) == 0
