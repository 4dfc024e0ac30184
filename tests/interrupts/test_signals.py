"""Signals to the command: at every step boundary, inside slow driver calls, twice, and kill -9."""

from __future__ import annotations

import signal
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import WHOLE
from tests.interrupts.commands import QUICKSTART, Command
from tests.pauses import Pause

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
APPLY = ("apply", QUICKSTART, "--once", "--runtime", "sim")
PLANNED, STEPS = 16, 22
"""The steps of the plan, and those of the driver: on HIP 7.2 a link stands between calls that keep mappings closed."""
FEW = range(0, STEPS, 1 if WHOLE else 4)

every_signal = pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)


def test_the_command_that_is_not_disturbed(tmp_path: Path) -> None:
    command = Command(tmp_path, *APPLY)

    assert command.wait() == 0
    assert command.alive() == {}
    assert f"{PLANNED} steps" in command.out


@every_signal
def test_a_signal_at_every_step_boundary_rolls_back(number: signal.Signals, tmp_path: Path) -> None:
    places = range(STEPS) if number == signal.SIGINT else FEW
    commands = {step: Command(tmp_path / str(step), *APPLY, at_step=(step, number)) for step in places}
    for step, command in commands.items():
        assert command.wait() == 128 + number, f"step {step}: {command.err}"
        assert command.alive() == {}, f"step {step}"
        assert f"{number.name}: rolled back" in command.err
        assert "Traceback" not in command.err


def signalled_in(
    call: str, numbers: Collection[signal.Signals], folder: Path, said: str = "", faults: str = "", **named: Any
) -> Command:
    """A run that gets signals inside a driver call, and has ended. said: what it says before that call goes on."""
    pause = Pause(folder, call)
    command = Command(folder / "run", *APPLY, faults=f"{pause.rule}; {faults}", **named)
    with pause.under_way():
        for number in numbers:
            command.send(number)
        command.wait_for_err(said)
    command.wait()
    assert command.alive() == {}, command.err
    return command


@every_signal
def test_a_signal_inside_a_slow_call_is_answered_and_rolls_back(number: signal.Signals, tmp_path: Path) -> None:
    command = signalled_in("hipMemMap@1", [number], tmp_path)

    assert command.wait() == 128 + number
    assert "stopping when the current driver call returns" in command.err


def test_a_signal_during_roll_back_is_answered_and_does_not_abandon_it(tmp_path: Path) -> None:
    numbers = [signal.SIGINT, signal.SIGTERM]
    command = signalled_in("hipMemUnmap@1", numbers, tmp_path, at_step=(8, signal.SIGINT))

    assert command.wait() == 130
    assert "SIGTERM: still releasing memory" in command.err
    assert "SIGINT: still releasing memory: please wait, stopping now would lose memory" in command.err


def test_a_signal_during_a_roll_back_that_an_error_began_is_answered(tmp_path: Path) -> None:
    error = "hipMemMap@2=hipErrorOutOfMemory"
    command = signalled_in("hipMemUnmap@1", [signal.SIGTERM], tmp_path, faults=error)

    assert command.wait() == 4
    assert "SIGTERM: still releasing memory" in command.err


@every_signal
def test_a_signal_while_holding_tears_down(number: signal.Signals, tmp_path: Path) -> None:
    command = Command(tmp_path, "apply", QUICKSTART, "--runtime", "sim")
    command.wait_for_err("holding")
    command.send(number)

    assert command.wait() == 128 + number
    assert "torn down" in command.out
    assert command.alive() == {}


def test_what_was_ignored_when_the_command_began_stays_ignored(tmp_path: Path) -> None:
    """nohup ignores SIGHUP, and a script SIGINT for what it puts in the background."""
    ignored = (signal.SIGHUP, signal.SIGINT)
    command = Command(tmp_path, "apply", QUICKSTART, "--runtime", "sim", ignored=ignored)
    command.wait_for_err("holding")
    for number in (*ignored, signal.SIGTERM):
        command.send(number)

    assert command.wait() == 128 + signal.SIGTERM
    assert command.alive() == {}


def test_a_signal_in_the_last_step_is_handled(tmp_path: Path) -> None:
    command = Command(tmp_path, *APPLY, at_step=(STEPS - 1, signal.SIGTERM))

    assert command.wait() == 143


def test_a_signal_while_a_device_is_waited_for_is_answered_and_not_obeyed(tmp_path: Path) -> None:
    message, patient = "still waiting for device 'gpu.0'", {"HIPPLAN_IDLE_NOTICE": "3600"}
    command = signalled_in("hipDeviceSynchronize@1", [signal.SIGINT], tmp_path, message, variables=patient)

    assert command.wait() == 130


def test_a_device_that_never_becomes_idle_is_reported_and_abandoned_on_request(tmp_path: Path) -> None:
    faults = "hipDeviceSynchronize@1=delay:3600000"
    command = Command(tmp_path, *APPLY, faults=faults, variables={"HIPPLAN_IDLE_NOTICE": "0.2"})
    command.wait_for_err("device 'gpu.0' is still busy after 0.2 s")
    command.send(signal.SIGINT)

    assert command.wait() == 5
    assert command.err.count("error[HP411]") == 1
    for name in ("weights", "cache", "model[0]", "table", "staging"):
        assert name in command.err.split("HP411")[1]


def test_after_kill_at_every_step_boundary_the_next_apply_works_at_once(tmp_path: Path) -> None:
    commands = {step: Command(tmp_path / str(step), *APPLY, at_step=(step, signal.SIGKILL)) for step in FEW}
    for step, command in commands.items():
        assert command.wait() == -signal.SIGKILL, f"step {step}: {command.err}"
        again = Command(tmp_path / "again", *APPLY)
        assert again.wait() == 0, f"after a kill before step {step}: {again.err}"
        assert again.alive() == {}
