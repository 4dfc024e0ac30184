"""Which other processes have the same file open, as far as this user may see."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_SHOWN_MAX = 8
_COMMAND_MAX = 60


def open_by(descriptor: int) -> list[str]:
    """Processes that have the file of a descriptor open, as "process 123 (python train.py)"; at most 8.

    Empty where none can be seen, or where many files share one inode, as those of a device node do (CUDA).
    """
    about = os.fstat(descriptor)
    if stat.S_ISCHR(about.st_mode):
        return []
    wanted = about.st_dev, about.st_ino
    holders: list[str] = []
    for process in _others():
        with contextlib.suppress(OSError):  # another user's, or it has ended
            if any((there.st_dev, there.st_ino) == wanted for there in _files_of(process)):
                holders.append(f"process {process.name} ({_command(process)})")
        if len(holders) == _SHOWN_MAX:
            break
    return holders


def _others() -> Iterator[Path]:
    own = str(os.getpid())
    with contextlib.suppress(OSError):
        yield from (entry for entry in _PROC.iterdir() if entry.name.isdigit() and entry.name != own)


def _files_of(process: Path) -> Iterator[os.stat_result]:
    for entry in (process / "fd").iterdir():
        with contextlib.suppress(OSError):
            yield entry.stat()


def _command(process: Path) -> str:
    with (process / "cmdline").open("rb") as file:
        words = file.read(4 * _COMMAND_MAX).split(b"\0")
    text = b" ".join(word for word in words if word).decode(errors="replace")
    return text if len(text) <= _COMMAND_MAX else f"{text[: _COMMAND_MAX - 3]}..."
