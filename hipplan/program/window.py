"""Chooses addresses for locks and for ranks without asking a driver: see docs/locks.md."""

from __future__ import annotations

import hashlib

GIB = 1 << 30
WINDOW = 0x6800_0000_0000
"""Above every program and its heap, below the stack and the addresses that mmap chooses."""
WINDOW_END = 0x7000_0000_0000
_STARTS = 1024


def start_for(name: str) -> int:
    """A start address derived from the name, so that two layouts of a process rarely collide."""
    return WINDOW + int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % _STARTS * 4 * GIB
