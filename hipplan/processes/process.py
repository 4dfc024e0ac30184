"""Processes of this machine, known by their start times and descriptors: a number alone may be used again."""

from __future__ import annotations

import os
import select
import signal
import socket
from pathlib import Path

from typing_extensions import Self

_SO_PEERPIDFD = 77
"""Linux has this since 6.5; Python has no name for it."""
_EXITING = 0x4
"""PF_EXITING in the flags of /proc/PID/stat."""
_KILL = 1 << 8
"""SIGKILL in the masks of /proc/PID/status."""
_STATE, _FLAGS, _START = 0, 6, 19
"""Fields of /proc/PID/stat behind the name of the command."""


class Process:
    """One process, by a descriptor of it, which never leads to a later process of the same number."""

    def __init__(self, number: int, descriptor: int) -> None:
        """descriptor: of the process (pidfd), owned from now on."""
        self.number = number
        self._descriptor = descriptor

    @classmethod
    def known(cls, number: int, start: int) -> Self:
        """The process of a number that began then, by start_time(). Raises OSError: it has ended, or is not here."""
        process = cls(number, os.pidfd_open(number))
        try:
            if start_time(number) != start or process.has_ended(0.0):
                raise ProcessLookupError
        except BaseException:
            process.close()
            raise
        return process

    @classmethod
    def listening(cls, link: socket.socket) -> Self:
        """The process that accepts the connections at the other end. Raises OSError: it has ended, is not in this
        namespace, or the kernel is older than Linux 6.5."""
        descriptor = link.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
        os.set_inheritable(descriptor, False)
        try:
            (line,) = (
                line
                for line in Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines()
                if line.startswith("Pid:")
            )
            number = int(line.split()[1])
            if number <= 0:
                raise ProcessLookupError
        except BaseException:
            os.close(descriptor)
            raise
        return cls(number, descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._descriptor)

    def kill(self) -> None:
        """Send SIGKILL, which ends a stopped process, too. Raises OSError."""
        signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def has_ended(self, wait_s: float) -> bool:
        """Whether it ends within so many seconds."""
        ended = select.poll()
        ended.register(self._descriptor, select.POLLIN)
        return bool(ended.poll(1000 * wait_s))


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
