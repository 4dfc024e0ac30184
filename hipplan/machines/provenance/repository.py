"""The commit of the working folder, and whether its files are as committed."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

from hipplan.machines.provenance.reading import FactReading

_PATIENCE_S = 10.0


def state(folder_of: Callable[[], str], reading: FactReading) -> dict[str, Any] | None:
    """The commit and whether it is clean: files that git does not know, such as results, do not count."""
    return reading.fact("folder", lambda: _state(folder_of()), "the working folder is in no git repository")  # type: ignore[no-any-return]


def _state(folder: str) -> dict[str, Any] | None:
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return None
    return {"commit": commit, "clean": _git(folder, "status", "--porcelain", "--untracked-files=no") == ""}


def _git(folder: str, *arguments: str) -> str | None:
    """What git says; None if it fails. A repository's own hooks and watchers do not run."""
    command = ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "--no-optional-locks", *arguments]
    done = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else None
