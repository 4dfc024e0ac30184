"""Closed, full and unread standard streams, a working folder that is gone, arguments that a script left empty."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Run, command
from tests.conftest import ROOT
from tests.started import Started

QUICKSTART = ROOT / "plans" / "quickstart.yaml"
CHECKPOINT = ROOT / "plans" / "data" / "layer.safetensors"
VERBS = {
    "validate": ("validate", QUICKSTART),
    "fmt": ("fmt", QUICKSTART),
    "preview": ("preview", QUICKSTART, "--machine", "sim-2"),
    "lock": ("lock", QUICKSTART, "--machine", "sim-2"),
    "apply": ("apply", QUICKSTART, "--once"),
    "json": ("apply", QUICKSTART, "--once", "--format", "json"),
    "import": ("import", "safetensors", CHECKPOINT),
    "machine": ("machine",),
    "wrong": ("validate", "missing.yaml"),
    "usage": ("validate", "--nonsense"),
}


def shell(line: tuple[object, ...], streams: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    script = f'"$@" {streams}'
    return subprocess.run(
        ["bash", "-c", script, "bash", *command(*line)], capture_output=True, text=True, timeout=600, cwd=cwd
    )


STREAMS: dict[str, tuple[int, ...]] = {
    "<&- >&- 2>&-": (0, 1, 2),
    ">&-": (1,),
    "2>&-": (2,),
    "2>/dev/full": (),
    "2> >(true)": (),
}
"""What a shell does to the streams of a command, and which of them are closed then."""


@contextlib.contextmanager
def error_stream(streams: str, usual: int) -> Iterator[int]:
    """A descriptor for standard error as a shell makes it."""
    if streams == "2>/dev/full":
        with Path("/dev/full").open("wb") as full:
            yield full.fileno()
    elif streams == "2> >(true)":
        reading, writing = os.pipe()
        os.close(reading)
        yield writing
        os.close(writing)
    else:
        yield usual


@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize("verb", VERBS)
def test_a_closed_standard_output_does_not_stop_the_command(
    verb: str, streams: str, started: Started, tmp_path: Path
) -> None:
    ledger, answer = tmp_path / "record", tmp_path / "said"
    more = ("--record", ledger) if VERBS[verb][0] == "apply" else ()
    line = [str(item) for item in (*VERBS[verb], *more)]
    with answer.open("wb") as out, error_stream(streams, out.fileno()) as err, Path(os.devnull).open() as nothing:
        given = (nothing.fileno(), out.fileno(), err)
        closed = STREAMS[streams]
        kept = [None if number in closed else descriptor for number, descriptor in enumerate(given)]
        ended = started.run_on(line, kept, dict(os.environ), tmp_path)

    assert ended.code == (2 if verb in ("wrong", "usage") else 0), answer.read_text()
    assert "Traceback" not in answer.read_text()
    if more:
        assert json.loads(ledger.read_text().splitlines()[-1]) == {"event": "end"}
    if streams == "2>&-" and verb in ("wrong", "usage"):
        assert answer.read_text() == ""  # what is wrong is no result


@pytest.mark.parametrize("streams", STREAMS)
def test_python_itself_starts_and_ends_with_such_streams(streams: str, tmp_path: Path) -> None:
    done = shell(VERBS["preview"], streams, tmp_path)

    assert (done.returncode, "Traceback" in done.stderr) == (0, False)


def test_a_working_folder_that_is_gone_is_reported(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    line = command("import", "safetensors", CHECKPOINT)
    done = subprocess.run(
        ["bash", "-c", 'rmdir "$PWD"; "$@"', "bash", *line], capture_output=True, text=True, timeout=600, cwd=gone
    )

    assert done.returncode == 2
    assert done.stderr.endswith("the working folder no longer exists: change to another one\n")


@pytest.mark.parametrize(
    "line",
    [
        ("validate", ""),
        ("fmt", ""),
        ("preview", ""),
        ("preview", QUICKSTART, "--machine", ""),
        ("lock", QUICKSTART, "--check", ""),
        ("apply", QUICKSTART, "--locked", ""),
        ("replay", ""),
        ("import", "safetensors", ""),
    ],
    ids=str,
)
def test_an_argument_that_a_script_left_empty_is_not_one_left_out(line: tuple[object, ...], hipplan: Run) -> None:
    done = hipplan(*line)

    assert done.returncode == 2
    assert ": is empty" in done.stderr


def test_a_file_that_is_no_program_is_reported(tmp_path: Path, hipplan: Run) -> None:
    (tmp_path / "text").write_text("hello\n")
    (tmp_path / "text").chmod(0o755)
    done = hipplan("sim", "--", tmp_path / "text")

    assert done.returncode == 3
    assert f"error[HP407]: '{tmp_path}/text' cannot be started: Exec format error" in done.stderr
