"""Names of holders: a name belongs to one process of a user, and leads to its socket.

A holder has a socket, a lock file and a log in its user's folder. The kernel releases the lock when the process ends,
so the name of a killed holder can be used at once.
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
from hipplan.processes.packets import Connection, is_same_user, new_socket

VARIABLE = "HIPPLAN_HOLDER"
"""The environment variable with the name of the holder that attach() uses by default."""
_PREFIX, _LOCK, _LOG = "held-", ".lock", ".log"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_QUEUE = 1024
_KILLED_S = 2.0
"""How long a killed process may take to end."""
_HANG_UP_MS = 50
"""Within this time the kernel closes a connection that a dying process has accepted."""
_FLOCK = struct.Struct("hhqqi4x")
"""struct flock."""


def check(name: str) -> str:
    """The name, if it is valid. Raises HeldError (HP451)."""
    if not _NAME.fullmatch(name):
        why = f"{name[:80]!r} has characters other than letters, digits, - and _, or more than 64 of them"
        raise HeldError(Diagnostic("HP451", "this name is not valid for a holder", why=why))
    return name


class Name:
    """A name that this process owns until close()."""

    def __init__(self, name: str) -> None:
        """Raises HeldError (HP451): another process owns the name, it is not valid, or there is no folder for it."""
        self.name = check(name)
        try:
            self._take(name)
        except OSError as error:
            why = f"{reason_of(error)}; searched {', '.join(folders())}"
            raise HeldError(Diagnostic("HP451", "there is no folder for holders", why=why)) from None
        self.log = ""
        """The path of the log, for people; empty if the holder runs in the foreground."""

    def _take(self, name: str) -> None:
        with ExitStack() as undo:
            self._folder = new_folder()
            undo.callback(os.close, self._folder)
            self._lock = _locked(self._folder, f"{_PREFIX}{name}{_LOCK}")
            undo.callback(os.close, self._lock)
            if find(name) is not None:  # with its socket in a folder of another environment
                raise _already_exists(name)
            self.listening = undo.enter_context(new_socket())
            self._unlink(_PREFIX + name)
            self.listening.bind(within(self._folder, _PREFIX + name))
            self.listening.listen(_QUEUE)
            undo.pop_all()

    def close(self, *, keep_log: bool) -> None:
        """Remove the files of the name, so that find() does not find it. keep_log: the log has an error to read."""
        self._unlink(_PREFIX + self.name)
        if not keep_log:
            self._unlink(f"{_PREFIX}{self.name}{_LOG}")
        self._unlink(f"{_PREFIX}{self.name}{_LOCK}")
        self.listening.close()
        os.close(self._lock)
        os.close(self._folder)

    def _unlink(self, name: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._folder)


def _locked(folder: int, name: str) -> int:
    """Create and lock a lock file; returns its descriptor. It waits for a holder that was just killed.

    Raises HeldError (HP451), OSError.
    """
    holder, deadline = name.removeprefix(_PREFIX).removesuffix(_LOCK), time.monotonic() + _KILLED_S
    while True:
        lock = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
        try:
            fcntl.fcntl(lock, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock), os.stat(name, dir_fd=folder, follow_symlinks=False)):
                    return lock
        except BlockingIOError:
            os.close(lock)
            if time.monotonic() > deadline or _keeps_connections(folder, holder):
                raise _already_exists(holder) from None
            time.sleep(0.01)
            continue
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)  # its owner has just removed the file: retry


def _keeps_connections(folder: int, name: str) -> bool:
    """Whether a holder accepts a connection and keeps it open. A dying process may still accept one."""
    connection = _connected(name, folder, _PREFIX + name)
    if connection is None:
        return False
    try:
        ready = select.poll()
        ready.register(connection.link, select.POLLIN)
        return not ready.poll(_HANG_UP_MS)
    finally:
        connection.close()


def _already_exists(name: str) -> HeldError:
    hint = f"choose another name, or: hipplan down {name}, hipplan replace {name} PLAN"
    return HeldError(Diagnostic("HP451", f"a holder called '{name}' already exists", hint=hint))


def log_of(folder: int, name: str) -> str:
    """The path of a holder's log, for people."""
    return f"{os.readlink(f'/proc/self/fd/{folder}')}/{_PREFIX}{name}{_LOG}"  # noqa: PTH115


