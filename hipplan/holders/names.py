"""Names of holders: one process per user and name, and where it is found.

A holder has a socket, a lock and a log in its user's folder. The lock is the kernel's and ends with the process, so the
name of one that was killed can be used at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from hipplan.errors import Diagnostic, HeldError, reason_of
from hipplan.processes.folders import folders, new_folder, opened, within
from hipplan.processes.packets import Line, is_same_user, new_socket

VARIABLE = "HIPPLAN_HOLDER"
"""The environment variable with the name that attach() takes where none is given."""
_PREFIX, _LOCK, _LOG = "held-", ".lock", ".log"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_QUEUE = 1024
_DYING_S = 2.0
"""How long a process that was killed may take to end."""
_HOLDS_ON_MS = 50
_WHOLE = struct.Struct("hhqqi4x")
"""struct flock: of a whole file."""


def check(name: str) -> str:
    """Raises HeldError (HP451)."""
    if not _NAME.fullmatch(name):
        why = f"{name[:80]!r} has characters other than letters, digits, - and _, or more than 64 of them"
        raise HeldError(Diagnostic("HP451", "this name is not valid for a holder", why=why))
    return name


class Name:
    """A name that this process has taken, until close()."""

    def __init__(self, name: str) -> None:
        """Raises HeldError (HP451): somebody has it, it is no name, or there is no folder for it."""
        self.name = check(name)
        try:
            self._take(name)
        except OSError as error:
            why = f"{reason_of(error)}; searched {', '.join(folders())}"
            raise HeldError(Diagnostic("HP451", "there is no folder for holders", why=why)) from None
        self.log = ""
        """The path of its log, for people; empty where it has none of its own."""

    def _take(self, name: str) -> None:
        with ExitStack() as undo:
            self._folder = new_folder()
            undo.callback(os.close, self._folder)
            self._lock = _locked(self._folder, f"{_PREFIX}{name}{_LOCK}")
            undo.callback(os.close, self._lock)
            if find(name) is not None:  # in a folder of another environment
                raise _taken(name)
            self.door = undo.enter_context(new_socket())
            self._unlink(_PREFIX + name)
            self.door.bind(within(self._folder, _PREFIX + name))
            self.door.listen(_QUEUE)
            undo.pop_all()

    def close(self, *, keep_log: bool) -> None:
        """Nobody finds it any more. keep_log: it says why."""
        self._unlink(_PREFIX + self.name)
        if not keep_log:
            self._unlink(f"{_PREFIX}{self.name}{_LOG}")
        self._unlink(f"{_PREFIX}{self.name}{_LOCK}")
        self.door.close()
        os.close(self._lock)
        os.close(self._folder)

    def _unlink(self, name: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._folder)


def _locked(folder: int, name: str) -> int:
    """Waits for a moment where nobody is behind the lock: for one that was just killed. Raises HeldError (HP451),
    OSError."""
    holder, until = name.removeprefix(_PREFIX).removesuffix(_LOCK), time.monotonic() + _DYING_S
    while True:
        lock = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
        try:
            fcntl.fcntl(lock, fcntl.F_OFD_SETLK, _WHOLE.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock), os.stat(name, dir_fd=folder, follow_symlinks=False)):
                    return lock
        except BlockingIOError:
            os.close(lock)
            if time.monotonic() > until or _is_there(folder, holder):
                raise _taken(holder) from None
            time.sleep(0.01)
            continue
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)  # its owner has just removed the file: retry


def _is_there(folder: int, name: str) -> bool:
    """Whether somebody holds on to a connection: one that is dying may still take it."""
    line = _connected(name, folder, _PREFIX + name)
    if line is None:
        return False
    try:
        ready = select.poll()
        ready.register(line.link, select.POLLIN)
        return not ready.poll(_HOLDS_ON_MS)
    finally:
        line.close()


def _taken(name: str) -> HeldError:
    hint = f"choose another name, or: hipplan down {name}, hipplan replace {name} PLAN"
    return HeldError(Diagnostic("HP451", f"a holder called '{name}' already exists", hint=hint))


def log_of(folder: int, name: str) -> str:
    """The path of its log, for people."""
    return f"{os.readlink(f'/proc/self/fd/{folder}')}/{_PREFIX}{name}{_LOG}"  # noqa: PTH115


def open_log(name: str) -> tuple[str, int]:
    """The log of a holder that has taken its name, empty: path and descriptor. Raises OSError."""
    folder = new_folder()
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        return log_of(folder, name), os.open(f"{_PREFIX}{name}{_LOG}", flags, 0o600, dir_fd=folder)
    finally:
        os.close(folder)


def known() -> Iterator[tuple[str, str, bool]]:
    """(name, log, whether it runs) of each holder of this user that runs, or ended otherwise than by `down`."""
    found: dict[str, tuple[str, bool]] = {}
    for path in folders():
        with contextlib.suppress(OSError), opened(path) as folder:
            files = set(os.listdir(folder))  # noqa: PTH208  # of the folder that was looked at
            names = {re.sub(r"\.(lock|log)$", "", file.removeprefix(_PREFIX)) for file in files if _PREFIX in file[:5]}
            for name in filter(_NAME.fullmatch, names):
                runs = _is_locked(folder, f"{_PREFIX}{name}{_LOCK}")
                if runs or (f"{_PREFIX}{name}{_LOG}" in files and name not in found):
                    found[name] = log_of(folder, name), runs
    for name in sorted(found):
        yield name, *found[name]


def _is_locked(folder: int, name: str) -> bool:
    try:
        lock = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return False
    try:  # asked, not taken: somebody may be about to take it
        asked = fcntl.fcntl(lock, fcntl.F_OFD_GETLK, _WHOLE.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        return int(_WHOLE.unpack(asked)[0]) != fcntl.F_UNLCK
    finally:
        os.close(lock)


def forget(name: str) -> bool:
    """Removes what a holder has left that ended otherwise than by `down`; whether there was any. Raises OSError,
    HeldError (HP451): it runs."""
    left = False
    for path in folders():
        with contextlib.suppress(OSError), opened(path) as folder:
            if not {f"{_PREFIX}{name}{ending}" for ending in ("", _LOG)} & set(os.listdir(folder)):  # noqa: PTH208
                continue
            lock = _locked(folder, f"{_PREFIX}{name}{_LOCK}")
            left = True
            for ending in ("", _LOG, _LOCK):
                with contextlib.suppress(OSError):
                    os.unlink(f"{_PREFIX}{name}{ending}", dir_fd=folder)
            os.close(lock)
    return left


def find(name: str) -> Line | None:
    """A connection to the holder of this name, or at this path of a socket; None: nobody is there.

    Raises HeldError (HP452): it belongs to another user, or takes nobody in.
    """
    if "/" in name:
        path = Path(name)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                return _connected(name, folder, path.name)
            finally:
                os.close(folder)
        return None
    for place in folders():
        with contextlib.suppress(OSError), opened(place) as folder:
            if (line := _connected(name, folder, _PREFIX + check(name))) is not None:
                return line
    return None


def _connected(name: str, folder: int, file: str) -> Line | None:
    link = new_socket()
    try:
        until = time.monotonic() + 5.0
        while True:
            try:
                link.connect(within(folder, file))
                break
            except BlockingIOError:  # its queue is full
                if time.monotonic() > until:
                    why = "it accepts no connection: it is stopped or busy"
                    raise HeldError(Diagnostic("HP452", f"the holder '{name}' cannot be reached", why=why)) from None
                time.sleep(0.01)
        if not is_same_user(link):
            why = "its socket belongs to another user"
            raise HeldError(Diagnostic("HP452", f"the holder '{name}' cannot be reached", why=why))
    except OSError:
        link.close()
        return None
    except BaseException:
        link.close()
        raise
    return Line(link)


def door_of(name: str) -> Line:
    """As find(). Raises HeldError (HP452) also where nobody is there."""
    line = find(name)
    if line is None:
        there = ", ".join(one for one, _, runs in known() if runs) or "none"
        hint = f"there are: {there}" if there != "none" else "hipplan up PLAN --name NAME starts one"
        raise HeldError(Diagnostic("HP452", f"there is no holder '{name[:200]}'", hint=hint))
    return line
