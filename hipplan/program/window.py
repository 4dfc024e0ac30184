"""Chooses addresses for locks and for ranks without asking a driver: see docs/locks.md."""

from __future__ import annotations

import hashlib

from hipplan.units import round_up

GIB = 1 << 30
STEP = 32 << 20
"""CUDA takes an address for a range that ends before the next multiple of this; for a larger one it takes only
multiples of this (docs/hardware.md)."""
WINDOW = 0x6800_0000_0000
"""Above every program and its heap, below the stack and the addresses that mmap chooses."""
WINDOW_END = 0x7000_0000_0000
_STARTS = 1024


def start_for(name: str) -> int:
    """A start address derived from the name, so that two layouts of a process rarely collide."""
    return WINDOW + int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % _STARTS * 4 * GIB


def stride_for(size: int) -> int:
    """The distance of ranges of up to `size` bytes, one behind the other, of which each has an address that every
    driver takes, if the first begins at a multiple of STEP."""
    return round_up(size, STEP) if size > STEP else 1 << (size - 1).bit_length()


def to_next_step(address: int) -> int:
    """Bytes from an address to the next multiple of STEP; all of STEP if it is one."""
    return STEP - address % STEP
