"""Where addresses are chosen, for locks and for ranks, without asking a driver: see docs/locks.md."""

from __future__ import annotations

import hashlib

GIB = 1 << 30
WINDOW = 0x6800_0000_0000
"""Above every program and its heap, below the stack and what mmap places by itself."""
WINDOW_END = 0x7000_0000_0000
_STARTS = 1024


def start_for(name: str) -> int:
    """One of so many places, by name: two layouts of a process rarely meet."""
    return WINDOW + int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % _STARTS * 4 * GIB
