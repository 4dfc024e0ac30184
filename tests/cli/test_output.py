"""Files that commands write: complete or unchanged, without temporary files beside them."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

import hipplan as library
from hipplan.cli import main
from hipplan.errors import PlanError
from hipplan.files.output import replacing, write_document
from tests.cli.conftest import Run, command
from tests.conftest import ROOT, Simulator

QUICKSTART = ROOT / "plans" / "quickstart.yaml"
CHECKPOINT = ROOT / "plans" / "data"
UGLY = "name:   x   # the name\nhipplan: 1\n"

Writes = Callable[[Path], list[str]]


def lock(file: Path) -> list[str]:
    return command("lock", QUICKSTART, "--machine", "sim-2", "-o", file)


def import_(file: Path) -> list[str]:
    return command("import", "safetensors", sorted(CHECKPOINT.glob("*.safetensors"))[0], "-o", file, "--force")


def fmt(file: Path) -> list[str]:
    return command("fmt", "--write", file)


def save(file: Path) -> list[str]:
    return command("apply", ROOT / "plans" / "contents.yaml", "--once", "--runtime", "sim", "--save", f"mirror={file}")


def run(line: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(line, capture_output=True, text=True, timeout=600, **more)


def no_room() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, 8))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("writes", [lock, import_, fmt])
def test_a_full_disk_leaves_the_old_file_and_nothing_beside_it(writes: Writes, tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(UGLY)
    done = run(writes(file), preexec_fn=no_room)

    assert done.returncode == 2, done.stderr
    assert f"error[HP413]: the {'lock' if writes is lock else 'plan'} '{file}' cannot be written" in done.stderr
    assert "why:  File too large" in done.stderr
    assert file.read_text() == UGLY
    assert names(tmp_path) == ["file.yaml"]


def test_a_full_disk_leaves_what_was_saved_before(sim: Simulator, tmp_path: Path) -> None:
    with library.apply({"hipplan": 1, "buffers": {"b": {"kind": "device", "size": 64}}}, runtime="sim") as layout:
        layout.fill("b", 1)
        layout.save("b", tmp_path / "b.bin")
        layout.fill("b", 2)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8, before[1]))
        try:
            with pytest.raises(library.ApplyError) as caught:
                layout.save("b", tmp_path / "b.bin")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.code, diagnostic.why, caught.value.exit_code) == ("HP413", "File too large", 4)
    assert str(tmp_path / "b.bin") in diagnostic.summary
    assert (tmp_path / "b.bin").read_bytes() == bytes([1]) * 64
    assert names(tmp_path) == ["b.bin"]


@pytest.mark.parametrize("writes", [lock, import_, fmt, save])
def test_the_rights_of_an_old_file_stay(writes: Writes, tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(UGLY)
    file.chmod(0o640)
    done = run(writes(file))

    assert done.returncode == 0, done.stderr
    assert file.stat().st_mode & 0o7777 == 0o640
    assert file.read_bytes() not in (b"", UGLY.encode())
    assert names(tmp_path) == ["file.yaml"]


def test_a_new_file_has_the_rights_of_any_new_file(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_document(str(tmp_path / ("n" * 255)), "text", "the lock")
    finally:
        os.umask(before)

    assert (tmp_path / ("n" * 255)).stat().st_mode & 0o7777 == 0o640


def test_what_a_killed_process_left_is_removed_by_the_next_that_saves(tmp_path: Path, hipplan: Run) -> None:
    """Only ours, and only what no process writes any more."""
    names = {kind: f".hipplan-{number:016x}.part" for number, kind in enumerate(("dead", "alive", "linked", "folder"))}
    kept = {names["alive"], names["linked"], names["folder"], ".hipplan-notes.part", "mine"}
    (tmp_path / names["dead"]).touch()  # where a file system has no files without a name
    (tmp_path / "mine").write_text("mine")
    (tmp_path / names["linked"]).symlink_to(tmp_path / "mine")
    (tmp_path / names["folder"]).mkdir()
    (tmp_path / ".hipplan-notes.part").write_text("mine")
    with (tmp_path / names["alive"]).open("w") as alive:
        fcntl.flock(alive, fcntl.LOCK_EX)
        saving = ("apply", QUICKSTART, "--once", "--runtime", "sim", "--save", f"staging={tmp_path / 'saved'}")
        done = hipplan(*saving)

        assert done.returncode == 0, done.stderr
        assert {path.name for path in tmp_path.iterdir()} == kept | {"saved"}


def test_a_process_that_is_killed_while_it_saves_leaves_nothing(tmp_path: Path) -> None:
    killed = f"""
