"""How many descriptors this process has open."""

from __future__ import annotations

import contextlib
import os

_OWN = "/proc/self/fd"


def descriptors(but: str | None = None) -> int:
    """but: text in the names of files that do not count."""
    names = []
    for number in os.listdir(_OWN):  # noqa: PTH208
        with contextlib.suppress(OSError):  # the listing's own, which is closed by now
            names.append(os.readlink(f"{_OWN}/{number}"))  # noqa: PTH115
    return sum(but is None or but not in name for name in names)
