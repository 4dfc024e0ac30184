"""The processes that a repetition has started, also those that have left its process group: they have its mark in their
environment, which is passed on."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

VARIABLE = "_HIPPLAN_REPETITION"
"""The variable of the mark; provenance does not list it."""
_ROUNDS = 100
"""Each kills what was started meanwhile: a process that starts others without end must not stop this one."""


def kill_all(mark: str) -> None:
    """Kills all processes of this user that have the mark, but not this one."""
    for _ in range(_ROUNDS):
        if not [pid for pid in _others() if _is_killed(pid, f"{VARIABLE}={mark}".encode())]:
            return


def _others() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]  # noqa: PTH208


def _is_killed(pid: int, mark: bytes) -> bool:
    """Kills a process if it has the mark."""
    with suppress(OSError):  # it has ended, or is another user's
        process = os.pidfd_open(pid)  # before its environment is read: the number may become another's
        try:
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                signal.pidfd_send_signal(process, signal.SIGKILL)
                return True
        finally:
            os.close(process)
    return False
