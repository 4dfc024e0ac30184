"""The files that a process has open."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path


def opened(process: int | str = "self") -> Iterator[tuple[Path, str]]:
    """Path of each descriptor below /proc, and the name of its file. One that is closed meanwhile is left out."""
    for descriptor in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(OSError):
            yield descriptor, str(descriptor.readlink())


def descriptors(but: str | None = None) -> int:
    """How many this process has open. but: text in the names of files that do not count."""
    return sum(but is None or but not in name for _, name in opened())
