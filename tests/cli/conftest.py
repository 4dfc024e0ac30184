"""Running the command as a user does: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import tests.started
from tests.started import Started

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def started() -> Started:
    return tests.started.started()


@pytest.fixture
def hipplan(started: Started) -> Run:
    """hipplan(*arguments, env={}, stdin="", cwd=None): what it printed, and its exit code."""

    def run(
        *arguments: object, env: dict[str, str] | None = None, stdin: str = "", cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        variables = os.environ | (env or {})
        if started.fits(variables):
            return started.run([str(argument) for argument in arguments], stdin, variables, cwd)
        line = command(*arguments)
        return subprocess.run(line, input=stdin, capture_output=True, text=True, timeout=600, env=variables, cwd=cwd)

    return run


def command(*arguments: object) -> list[str]:
    """The command line of one run, in this interpreter's environment."""
    return [sys.executable, "-m", "hipplan", *map(str, arguments)]
