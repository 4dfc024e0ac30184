"""Pipes, devices and folders where a file is expected: read as far as is right, refused where not, never a hang."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.cli.conftest import Run, command
from tests.conftest import ROOT

QUICKSTART = ROOT / "plans" / "quickstart.yaml"
SIM = ("--machine", "sim-2")


@contextmanager
def piped(*line: object) -> Iterator[str]:
    """What a shell makes of <(line): the name of a pipe that a program writes to; one that other processes know too."""
    writer = subprocess.Popen([*map(str, line)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert writer.stdout is not None
    try:
        yield f"/proc/{os.getpid()}/fd/{writer.stdout.fileno()}"
    finally:
        writer.stdout.close()
        writer.kill()
        writer.wait()


def test_a_plan_may_come_from_a_pipe_of_a_shell() -> None:
    line = command("validate", "/dev/stdin")
    with piped("cat", QUICKSTART) as plan, Path(plan).open() as stdin:
        shell = ["bash", "-c", '"$0" -m hipplan validate <(cat "$1")', line[0], str(QUICKSTART)]
        for done in (subprocess.run(item, stdin=stdin, capture_output=True, text=True) for item in (line, shell)):
            assert done.returncode == 0, done.stderr


def test_a_plan_a_lock_and_a_profile_may_come_from_pipes(hipplan: Run) -> None:
    profile = ROOT / "hipplan" / "machines" / "sim-2.yaml"
    lock = hipplan("lock", QUICKSTART, *SIM).stdout
    with piped("cat", QUICKSTART) as plan, piped("cat", profile) as machine, piped("printf", "%s", lock) as locked:
        checked = hipplan("lock", plan, "--machine", machine, "--check", locked)

    assert checked.returncode == 0, checked.stderr
    for verb, *more in (("validate",), ("fmt",), ("fmt", "--check"), ("preview", *SIM)):
        with piped("cat", QUICKSTART) as plan:
            done = hipplan(verb, *more, plan)
        assert done.returncode == 0, (verb, done.stderr)


@pytest.mark.parametrize(
    "line",
    [("validate",), ("fmt",), ("lock", QUICKSTART, *SIM, "--check"), ("preview", QUICKSTART, "--machine")],
    ids=lambda line: line[0],
)
def test_what_never_ends_is_too_large(line: tuple[object, ...], hipplan: Run) -> None:
    with piped("yes", "a: 1") as endless:
        for name in ("/dev/zero", endless):
            done = hipplan(*line, name)
            assert done.returncode == 2
            assert f"error[HP009]: {name} is larger than 64 MiB" in done.stderr


def test_the_tensors_of_a_checkpoint_are_in_files(tmp_path: Path, hipplan: Run) -> None:
    for name in ("m.safetensors", "m.safetensors.index.json"):
        os.mkfifo(tmp_path / name)
        done = hipplan("import", "safetensors", tmp_path / name)
        assert done.returncode == 2
        assert f"error[HP405]: {tmp_path / name} is not a regular file" in done.stderr


def test_a_plan_is_made_of_files(tmp_path: Path, hipplan: Run) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    (tmp_path / "plan.yaml").write_text("hipplan: 1\ninclude: [pipe.yaml, /dev/zero]\n")
    done = hipplan("validate", tmp_path / "plan.yaml", "--include-anywhere")

    assert done.returncode == 2
    assert "plan.yaml:2:11: error[HP025]: pipe.yaml is a pipe or a device" in done.stderr
    assert "plan.yaml:2:22: error[HP025]: /dev/zero is a pipe or a device" in done.stderr
    (tmp_path / "plan.yaml").write_text("hipplan: 1\n")
    for verb in ("validate", "fmt"):
        result = hipplan(verb, *(["--check"] if verb == "fmt" else []), tmp_path)
        assert (result.returncode, result.stderr) == (0, "")


def test_memory_is_registered_from_a_file(tmp_path: Path, hipplan: Run) -> None:
    os.mkfifo(tmp_path / "pipe")
    for size in ("", ", size: 4096"):
        (tmp_path / "plan.yaml").write_text(f"hipplan: 1\nbuffers: {{d: {{kind: registered, file: pipe{size}}}}}\n")
        done = hipplan("apply", tmp_path / "plan.yaml", "--once", "--runtime", "sim")
        assert done.returncode == 4
        assert "error[HP405]: 'd': " in done.stderr
        assert "pipe is not a regular file" in done.stderr


def test_a_pipe_without_a_writer_blocks_until_an_interrupt(tmp_path: Path) -> None:
    """As any program does; who wants it ended ends it."""
    os.mkfifo(tmp_path / "pipe")
    waiting = subprocess.Popen(command("validate", tmp_path / "pipe"), stderr=subprocess.PIPE, text=True)
    writing = -1
    while writing < 0:
        assert waiting.poll() is None
        with suppress(OSError):  # ENXIO until a process reads
            writing = os.open(tmp_path / "pipe", os.O_WRONLY | os.O_NONBLOCK)
    while waiting.poll() is None:  # a signal just before the read begins is heard at its end
        waiting.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            waiting.wait(timeout=2)
    os.close(writing)
    assert waiting.stderr is not None
    with waiting.stderr as output:
        assert (waiting.returncode, output.read()) == (130, "")


@pytest.mark.parametrize(("text", "code"), [("hipplan: 1\n", 0), ("hipplan: 1\nbuffers: 3\n", 2)])
def test_a_reader_that_has_gone_does_not_change_the_exit_code(text: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(text)
    reader, writer = os.pipe()
    os.close(reader)
    try:
        line = command("validate", tmp_path / "plan.yaml", "--format", "json")
        buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        done = subprocess.run(line, stdout=writer, stderr=subprocess.PIPE, text=True, env=buffered)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (code, "")
