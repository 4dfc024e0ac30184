"""docs/tutorial.md: each step is run, with the output that it shows and the exit code that it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

TEXT = (ROOT / "docs" / "tutorial.md").read_text()
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.S | re.M)


ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """An environment in which `hipplan` and `python` are those of this test run."""
    (tmp_path / "bin").mkdir()
    for name, line in {"hipplan": "-m hipplan ", "python": ""}.items():
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {line}"$@"\n')
        (tmp_path / "bin" / name).chmod(0o755)
    return os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}


def commands(block: str) -> Iterator[tuple[str, int, list[str]]]:
    """(command, exit code, lines shown) of one block."""
    for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
        line, *shown = part.splitlines()
        command, _, code = line.partition("  # exit code ")
        yield command, int(code or 0), shown


def normal(text: str) -> str:
    """Without addresses and counts of checks, which come and go."""
    return re.sub(r"\d+ checks?\b", "checks", ADDRESS.sub("0x...", text.rstrip()))


def check_shown(shown: list[str], said: str) -> None:
    """Every line is there, in order; lines between them only where `...` stands. Empty lines and rules do not count."""
    lines = [normal(line) for line in said.splitlines() if line.strip(" \u2500")]
    real = {normal(line): ADDRESS.findall(line) for line in said.splitlines()}
    pairs = {pair for line in shown for pair in zip(ADDRESS.findall(line), real.get(normal(line), ()), strict=False)}
    assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs}), (
        f"other addresses are equal in\n{said}"
    )
    at = 0
    for number, line in enumerate(map(normal, shown)):
        if line == "...":
            continue
        assert line in lines[at:], f"{line!r} is not shown by\n{said}"
        result = lines.index(line, at)
        assert result == at or (number > 0 and shown[number - 1] == "..."), f"there is more before {line!r} in\n{said}"
        at = result + 1
    assert at == len(lines) or shown[-1:] == ["..."], f"there is more in\n{said}"


def test_each_step_does_what_the_tutorial_says(tmp_path: Path, shell: dict[str, str]) -> None:
    ran = 0
    for kind, body in BLOCKS:
        if kind in ("yaml", "python"):
            name = body.split("\n", 1)[0].removeprefix("# ")
            (tmp_path / name).write_text(body)
            continue
        for command, code, shown in commands(body):
            done = subprocess.run(
                ["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, env=shell, timeout=600
            )
            assert done.returncode == code, f"{command}: {done.stdout}{done.stderr}"
            check_shown(shown, done.stdout + done.stderr)
            ran += 1

    assert ran >= 12


def test_it_ends_with_four_gpus() -> None:
    last = [body for kind, body in BLOCKS if kind == "yaml"][-1]

    assert "gpu: {count: 4, arch: sm_90}" in last
