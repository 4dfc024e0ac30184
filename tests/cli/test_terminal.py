"""What a terminal gets and a file does not: colours, and tables that fit."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.conftest import ROOT
from tests.started import Started

QUICKSTART = ROOT / "plans" / "quickstart.yaml"
ESCAPE = "\x1b["
Shows = Callable[..., tuple[int, str]]


@pytest.fixture
def on_a_terminal(started: Started) -> Shows:
    """on_a_terminal(*arguments, **variables): exit code, and what standard output and error show on a terminal."""

    def run(*arguments: object, **variables: str) -> tuple[int, str]:
        master, terminal = pty.openpty()
        shown = bytearray()

        def read() -> None:
            with contextlib.suppress(OSError):  # EIO: the other end is closed
                while piece := os.read(master, 65536):
                    shown.extend(piece)

        reader = threading.Thread(target=read)
        reader.start()
        env = {**os.environ, "TERM": "xterm-256color", **variables}
        with Path(os.devnull).open() as nothing:
            ended = started.run_on(
                [str(argument) for argument in arguments], (nothing.fileno(), terminal, terminal), env
            )
        os.close(terminal)
        reader.join()
        os.close(master)
        return ended.code, shown.decode().replace("\r\n", "\n")

    return run


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    file = tmp_path / "plan.yaml"
    file.write_text("hipplan: 1\nallocations: {a: {devise: gpu.0, size: 1MiB}}\n")
    return file


def test_a_diagnostic_has_colours_on_a_terminal_and_the_same_words(
    wrong: Path, hipplan: Run, on_a_terminal: Shows
) -> None:
    code, shown = on_a_terminal("validate", wrong)
    plain = hipplan("validate", wrong).stderr

    assert code == 2
    assert ESCAPE in shown
    assert ESCAPE not in plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown) == plain


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}, {"TERM": "dumb"}])
def test_who_wants_no_colours_gets_none(variables: dict[str, str], wrong: Path, on_a_terminal: Shows) -> None:
    for line in (["validate", wrong], ["preview", QUICKSTART, "--machine", "sim-2"]):
        _, shown = on_a_terminal(*line, **variables)

        assert "\x1b" not in shown


def test_colours_can_be_forced_into_a_pipe(wrong: Path, hipplan: Run) -> None:
    assert ESCAPE in hipplan("validate", wrong, env={"FORCE_COLOR": "1"}).stderr
    assert ESCAPE in hipplan("preview", QUICKSTART, "--machine", "sim-2", env={"FORCE_COLOR": "1"}).stdout
    assert ESCAPE not in hipplan("validate", wrong, env={"FORCE_COLOR": ""}).stderr


def test_tables_fit_a_narrow_terminal(hipplan: Run, on_a_terminal: Shows) -> None:
    line = ["preview", QUICKSTART, "--machine", "sim-2"]
    _, shown = on_a_terminal(*line, COLUMNS="72", NO_COLOR="1")
    wide = hipplan(*line).stdout

    assert max(map(len, wide.splitlines())) > 72
    assert max(map(len, shown.splitlines())) <= 72
    assert sorted(re.findall(r"\w+", shown)) == sorted(re.findall(r"\w+", wide))