import os, signal
from hipplan.files.output import replacing
with replacing({str(tmp_path / "victim")!r}) as descriptor:
    os.write(descriptor, b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    (tmp_path / "victim").write_text("old")
    done = subprocess.run([sys.executable, "-c", killed], check=False)

    assert done.returncode == -signal.SIGKILL
    assert (names(tmp_path), (tmp_path / "victim").read_text()) == (["victim"], "old")


def test_two_who_save_in_one_folder_leave_each_other_alone(tmp_path: Path, hipplan: Run) -> None:
    with replacing(str(tmp_path / "mine")) as descriptor:
        os.write(descriptor, b"mine")
        done = hipplan("import", "safetensors", sorted(CHECKPOINT.glob("*.safetensors"))[0], "-o", tmp_path / "other")
        assert done.returncode == 0, done.stderr

    assert (tmp_path / "mine").read_bytes() == b"mine"
    assert {path.name for path in tmp_path.iterdir()} == {"mine", "other"}


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), replacing(str(tmp_path / "file")) as descriptor:
        os.write(descriptor, b"half")
        raise KeyboardInterrupt

    assert names(tmp_path) == []


@pytest.mark.parametrize("name", ["", "no/such/file", ".", "..", "folder/", "a\0b", "n" * 256, "loop/file"])
def test_a_name_that_cannot_be_written_is_reported(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(PlanError) as caught:
        write_document(name, "text", "the lock")

    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == ["HP413"]
    assert names(tmp_path) == ["loop"]


def test_a_file_that_may_not_be_written_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode, **_: mode != os.W_OK)  # as for a user other than root
    (tmp_path / "file").write_text("old")
    with pytest.raises(PlanError, match="Permission denied"):
        write_document(str(tmp_path / "file"), "new", "the lock")

    assert (tmp_path / "file").read_text() == "old"


def test_a_document_goes_into_a_pipe_or_device_as_it_is(tmp_path: Path) -> None:
    shown = run(lock(Path("-"))).stdout

    assert run(lock(Path("/dev/stdout"))).stdout == shown
    assert run(lock(Path("/dev/null"))).returncode == 0
    assert Path("/dev/null").is_char_device()
    full = run(lock(Path("/dev/full")))
    assert full.returncode == 2
    assert "why:  No space left on device" in full.stderr


