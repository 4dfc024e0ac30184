"""How much host memory this process may still take: of the machine, and of the control groups that it is in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_MEMORY, _GROUPS, _OWN_GROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def host_memory_available() -> int | None:
    """Bytes; None where the kernel does not say. Swap is left out."""
    limits = [*_of_machine(), *_of_groups()]
    return min(limits) if limits else None


def _of_machine() -> Iterator[int]:
    with contextlib.suppress(OSError, ValueError):
        for line in _MEMORY.read_text().splitlines():
            key, _, value = line.partition(":")
            if key == "MemAvailable":
                yield int(value.split()[0]) << 10


def _of_groups() -> Iterator[int]:
    """What each group (cgroup v2), and each that it is in, has left; file pages that can go count as free."""
    with contextlib.suppress(OSError, ValueError):
        lines = _OWN_GROUP.read_text().splitlines()
        own = PurePosixPath(next((line[3:] for line in lines if line.startswith("0::")), "/"))
        for group in (own, *own.parents):
            folder = _GROUPS / str(group).lstrip("/")
            with contextlib.suppress(OSError, ValueError):
                limit = int((folder / "memory.max").read_text())  # the word max where there is none
                used = int((folder / "memory.current").read_text())
                statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                yield max(0, limit - used + int(statistics.get("inactive_file", 0)))
