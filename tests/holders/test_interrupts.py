"""A signal, `hipplan down` or another `up` while a holder fills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import hipplan
from hipplan.cli.main import run
from hipplan.holders import names, requests
from hipplan.processes.process import is_stopped
from tests.conftest import Simulator
from tests.holders.test_holders import f32, until
from tests.holders.test_killed import about
from tests.pauses import Pause


def command(*arguments: str, faults: str = "", errors: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    """Start hipplan. faults: HIPSIM_FAIL, which a filler's simulator reads. errors: where standard error goes."""
    environment = os.environ | ({"HIPSIM_FAIL": faults} if faults else {})
    return subprocess.Popen([sys.executable, "-m", "hipplan", *arguments], stderr=errors, env=environment)


def state() -> str:
    return str(requests.status("w")["state"])


@pytest.mark.in_parts
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_up_leaves_no_process(folder: Path, plan: Path, tmp_path: Path, number: signal.Signals) -> None:
    pause = Pause(tmp_path, "hipMemMap@2")
    up = command("up", str(plan), "--name", "w", faults=pause.rule, errors=subprocess.PIPE)
    with pause.under_way():
        assert state() == "filling"
        up.send_signal(number)
        until(lambda: state() == "ending")
        assert state() == "ending"  # by now the filler has its signal
    errors = up.communicate()[1]
    assert b"SIGTERM: rolled back" in errors  # the holder sends SIGTERM to the filler
    assert errors.endswith(b"w: interrupted before it was filled\n")
    assert up.returncode == 128 + number
    until(lambda: not about(plan))
    assert [name for name, _, runs in names.known() if runs] == []


MOMENTS = {
    "when the holder is ready": "signal_after(hipplan.cli.interrupts.Interrupts, 'wait_until_readable')",
    "before the status": "signal_before(hipplan.holders.requests, 'status')",
    "after the status": "signal_after(hipplan.holders.requests, 'status')",
    "after the output": "signal_after(hipplan.cli.held, 'print_status')",
    "at the exit": "import atexit; atexit.register(lambda: os.kill(os.getpid(), number))",
}
SIGNALLED_UP = """
import os, sys
import hipplan.cli.held, hipplan.cli.interrupts, hipplan.holders.requests
number = int(sys.argv.pop(1))
moment = sys.argv.pop(1)
def patched(owner, name, before, after):
    real = getattr(owner, name)
    def call(*arguments):
        os.kill(os.getpid(), number) if before else None
        result = real(*arguments)
        os.kill(os.getpid(), number) if after else None
        return result
    setattr(owner, name, call)
def signal_before(owner, name):
    patched(owner, name, True, False)
def signal_after(owner, name):
    patched(owner, name, False, True)
exec(moment)
from hipplan.cli import command
command()
"""