def open_log(name: str) -> tuple[str, int]:
    """Create an empty log for the holder that owns a name: (path, descriptor). Raises OSError."""
    folder = new_folder()
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        return log_of(folder, name), os.open(f"{_PREFIX}{name}{_LOG}", flags, 0o600, dir_fd=folder)
    finally:
        os.close(folder)


def known() -> Iterator[tuple[str, str, bool]]:
    """(name, log, whether it runs) of each holder of this user that runs, or that ended otherwise than by `down`."""
    holders: dict[str, tuple[str, bool]] = {}
    for path in folders():
        with contextlib.suppress(OSError), opened(path) as folder:
            files = set(os.listdir(folder))  # noqa: PTH208  # by descriptor: the path may lead elsewhere by now
            names = {re.sub(r"\.(lock|log)$", "", file.removeprefix(_PREFIX)) for file in files if _PREFIX in file[:5]}
            for name in filter(_NAME.fullmatch, names):
                runs = _is_locked(folder, f"{_PREFIX}{name}{_LOCK}")
                if runs or (f"{_PREFIX}{name}{_LOG}" in files and name not in holders):
                    holders[name] = log_of(folder, name), runs
    for name in sorted(holders):
        yield name, *holders[name]


def _is_locked(folder: int, name: str) -> bool:
    try:
        lock = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return False
    try:  # query the lock: taking it would make a starting holder fail
        flock = fcntl.fcntl(lock, fcntl.F_OFD_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        return int(_FLOCK.unpack(flock)[0]) != fcntl.F_UNLCK
    finally:
        os.close(lock)


def remove_leftovers(name: str) -> bool:
    """Remove the files of a holder that ended otherwise than by `down`. Returns whether there were any.

    Raises OSError, HeldError (HP451): it runs.
    """
    removed = False
    for path in folders():
        with contextlib.suppress(OSError), opened(path) as folder:
            if not {f"{_PREFIX}{name}{ending}" for ending in ("", _LOG)} & set(os.listdir(folder)):  # noqa: PTH208
                continue
            lock = _locked(folder, f"{_PREFIX}{name}{_LOCK}")
            removed = True
            for ending in ("", _LOG, _LOCK):
                with contextlib.suppress(OSError):
                    os.unlink(f"{_PREFIX}{name}{ending}", dir_fd=folder)
            os.close(lock)
    return removed


def find(name: str) -> Connection | None:
    """A connection to the holder with this name, or with this path of its socket; None: there is no such holder.

    Raises HeldError (HP452): it belongs to another user, or accepts no connection.
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
            if (connection := _connected(name, folder, _PREFIX + check(name))) is not None:
                return connection
    return None


def _connected(name: str, folder: int, file: str) -> Connection | None:
    """A connection to the socket with this file name; None: no process listens there. name: for errors."""
    link = new_socket()
    try:
        deadline = time.monotonic() + 5.0
        while True:
            try:
                link.connect(within(folder, file))
                break
            except BlockingIOError:  # its queue is full
                if time.monotonic() > deadline:
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
    return Connection(link)


def connect(name: str) -> Connection:
    """As find(), but raises HeldError (HP452) if there is no such holder."""
    connection = find(name)
    if connection is None:
        running = ", ".join(holder for holder, _, runs in known() if runs)
        hint = f"there are: {running}" if running else "hipplan up PLAN --name NAME starts one"
        raise HeldError(Diagnostic("HP452", f"there is no holder '{name[:200]}'", hint=hint))
    return connection
