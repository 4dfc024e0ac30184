"""Holders that are stopped (SIGSTOP): each request ends, what was given up is not begun, `down --force` ends them."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan.cli.main import run
from hipplan.errors import HeldError
from hipplan.holders import guard, names, requests
from hipplan.processes import process, verifying
from hipplan.processes.packets import SIGN
from hipplan.processes.process import Process, is_ending, is_stopped, start_time
from tests.conftest import Simulator
from tests.holders.test_holders import WAIT_S, Held, code, f32, until
from tests.holders.test_interrupts import command, state
from tests.holders.test_killed import about
from tests.pauses import Pause
from tests.unit.test_links import send, text

SHORT = ["--timeout", "0.1"]
"""A stopped holder gives no sign of life, however long the wait is."""


@contextlib.contextmanager
def stopped(number: int) -> Iterator[None]:
    """While entered, a process is stopped."""
    os.kill(number, signal.SIGSTOP)
    try:
        until(lambda: is_stopped(number))
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGCONT)


@pytest.mark.parametrize("verb", ["down", "sleep", "sleep --keep drop", "wake", "replace"])
def test_a_request_to_a_stopped_holder_ends_and_is_not_begun_later(
    held: Held, plan: Path, capfd: pytest.CaptureFixture[str], verb: str
) -> None:
    status = held()
    if verb == "wake":
        assert run(["sleep", "w", "--quiet"]) == 0
    before = state()
    with stopped(status["pid"]):
        capfd.readouterr()
        name, *options = verb.split()
        assert run([name, "w", *[str(plan)] * (name == "replace"), *options, *SHORT]) == 4
        errors = capfd.readouterr().err
        assert "HP455" in errors
        assert "gave no sign of life for 0.1 s, and will not begin request" in errors
        assert f"process {status['pid']} is stopped" in errors
        assert f"kill -CONT {status['pid']} lets it go on; hipplan down w --force ends it" in errors
    now = requests.status("w")
    assert (now["state"], [generation["generation"] for generation in now["generations"]]) == (before, [1])
    if name == "down":  # the others need an acknowledgement, which the holder cannot send
        assert "(down) is not begun" in Path(status["log"]).read_text()


@pytest.mark.parametrize("verb", ["sleep", "wake", "replace"])
def test_a_stopped_holder_keeps_nobody_s_streams(held: Held, plan: Path, verb: str) -> None:
    """Who reads the output of a command waits until all have closed it."""
    status = held()
    reading, writing = os.pipe()
    with stopped(status["pid"]), os.fdopen(reading) as output:
        asked: dict[str, Callable[..., Any]] = {
            "sleep": partial(requests.sleep, keep="host", wait_s=None, options=()),
            "wake": partial(requests.wake, options=()),
            "replace": lambda name, **given: requests.replace(name, [str(plan)], lose=(), **given),
        }
        with pytest.raises(HeldError, match="HP455"):
            asked[verb]("w", streams=(0, writing, writing), timeout_s=0.1)
        os.close(writing)
        assert select.select([output], [], [], 0)[0] == [output]
        assert output.read() == ""


def test_a_task_whose_client_gives_up_while_the_holder_is_stopped_changes_nothing(
    folder: Path, plan: Path, tmp_path: Path
) -> None:
    pause = Pause(tmp_path, "hipMemImportFromShareableHandle@1")
    assert command("up", str(plan), "--name", "w", "--quiet", faults=pause.rule).wait() == 0
    holder = requests.status("w")["pid"]
    sleep = command("sleep", "w")
    with contextlib.ExitStack() as resumed:
        with pause.under_way():
            resumed.enter_context(stopped(holder))
            sleep.kill()
            sleep.wait()
        until(lambda: about(plan) == [holder])  # the filler has saved all bytes and ended
    until(lambda: state() != "sleeping")
    assert state() == "ready"
    assert run(["down", "w", "--quiet"]) == 0


def test_a_client_that_waits_gets_signs_of_life(held: Held, sim: Simulator) -> None:
    held()
    with hipplan.attach("w"):
        connection = names.connect("w")
        connection.link.setblocking(True)
        connection.link.settimeout(60)
        request = {"want": "down", "number": 1, "timeout_s": 0.1, "wait_s": None}
        send(connection.link, text(request))
        assert [connection.link.recv(64) for _ in range(5)] == [SIGN] * 5
        connection.close()


def test_ps_and_attach_report_a_stopped_holder(held: Held, capfd: pytest.CaptureFixture[str]) -> None:
    number = held()["pid"]
    with stopped(number):
        capfd.readouterr()
        assert run(["ps", *SHORT]) == 0
        assert "w: silent; it gave no sign of life" in (shown := capfd.readouterr().out)
        assert f"process {number} is stopped" in shown
        with pytest.raises(HeldError, match="no sign of life") as caught:
            hipplan.attach("w", timeout=0.1)
        assert code(caught) == "HP455"


def test_verify_lists_a_stopped_holder_as_one_that_does_not_answer(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifying, "LIST_S", 0.3)
    number = held()["pid"]
    with stopped(number):
        (answer,) = verifying.processes_with_layouts()
    assert (answer["process"], answer["error"]) == (number, "it did not answer within 0.3 s")


def force(capfd: pytest.CaptureFixture[str], number: int) -> None:
    """End a stopped holder."""
    capfd.readouterr()
    assert run(["down", "w", "--force", *SHORT]) == 0
    assert f"w: process {number} gave no sign of life and was killed" in capfd.readouterr().out
    assert process.is_ending(number)
    assert [*names.known()] == []


def test_down_with_force_kills_a_stopped_holder_and_attached_processes_keep_their_memory(
    held: Held, plan: Path, sim: Simulator, capfd: pytest.CaptureFixture[str]
) -> None:
    number = held()["pid"]
    with hipplan.attach("w") as layout:
        os.kill(number, signal.SIGSTOP)
        force(capfd, number)
        assert layout.lost == {"w": "ended"}
        assert f32(layout, "model.b", sim) == {2.5}
    held()


def test_down_with_force_finds_the_process_without_its_files(
    held: Held, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    number = held()["pid"]
    for file in (folder / "hipplan").iterdir():
        file.unlink()
    os.kill(number, signal.SIGSTOP)
    force(capfd, number)


def test_down_with_force_kills_a_holder_that_accepts_no_more_connections(
    held: Held, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    number = held()["pid"]
    os.kill(number, signal.SIGSTOP)
    for address in (str(folder / "hipplan" / "held-w"), guard._address("w")):
        with contextlib.suppress(BlockingIOError):
            for _ in range(guard.QUEUE + 2):
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as link:
                    link.connect(address)
    monkeypatch.setattr(guard, "_BUSY_S", 0.1)
    assert run(["sleep", "w"]) == 4
    assert "it accepted no connection for 0.1 s" in capfd.readouterr().err
    force(capfd, number)


def test_down_with_force_kills_no_process_that_only_has_the_number(
    held: Held, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The lock file names a process that began at another time, and the kernel does not know the one that listens."""
    number = held()["pid"]
    monkeypatch.setattr(process, "_SO_PEERPIDFD", 9999)
    lock = folder / "hipplan" / "held-w.lock"
    own = lock.read_text()
    assert own == f"{number} {start_time(number)}\n"
    with stopped(number):
        for wrong in (f"{number} {start_time(number) - 1}\n", f"{number}\n", "", "x y\n"):
            lock.write_text(wrong)
            assert run(["down", "w", "--force", *SHORT]) == 4
            assert "HP456" in capfd.readouterr().err
    assert state() == "ready"
    lock.write_text(own)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can choose the next process's number")