@pytest.mark.in_parts
@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_an_up_that_is_interrupted_once_the_holder_is_ready_succeeds(
    folder: Path, plan: Path, number: signal.Signals, moment: str
) -> None:
    command = [sys.executable, "-c", SIGNALLED_UP, str(int(number)), moment, "up", str(plan), "--name", "w"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert run(["down", "w", "--quiet"]) == 0


def test_an_up_whose_holder_is_stopped_can_be_interrupted(folder: Path, plan: Path, tmp_path: Path) -> None:
    pause = Pause(tmp_path, "hipMemMap@2")
    up = command("up", str(plan), "--name", "w", faults=pause.rule)
    with pause.under_way():
        holder = requests.status("w")["pid"]
        os.kill(holder, signal.SIGSTOP)
        until(lambda: is_stopped(holder))
        for _ in range(3):
            up.send_signal(signal.SIGINT)
            until(lambda: not pending(up.pid))
        assert up.wait() == 130
    until(lambda: not about(plan))
    assert [name for name, _, runs in names.known() if runs] == []


def pending(process: int) -> bool:
    """Whether a signal waits for a process to handle it."""
    status = Path(f"/proc/{process}/status").read_text()
    return any(int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigPnd", "ShdPnd")))


@pytest.mark.parametrize("limit", [8, 10, 12, 14, 16, 18, 20])
def test_an_up_without_file_descriptors_says_so_and_leaves_nothing(folder: Path, plan: Path, limit: int) -> None:
    script = f'ulimit -n {limit}; exec "{sys.executable}" -m hipplan up "{plan}" --name w'
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    runs = [name for name, _, runs in names.known() if runs]
    if done.returncode == 0:
        assert runs == ["w"]
        assert run(["down", "w", "--quiet"]) == 0
    else:
        assert (done.returncode, runs) == (3, [])
        assert "run out of file descriptors: raise `ulimit -n`" in done.stderr
        assert "Traceback" not in done.stderr


def test_down_during_a_fill_ends_holder_and_filler(folder: Path, plan: Path, tmp_path: Path) -> None:
    pause = Pause(tmp_path, "hipMemMap@2")
    up = command("up", str(plan), "--name", "w", faults=pause.rule)
    with pause.under_way():
        down = command("down", "w", "--quiet")
        until(lambda: state() == "ending")
    assert (down.wait(), up.wait()) == (0, 143)
    until(lambda: not about(plan))


def test_down_during_a_fill_that_nobody_waits_for_leaves_nothing(folder: Path, plan: Path, tmp_path: Path) -> None:
    pause = Pause(tmp_path, "hipMemMap@2")
    assert command("up", str(plan), "--name", "w", "--no-wait", "--quiet", faults=pause.rule).wait() == 0
    with pause.under_way():
        down = command("down", "w", "--quiet")
        until(lambda: state() == "ending")
    assert down.wait() == 0
    assert [*names.known()] == []


def test_a_leak_in_a_down_during_a_fill_stays_in_the_log(folder: Path, plan: Path, tmp_path: Path) -> None:
    pause = Pause(tmp_path, "hipMemMap@2")
    faults = f"{pause.rule}; hipMemUnmap@1=hipErrorUnknown"
    assert command("up", str(plan), "--name", "w", "--no-wait", "--quiet", faults=faults).wait() == 0
    with pause.under_way():
        down = command("down", "w", "--quiet")
        until(lambda: state() == "ending")
    down.wait()
    ((name, log, _),) = names.known()
    assert name == "w" and "HP403" in Path(log).read_text()


def test_the_fill_continues_after_the_waiting_up_is_killed(
    folder: Path, plan: Path, tmp_path: Path, sim: Simulator
) -> None:
    pause = Pause(tmp_path, "hipMemMap@2")
    up = command("up", str(plan), "--name", "w", faults=pause.rule)
    with pause.under_way():
        up.kill()
        up.wait()
    with hipplan.attach("w") as layout:
        assert f32(layout, "model.b", sim) == {2.5}
    assert command("down", "w", "--wait", "--quiet").wait() == 0


@pytest.mark.in_parts
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_replace_keeps_the_old_memory(
    folder: Path, plan: Path, tmp_path: Path, sim: Simulator, number: signal.Signals
) -> None:
    pause = Pause(tmp_path, "hipMemMap@4")  # the first filler makes three
    assert command("up", str(plan), "--name", "w", "--quiet", faults=pause.rule).wait() == 0
    more = tmp_path / "more.yaml"
    more.write_text(plan.read_text().replace("{dtype: f32, shape: [512, 1024]}", "{dtype: f32, shape: [1024, 1024]}"))
    replace = command("replace", "w", str(more))
    with pause.under_way():
        assert state() == "replacing"
        assert command("replace", "w", str(plan)).wait() == 4  # only one task at a time
        replace.send_signal(number)
        replace.wait()
    assert replace.returncode == (130 if number == signal.SIGINT else -9)
    until(lambda: state() == "ready")
    until(lambda: not about(more))
    with hipplan.attach("w") as layout:
        assert f32(layout, "model.b", sim) == {2.5}
        assert layout.lost == {}
    assert command("down", "w", "--wait", "--quiet").wait() == 0


def test_ps_shows_how_much_is_filled(folder: Path, plan: Path, tmp_path: Path) -> None:
    pause = Pause(tmp_path, "hipMemUnmap@1")  # all memory is filled by then, and the filler closes its layout
    up = command("up", str(plan), "--name", "w", "--quiet", faults=pause.rule)
    with pause.under_way():
        status = requests.status("w")
        assert (status["state"], status["filled"]) == ("filling", [6 << 20, 6 << 20])
        shown = subprocess.run([sys.executable, "-m", "hipplan", "ps"], capture_output=True, text=True, check=True)
        assert "w: filling 100 %" in shown.stdout
    assert up.wait() == 0
    assert command("down", "w", "--quiet").wait() == 0


def test_of_two_holders_started_at_once_one_gets_the_name(folder: Path, plan: Path) -> None:
    both = [command("up", str(plan), "--name", "w", "--quiet") for _ in range(2)]
    assert sorted(process.wait() for process in both) == [0, 4]
    assert state() == "ready"
    assert command("down", "w", "--quiet").wait() == 0
    until(lambda: not about(plan))


def test_hipplan_attach_waits_until_all_memory_is_filled(folder: Path, plan: Path, tmp_path: Path) -> None:
    pause = Pause(tmp_path, "hipMemMap@2")
    assert command("up", str(plan), "--name", "w", "--no-wait", "--quiet", faults=pause.rule).wait() == 0
    with pause.under_way():
        attach = command("attach", "w", "--", "true")
        assert state() == "filling"
        assert attach.poll() is None
    assert attach.wait() == 0
    assert state() == "ready"
    assert command("down", "w", "--quiet").wait() == 0


def test_a_name_without_a_usable_folder_is_an_error(
    folder: Path, plan: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for unusable, why, error in (
        (folder / "not there" / "folder", "No such file", "HP451"),
        ("relative", "not an absolute path", "HP456"),
    ):
        monkeypatch.setenv("HIPPLAN_SOCKETS", str(unusable))
        with pytest.raises(hipplan.HeldError, match=why) as caught:
            names.Name("w")
        assert caught.value.diagnostics[0].code == error


def test_up_in_a_removed_working_folder_is_an_error(folder: Path, plan: Path, tmp_path: Path) -> None:
    removed = tmp_path / "removed"
    removed.mkdir()
    script = f'rmdir "{removed}"; exec "{sys.executable}" -m hipplan up "{plan}" --name w'
    done = subprocess.run(["sh", "-c", script], cwd=removed, capture_output=True, text=True, check=False)
    assert done.returncode in (2, 4)
    assert "Traceback" not in done.stderr
    assert [name for name, _, runs in names.known() if runs] == []
