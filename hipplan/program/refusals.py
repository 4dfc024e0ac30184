"""Errors of changes that a layout refuses: it stays as it is."""

from __future__ import annotations

from hipplan.errors import ApplyError, Diagnostic
from hipplan.units import full_size

WAKE_IT = "call wake() first"
MAPPED_ON_HOST = "its memory is on the host until it wakes"
"""HP441: why memory that sleeps there, still mapped, cannot be changed."""


def refuse(summary: str, *, why: str = "", hint: str = "") -> ApplyError:
    """HP420: this layout cannot be changed so. Nothing has been changed."""
    return ApplyError(Diagnostic("HP420", summary, why=why, hint=hint))


def refuse_piece(name: str, region: str) -> ApplyError:
    """HP420: this is only a chunk of a region, which is changed as a whole."""
    return refuse(f"'{name}' is a piece of the region '{region}'", hint=f"name '{region}'")


def refuse_asleep(name: str, why: str = "") -> ApplyError:
    """HP441: an object was used whose memory sleeps."""
    why = why or "its memory was freed; only its addresses are kept"
    return ApplyError(Diagnostic("HP441", f"'{name}', or part of it, is asleep", why=why, hint=WAKE_IT))


def cannot_sleep(name: str, why: str, hint: str = "") -> ApplyError:
    """HP440: memory that cannot sleep."""
    return ApplyError(Diagnostic("HP440", f"'{name}' cannot sleep", why=why, hint=hint))


def no_room_to_wake(device: str, needed: int, free: int, what: str = "") -> Diagnostic:
    """HP442. needed, free: bytes of the device. what: what wakes, with a space before it."""
    summary = f"{device} lacks {full_size(needed - free)} to wake{what}: {full_size(needed)} are needed"
    hint = "everything is still asleep, and no copy is lost: free memory on the device, then wake again"
    return Diagnostic("HP442", summary, why=f"{full_size(free)} are free", hint=hint)
