"""Signals to the command: at every step boundary, inside slow driver calls, twice, and kill -9."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interrupts.commands import QUICKSTART, Command

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
APPLY = ("apply", QUICKSTART, "--once", "--runtime", "sim")
STEPS = 22

every_signal = pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)


def before_the(call: str, calls: list[str], nth: int = 1) -> int:
    """How many calls precede the nth of a function."""
    return [at for at, name in enumerate(calls) if name == call][nth - 1]


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The driver calls of an undisturbed apply, in order."""
    command = Command(tmp_path_factory.mktemp("undisturbed"), *APPLY)

    assert command.wait() == 0
    assert command.alive() == {}
    assert f"{STEPS} steps" in command.out
    return command.calls()


@every_signal
def test_a_signal_at_every_step_boundary_rolls_back(number: signal.Signals, tmp_path: Path) -> None:
    commands = [Command(tmp_path / str(step), *APPLY, at_step=(step, number)) for step in range(STEPS)]
    for step, command in enumerate(commands):
        assert command.wait() == 128 + number, f"step {step}: {command.err}"
        assert command.alive() == {}, f"step {step}"
        assert f"{number.name}: rolled back" in command.err
        assert "Traceback" not in command.err


def slow_enough(during: Callable[[int, Path], Command], said: str, code: int, folder: Path) -> Command:
    """A run whose slow call was under way when the signal came: on a busy machine a short one may be over by then."""
    for delay_ms in (400, 4_000, 40_000):
        command = during(delay_ms, folder / str(delay_ms))
        ended = command.wait()
        if said in command.err:
            assert (ended, command.alive()) == (code, {}), command.err
            return command
    pytest.fail(f"nobody said '{said}': {command.err}")


@every_signal
def test_a_signal_inside_a_slow_call_is_answered_and_rolls_back(
    number: signal.Signals, calls: list[str], tmp_path: Path
) -> None:
    def during(delay_ms: int, folder: Path) -> Command:
        command = Command(folder, *APPLY, faults=f"hipMemMap@1=delay:{delay_ms}")
        command.wait_for_calls(before_the("hipMemMap", calls))
        time.sleep(delay_ms / 4_000)  # the slow call has begun
        command.send(number)
        return command

    slow_enough(during, "stopping when the driver call under way is done", 128 + number, tmp_path)


def test_a_signal_during_roll_back_is_answered_and_does_not_abandon_it(tmp_path: Path) -> None:
    def during(delay_ms: int, folder: Path) -> Command:
        faults = f"hipMemUnmap@1=delay:{delay_ms}"
        command = Command(folder, *APPLY, at_step=(8, signal.SIGINT), faults=faults)
        command.wait_for_call("hipDeviceSynchronize")  # roll back has begun, and its first undo is slow
        command.send(signal.SIGINT)
        command.send(signal.SIGTERM)
        return command

    command = slow_enough(during, "SIGTERM: still giving memory back", 130, tmp_path)
    assert "SIGINT: still giving memory back: please wait, stopping now would lose memory" in command.err


def test_a_signal_during_a_roll_back_that_an_error_began_is_answered(tmp_path: Path) -> None:
    def during(delay_ms: int, folder: Path) -> Command:
        faults = f"hipMemMap@2=hipErrorOutOfMemory; hipMemUnmap@1=delay:{delay_ms}"
        command = Command(folder, *APPLY, faults=faults)
        command.wait_for_call("hipDeviceSynchronize")
        command.send(signal.SIGTERM)
        return command

    slow_enough(during, "SIGTERM: still giving memory back", 4, tmp_path)


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


def test_a_signal_in_the_last_step_is_heard(calls: list[str], tmp_path: Path) -> None:
    command = Command(tmp_path, *APPLY, at_step=(STEPS - 1, signal.SIGTERM))

    assert command.wait() == 143


def test_a_signal_while_a_device_is_waited_for_is_answered_and_not_obeyed(calls: list[str], tmp_path: Path) -> None:
    def during(delay_ms: int, folder: Path) -> Command:
        faults = f"hipDeviceSynchronize@1=delay:{delay_ms}"
        command = Command(folder, *APPLY, faults=faults, variables={"HIPPLAN_IDLE_NOTICE": "3600"})
        command.wait_for_calls(before_the("hipDeviceSynchronize", calls))
        time.sleep(delay_ms / 4_000)
        command.send(signal.SIGINT)
        return command

    slow_enough(during, "still waiting for device 'gpu.0'", 130, tmp_path)


def test_a_device_that_never_becomes_idle_is_told_of_and_given_up_on_request(tmp_path: Path) -> None:
    faults = "hipDeviceSynchronize@1=delay:3600000"
    command = Command(tmp_path, *APPLY, faults=faults, variables={"HIPPLAN_IDLE_NOTICE": "0.2"})
    command.wait_for_err("device 'gpu.0' is still busy after 0.2 s")
    command.send(signal.SIGINT)

    assert command.wait() == 5
    assert command.err.count("error[HP411]") == 1
    for name in ("weights", "cache", "model[0]", "table", "staging"):
        assert name in command.err.split("HP411")[1]


def test_after_kill_at_every_step_boundary_the_next_apply_works_at_once(tmp_path: Path) -> None:
    commands = [Command(tmp_path / str(step), *APPLY, at_step=(step, signal.SIGKILL)) for step in range(STEPS)]
    for step, command in enumerate(commands):
        assert command.wait() == -signal.SIGKILL, f"step {step}: {command.err}"
        again = Command(tmp_path / "again", *APPLY)
        assert again.wait() == 0, f"after a kill before step {step}: {again.err}"
        assert again.alive() == {}
