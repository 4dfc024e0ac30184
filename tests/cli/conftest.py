"""Running the command as a user does: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def hipplan() -> Run:
    """hipplan(*arguments, env={}, stdin="", cwd=None): what it printed, and its exit code."""

    def run(
        *arguments: object, env: dict[str, str] | None = None, stdin: str = "", cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*arguments),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=600,
            env=os.environ | (env or {}),
            cwd=cwd,
        )

    return run


def command(*arguments: object) -> list[str]:
    """The command line of one run, in this interpreter's environment."""
    return [sys.executable, "-m", "hipplan", *map(str, arguments)]