def test_a_process_is_not_taken_for_an_earlier_one_of_the_same_number() -> None:
    with subprocess.Popen(["sleep", "600"]) as first:
        start = start_time(first.pid)
        ticks_s = 1 / os.sysconf("SC_CLK_TCK")
        until(lambda: time.clock_gettime(time.CLOCK_BOOTTIME) / ticks_s > start + 2)  # else both start at the same time
        with Process.known(first.pid, start) as known:
            assert not known.has_ended(0.0)
            first.kill()
            first.wait()
            assert known.has_ended(60.0)
    with pytest.raises(OSError):
        Process.known(first.pid, start)
    for _ in range(1000):
        try:
            Path("/proc/sys/kernel/ns_last_pid").write_text(str(first.pid - 1))
        except OSError as error:
            pytest.skip(f"ns_last_pid: {error.strerror}")
        with subprocess.Popen(["sleep", "600"]) as second:
            try:
                if second.pid == first.pid:
                    with pytest.raises(ProcessLookupError):
                        Process.known(second.pid, start)
                    Process.known(second.pid, start_time(second.pid)).close()
                    return
            finally:
                second.kill()
    pytest.skip("another process has this number")


def command_line() -> None:
    assert run(["down", "w", "--force", "--quiet", *SHORT]) == 0


def without_time() -> None:
    """Its time is over before the holder has told the filler to end."""
    connection = names.connect("w")
    connection.link.setblocking(True)
    connection.link.settimeout(WAIT_S)
    send(connection.link, text({"want": "down", "number": 1, "timeout_s": 0, "wait_s": 0, "force": True}))
    while connection.link.recv(1 << 17) == SIGN:
        pass
    connection.close()


@pytest.mark.parametrize("down", [command_line, without_time])
def test_down_with_force_kills_a_filler_that_does_not_end(
    folder: Path, plan: Path, tmp_path: Path, down: Callable[[], None]
) -> None:
    pause = Pause(tmp_path, "hipMemMap@2")
    up = command("up", str(plan), "--name", "w", faults=pause.rule)
    with pause.under_way():
        (filler,) = {*about(plan)} - {up.pid, requests.status("w")["pid"]}
        with stopped(filler):
            down()
            until(lambda: is_ending(filler))
    assert up.wait() == 4
    until(lambda: not about(plan))
    assert [*names.known()] == []
