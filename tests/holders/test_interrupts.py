"""A signal, `hipplan down` or another `up` while a holder fills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import hipplan
from hipplan.holders import names, requests
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
    assert up.returncode == 128 + number
    until(lambda: not about(plan))
    assert [name for name, _, runs in names.known() if runs] == []


def test_down_during_a_fill_ends_holder_and_filler(folder: Path, plan: Path, tmp_path: Path) -> None:
    pause = Pause(tmp_path, "hipMemMap@2")
    up = command("up", str(plan), "--name", "w", faults=pause.rule)
    with pause.under_way():
        down = command("down", "w", "--quiet")
        until(lambda: state() == "ending")
    assert (down.wait(), up.wait()) == (0, 143)
    until(lambda: not about(plan))


def test_the_fill_continues_after_the_waiting_up_is_killed(
    folder: Path, plan: Path, tmp_path: Path, sim: Simulator
) -> None:
    pause = Pause(tmp_path, "hipMemMap@2")
    up = command("up", str(plan), "--name", "w", faults=pause.rule)
    with pause.under_way():
        up.kill()
        up.wait()
    with hipplan.attach("w", answer=False) as layout:
        assert f32(layout, "model.b", sim) == {2.5}
    assert command("down", "w", "--wait", "--quiet").wait() == 0


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
    with hipplan.attach("w", answer=False) as layout:
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
