"""A name has one holder, whatever happens to its files, and where that cannot be told it is an error with a reason."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan.errors import HeldError
from hipplan.holders import guard, names, requests
from hipplan.processes import folders
from hipplan.processes.process import is_ending, is_stopped
from tests.conftest import Simulator
from tests.holders.test_holders import Held, code, f32, until
from tests.started import run


def listed(capfd: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    """The exit code of `hipplan ps`, and its JSON."""
    capfd.readouterr()
    exit_code = run(["ps", "--format", "json"])
    return exit_code, json.loads(capfd.readouterr().out)


def test_a_holder_whose_files_are_removed_is_found_and_keeps_its_name(
    held: Held, folder: Path, plan: Path, sim: Simulator, capfd: pytest.CaptureFixture[str]
) -> None:
    process = held()["pid"]
    shutil.rmtree(folder / "hipplan")
    exit_code, document = listed(capfd)
    assert (exit_code, [holder["pid"] for holder in document["holders"]]) == (0, [process])
    assert run(["up", str(plan), "--name", "w"]) == 4
    assert "HP451" in capfd.readouterr().err
    with hipplan.attach("w") as layout:
        assert f32(layout, "model.b", sim) == {2.5}
    foreign = folder / "hipplan" / "held-w.log"
    foreign.parent.mkdir(0o700)
    foreign.write_text("of a holder in another network namespace")
    until(lambda: requests.status("w")["attached"] == [])
    assert run(["down", "w", "--quiet"]) == 0
    assert foreign.exists()
    foreign.unlink()
    assert [*names.known()] == []


@contextmanager
def opened_to_others(folder: Path) -> Iterator[str]:
    folder.chmod(0o755)
    yield "its mode is 0755"
    folder.chmod(0o700)


@contextmanager
def behind_a_link(folder: Path) -> Iterator[str]:
    there = folder.with_name("elsewhere")
    folder.rename(there)
    folder.symlink_to(there)
    yield "is a link"
    folder.unlink()
    there.rename(folder)


@contextmanager
def replaced_by_a_file(folder: Path) -> Iterator[str]:
    there = folder.with_name("elsewhere")
    folder.rename(there)
    folder.touch()
    yield "is not a folder"
    folder.unlink()
    there.rename(folder)


@pytest.mark.parametrize("spoilt", [opened_to_others, behind_a_link, replaced_by_a_file])
def test_a_folder_that_cannot_be_used_is_an_error_and_hides_no_holder(
    held: Held, folder: Path, plan: Path, capfd: pytest.CaptureFixture[str], spoilt: Any
) -> None:
    process = held()["pid"]
    with spoilt(folder / "hipplan") as why:
        exit_code, document = listed(capfd)
        assert (exit_code, [holder["pid"] for holder in document["holders"]]) == (4, [process])
        assert [diagnostic["code"] for diagnostic in document["diagnostics"]] == ["HP456"]
        assert why in document["diagnostics"][0]["why"]
        assert requests.status("w")["pid"] == process
        for arguments, error in (
            (["up", str(plan), "--name", "w"], "HP451"),
            (["up", str(plan), "--name", "other"], "HP456"),
            (["down", "other"], "HP456"),
            (["ps"], "HP456"),
        ):
            assert run(arguments) == 4
            assert error in capfd.readouterr().err
        with pytest.raises(HeldError, match=why) as caught:
            hipplan.attach("other")
        assert code(caught) == "HP456"
    assert listed(capfd)[0] == 0


def test_a_relative_folder_is_not_taken_for_one_without_holders(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(folders.ONLY, "relative")
    assert run(["ps"]) == 4
    said = capfd.readouterr().err
    assert "HIPPLAN_SOCKETS is not an absolute path: relative\n  hint: give it an absolute path\n" in said


def test_a_name_has_one_owner_while_the_folder_below_tmp_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second process takes the name while the first one makes its folder, of which the second one cannot know."""
    import tempfile

    monkeypatch.delenv(folders.ONLY)
    monkeypatch.setattr(folders, "_runtime_folders", list)
    monkeypatch.setattr(folders, "_SHARED", str(tmp_path))
    name, make = f"test-{secrets.token_hex(8)}", tempfile.mkdtemp
    refused: list[str] = []

    def made_late(**options: Any) -> str:
        if not refused:
            refused.append("")
            with pytest.raises(HeldError) as caught:
                names.Name(name)
            refused[0] = code(caught)
        return make(**options)

    monkeypatch.setattr(tempfile, "mkdtemp", made_late)
    owned = names.Name(name)
    assert refused == ["HP451"]
    owned.close(keep_log=False)
    names.Name(name).close(keep_log=False)


def test_processes_of_two_network_namespaces_that_share_the_folder_share_the_names(
    held: Held, folder: Path, plan: Path
) -> None:
    held()
    command = ["unshare", "--net", sys.executable, "-m", "hipplan", "up", str(plan), "--name"]
    done = [subprocess.run([*command, name], capture_output=True, text=True, check=False) for name in ("w", "v")]
    if "unshare" in done[0].stderr:
        pytest.skip(done[0].stderr.strip())
    assert [process.returncode for process in done] == [4, 0]
    assert "HP451" in done[0].stderr
    assert run(["down", "v", "--quiet"]) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_name_that_another_user_has_taken_is_in_doubt(
    folder: Path, plan: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ready, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.setuid(12345)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as taken:
            taken.bind(guard._address("w").replace("-12345-", "-0-"))
            taken.listen()
            os.write(write_end, b"1")
            signal.pause()
    assert os.read(ready, 1) == b"1"
    try:
        for arguments in (["up", str(plan), "--name", "w"], ["down", "w"]):
            assert run(arguments) == 4
            errors = capfd.readouterr().err
            assert "HP456" in errors
            assert f"process {child} of user 12345" in errors
        assert listed(capfd)[1]["holders"] == []
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(write_end)
    assert run(["up", str(plan), "--name", "w", "--quiet"]) == 0
    assert run(["down", "w", "--quiet"]) == 0


def test_a_process_that_was_killed_is_ending_and_one_that_is_stopped_is_not() -> None:
    with subprocess.Popen(["sleep", "600"]) as child:
        assert not is_ending(child.pid)
        child.send_signal(signal.SIGSTOP)
        until(lambda: is_stopped(child.pid))
        assert not is_ending(child.pid)
        child.kill()
        assert is_ending(child.pid)  # before its end was waited for
        assert not is_stopped(child.pid)
    assert is_ending(child.pid)
    assert not is_ending(0)
    assert not is_ending(os.getpid())


def test_what_a_killed_holder_in_the_foreground_leaves_is_gone_with_the_next(
    held: Held, folder: Path, plan: Path
) -> None:
    line = [sys.executable, "-m", "hipplan", "up", str(plan), "--name", "killed", "--foreground", "--quiet"]
    with subprocess.Popen(line) as process:
        until(lambda: ("killed", True) in {(name, runs) for name, _, runs in names.known()})
        until(lambda: requests.status("killed")["state"] == "ready")
        process.kill()
    assert {path.name for path in (folder / "hipplan").iterdir()} == {"held-killed", "held-killed.lock"}
    held()

    assert {path.name for path in (folder / "hipplan").iterdir()} == {"held-w", "held-w.lock", "held-w.log"}
