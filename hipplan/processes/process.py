"""Processes of this machine, known by their start times and descriptors: a number alone may be used again."""

from __future__ import annotations

from pathlib import Path

_EXITING = 0x4
"""PF_EXITING in the flags of /proc/PID/stat."""
_KILL = 1 << 8
"""SIGKILL in the masks of /proc/PID/status."""
_STATE, _FLAGS, _START = 0, 6, 19
"""Fields of /proc/PID/stat behind the name of the command."""


def start_time(number: int) -> int:
    """When a process began, in clock ticks after the start of the system. Raises OSError: there is no such process."""
    return int(_fields(number)[_START])


def is_stopped(number: int) -> bool:
    """Whether a process is stopped, by SIGSTOP or ^Z. False if there is no such process here."""
    try:
        return _fields(number)[_STATE] == b"T"
    except OSError:
        return False


def is_ending(number: int) -> bool:
    """Whether a process has ended, or was killed and only the kernel still works for it.

    False for 0, which is the number of all processes outside this namespace.
    """
    try:
        fields = _fields(number)
        status = Path(f"/proc/{number}/status").read_text().splitlines()
    except OSError:
        return number != 0
    pending = (line.split()[1] for line in status if line.startswith(("SigPnd:", "ShdPnd:")))
    return (
        fields[_STATE] in (b"Z", b"X")
        or bool(int(fields[_FLAGS]) & _EXITING)
        or any(int(mask, 16) & _KILL for mask in pending)
    )


def _fields(number: int) -> list[bytes]:
    """Raises OSError."""
    return Path(f"/proc/{number}/stat").read_bytes().rpartition(b")")[2].split()