def test_memory_is_not_saved_in_the_place_of_a_device(sim: Simulator, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with library.apply({"hipplan": 1, "buffers": {"b": {"kind": "device", "size": 64}}}, runtime="sim") as layout:
        for name in ("/dev/null", tmp_path / "pipe", tmp_path):
            with pytest.raises(library.ApplyError) as caught:
                layout.save("b", name)
            assert caught.value.diagnostics[0].code == "HP413"
        layout.save("b", tmp_path / "b.npy")

    assert Path("/dev/null").is_char_device()
    assert names(tmp_path) == ["b.npy", "pipe"]
    assert numpy.load(tmp_path / "b.npy").nbytes == 64


def test_a_plan_that_came_from_a_pipe_is_not_written_back(tmp_path: Path, hipplan: Run) -> None:
    reading, writing = os.pipe()
    os.write(writing, UGLY.encode())
    os.close(writing)
    done = run(fmt(Path(f"/dev/fd/{reading}")), pass_fds=[reading])
    os.close(reading)

    assert done.returncode == 2
    assert "why:  it is not a regular file" in done.stderr


def test_a_document_is_utf_8_on_a_terminal_that_is_not(hipplan: Run) -> None:
    plan = "hipplan: 1\nname: pl\u00e4n\n"
    done = hipplan(
        "lock", "-", "--machine", "sim-2", stdin=plan, env={"PYTHONIOENCODING": "utf-8:strict", "LC_ALL": "C"}
    )
    ascii_only = subprocess.run(
        command("lock", "-", "--machine", "sim-2"),
        input=plan.encode(),
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        timeout=600,
    )

    assert ascii_only.stdout.decode() == done.stdout
    assert "  name: pl\u00e4n\n" in done.stdout


def test_what_is_read_is_not_written_over(tmp_path: Path, hipplan: Run) -> None:
    plan, tensors = tmp_path / "plan.yaml", tmp_path / "layer.safetensors"
    plan.write_text('{"hipplan": 1, "buffers": {"b": {"kind": "pinned", "size": 64}}}')
    tensors.write_bytes((CHECKPOINT / "layer.safetensors").read_bytes())
    (tmp_path / "link").symlink_to(plan)
    before = {path: path.read_bytes() for path in (plan, tensors)}
    for line in (
        ("lock", plan, "--machine", "sim-2", "-o", tmp_path / "link"),
        ("import", "safetensors", tensors, "-o", tensors),
        ("apply", plan, "--once", "--runtime", "sim", "--record", tmp_path / "link"),
        ("apply", tmp_path / "link", "--once", "--runtime", "sim", "--save", f"b={plan}"),
    ):
        done = hipplan(*line)
        assert done.returncode == 2, line
        assert "is an input of this command; name another file" in done.stderr
    assert {path: path.read_bytes() for path in (plan, tensors)} == before


def test_what_a_plan_and_an_index_name_is_read_too(
    tmp_path: Path, sim: Simulator, capsys: pytest.CaptureFixture[str]
) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"embed": "m-1.safetensors"}}')
    for name in ("m-1.safetensors", "kv.bin", "pinned.bin"):
        (tmp_path / name).write_bytes(bytes(64))
    (tmp_path / "part.yaml").write_text("hipplan: 1\nbuffers: {a: {kind: pinned, size: 64}}\n")
    (plan := tmp_path / "plan.yaml").write_text(
        "hipplan: 1\ninclude: part.yaml\nbuffers: {b: {kind: registered, file: pinned.bin}}\n"
        "regions: {r: {device: gpu.0, tensors: {embed: {dtype: u8, shape: [64]}}}}\n"
        f"contents: {{a: {{file: kv.bin}}, r: {{file: {index.name}}}}}\n"
    )
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    lines = [["import", "safetensors", str(index), "-o", str(tmp_path / "m-1.safetensors")]]
    for file in before:
        lines.append(["lock", str(plan), "--machine", "sim-2", "-o", str(file)])
        lines.append(["apply", str(plan), "--once", "--runtime", "sim", "--record", str(file)])
        lines.append(["apply", str(plan), "--once", "--runtime", "sim", "--save", f"a={file}"])
    for line in lines:
        assert main.run(line) == 2, line
        assert "is an input of this command; name another file" in capsys.readouterr().err, line
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            ["apply", str(QUICKSTART), "--once", "--runtime", "sim", "--save", "model=-"],
            "--save: the report goes to standard output",
        ),
        (["replay", "-"], "a record cannot be read from standard input"),
    ],
)
def test_a_dash_is_no_file(line: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(line) == 2
    assert told in capsys.readouterr().err


def test_two_outputs_are_two_files(tmp_path: Path, hipplan: Run) -> None:
    plan = '{"hipplan": 1, "buffers": {"b": {"kind": "pinned", "size": 64}, "c": {"kind": "pinned", "size": 64}}}'
    one, same, old = tmp_path / "a.bin", f"{tmp_path}/./a.bin", tmp_path / "old.bin"
    old.write_text("old")
    (tmp_path / "link").symlink_to(old)
    apply = ("apply", "-", "--once", "--runtime", "sim")
    for more in (
        ("--save", f"b={one}", "--record", one),
        ("--save", f"b={one}", "--save", f"c={same}"),
        ("--save", f"b={old}", "--save", f"c={tmp_path / 'link'}"),
    ):
        done = hipplan(*apply, *more, stdin=plan)
        assert (done.returncode, done.stdout) == (2, ""), more
        assert "too; name another file" in done.stderr
    assert names(tmp_path) == ["link", "old.bin"]
    assert old.read_text() == "old"

    done = hipplan(*apply, "--save", f"b={one}", "--save", f"c={old}", "--record", "/dev/null", stdin=plan)
    assert done.returncode == 0, done.stderr
    assert names(tmp_path) == ["a.bin", "link", "old.bin"]
