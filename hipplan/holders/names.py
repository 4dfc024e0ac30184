"""Names of holders: a name belongs to one process of a user, and leads to its sockets.

A holder has the lock of its name (guard.py), and a socket, a lock file and a log in its user's folder. The kernel
releases both locks when the process ends, so the name of a killed holder can be used at once. C programs find a holder
with cpp/c/find_holder.cpp.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from hipplan.errors import Diagnostic, HeldError, reason_of
from hipplan.holders import guard
from hipplan.processes.connections import Connection, new_socket
from hipplan.processes.folders import HOLDER, candidates, doubts, folders, new_folder, opened, within
from hipplan.processes.listener import QUEUE
from hipplan.processes.process import Process, start_time

VARIABLE = "HIPPLAN_HOLDER"
"""The environment variable with the name of the holder that attach() uses by default."""
_LOCK, _LOG = ".lock", ".log"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_FLOCK = struct.Struct("hhqqi4x")
"""struct flock."""


def is_name(name: str) -> bool:
    """Whether a holder may have this name."""
    return _NAME.fullmatch(name) is not None


def check(name: str) -> str:
    """The name, if it is valid. Raises HeldError (HP451)."""
    if not is_name(name):
        raise HeldError(Diagnostic("HP451", "this name is not valid for a holder", why=why_no_name(name)))
    return name


def why_no_name(name: str) -> str:
    """Why a holder cannot have this name."""
    return f"{name[:80]!r} is not 1 to 64 letters, digits, - and _, the first of them a letter or a digit"


class Name:
    """A name that this process owns until close()."""

    def __init__(self, name: str) -> None:
        """Raises HeldError: another process owns the name, it is not valid, or there is no folder for it (HP451); it
        may have an owner that cannot be found (HP456). OSError: this process has no file descriptors left."""
        self.name = check(name)
        self.log = ""
        """The path of the log, for people; empty if the holder runs in the foreground."""
        try:
            self._take(name)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise
            why = f"{reason_of(error)}; searched {', '.join(candidates())}"
            raise HeldError(Diagnostic("HP451", "there is no folder for holders", why=why)) from None

    def _take(self, name: str) -> None:
        with ExitStack() as undo:
            self._guard = undo.enter_context(guard.claim(name))
            _require_certainty(name)
            self._folder = new_folder()
            undo.callback(os.close, self._folder)
            _forget_killed(self._folder)
            self._lock = _locked(self._folder, name)
            undo.callback(os.close, self._lock)
            if (other := _in_folders(name)) is not None:  # with its socket in a folder of another environment
                other.close()
                raise guard.already_exists(name)
            self._in_folder = undo.enter_context(new_socket())
            self._unlink("")
            self._in_folder.bind(within(self._folder, HOLDER + name))
            self._in_folder.listen(QUEUE)
            undo.pop_all()

    @property
    def listening(self) -> Sequence[socket.socket]:
        """The sockets on which clients connect."""
        return self._guard, self._in_folder

    def close(self, *, keep_log: bool) -> None:
        """Remove the files of the name, so that find() does not find it. keep_log: the log has an error to read."""
        if _is_file(self._lock, self._folder, self.name):  # else they were removed, and may be another holder's now
            for ending in ("", _LOCK) if keep_log else ("", _LOG, _LOCK):
                self._unlink(ending)
        self._in_folder.close()
        os.close(self._lock)
        os.close(self._folder)
        self._guard.close()

    def _unlink(self, ending: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(f"{HOLDER}{self.name}{ending}", dir_fd=self._folder)


def _locked(folder: int, name: str) -> int:
    """Create and lock a lock file, with the number and start of this process; returns its descriptor.

    It waits for a holder that was just killed.

    It counts among processes in different network namespaces that share the folder. Raises HeldError (HP451), OSError.
    """
    file, deadline = f"{HOLDER}{name}{_LOCK}", time.monotonic() + guard.KILLED_S
    while True:
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
        try:
            fcntl.fcntl(lock, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
            if _is_file(lock, folder, name):
                os.truncate(lock, 0)
                os.pwrite(lock, f"{os.getpid()} {start_time(os.getpid())}\n".encode(), 0)
                return lock
        except BlockingIOError:
            os.close(lock)
            guard.wait_for_end(name, guard.connected(name, within(folder, HOLDER + name)), deadline)
            continue
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)  # its owner has just removed the file: retry


def _is_file(lock: int, folder: int, name: str) -> bool:
    """Whether an open lock file is still the one of the name."""
    with contextlib.suppress(FileNotFoundError):
        there = os.stat(f"{HOLDER}{name}{_LOCK}", dir_fd=folder, follow_symlinks=False)
        return os.path.samestat(os.fstat(lock), there)
    return False


def log_of(folder: int, name: str) -> str:
    """The path of a holder's log, for people."""
    return f"{os.readlink(f'/proc/self/fd/{folder}')}/{HOLDER}{name}{_LOG}"  # noqa: PTH115


def open_log(name: str) -> tuple[str, int]:
    """Create an empty log for the holder that owns a name: (path, descriptor). Raises OSError."""
    folder = new_folder()
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        return log_of(folder, name), os.open(f"{HOLDER}{name}{_LOG}", flags, 0o600, dir_fd=folder)
    finally:
        os.close(folder)


def known() -> Iterator[tuple[str, str, bool]]:
    """(name, log, whether it runs) of each holder of this user that runs, or that ended otherwise than by `down`.

    The log is empty if the holder's files were removed."""
    claimed = {name for name in guard.claimed() if _NAME.fullmatch(name) and _is_ours(name)}
    holders = dict.fromkeys(claimed, ("", True))
    for path in folders():
        with contextlib.suppress(OSError), opened(path) as folder:
            files = set(os.listdir(folder))  # noqa: PTH208  # by descriptor: the path may lead elsewhere by now
            names = {re.sub(r"\.(lock|log)$", "", file.removeprefix(HOLDER)) for file in files if HOLDER in file[:5]}
            for name in filter(_NAME.fullmatch, names):
                runs = _is_locked(folder, f"{HOLDER}{name}{_LOCK}")
                if runs or (f"{HOLDER}{name}{_LOG}" in files and name not in holders):
                    holders[name] = log_of(folder, name), runs
    for name in sorted(holders):
        yield name, *holders[name]


def _is_ours(name: str) -> bool:
    """Whether a process of this user has the lock of a name."""
    try:
        owner = guard.reach(name)
    except HeldError as error:
        return error.diagnostics[0].code != "HP456"
    if owner is None:
        return False
    owner.close()
    return True


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


def owner(name: str, connection: Connection | None) -> Process:
    """The process that owns a name. connection: to its socket; None if it accepts none.

    Raises HeldError (HP456): which one it is is not certain."""
    for place in folders() if "/" not in name else ():
        file = f"{HOLDER}{name}{_LOCK}"
        with contextlib.suppress(OSError, ValueError), opened(place) as folder:
            if _is_locked(folder, file):
                lock = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
                with open(lock, "rb") as content:  # noqa: PTH123
                    number, start = map(int, content.read(100).split())
                return Process.known(number, start)
    if connection is not None:
        with contextlib.suppress(OSError):
            return Process.listening(connection.link)
    why = "it does not answer, and its lock file does not lead to its process"
    raise guard.in_doubt(name, why, "find its process and end it with `kill -9`, then: hipplan down")


def remove_leftovers(name: str) -> bool:
    """Remove the files of a holder that ended otherwise than by `down`. Returns whether there were any.

    Raises OSError, HeldError (HP451): it runs.
    """
    removed = False
    for path in folders():
        with contextlib.suppress(OSError), opened(path) as folder:
            if {f"{HOLDER}{name}{ending}" for ending in ("", _LOG)} & set(os.listdir(folder)):  # noqa: PTH208
                _remove(folder, name)
                removed = True
    return removed


def _remove(folder: int, name: str) -> None:
    """Remove the files of a holder that has ended. Raises OSError, HeldError (HP451): it runs."""
    lock = _locked(folder, name)
    for ending in ("", _LOG, _LOCK):
        with contextlib.suppress(OSError):
            os.unlink(f"{HOLDER}{name}{ending}", dir_fd=folder)
    os.close(lock)


def _forget_killed(folder: int) -> None:
    """Removes the files of holders in the foreground that were killed, such as those of experiments: they have no log,
    so that ps does not show them, and `down` is not called for them."""
    files = {*os.listdir(folder)}
    for file in sorted(files):
        name = file.removeprefix(HOLDER)
        is_alone = file != name and {file, f"{file}{_LOCK}", f"{file}{_LOG}"} & files == {file, f"{file}{_LOCK}"}
        if is_alone and not _is_locked(folder, f"{file}{_LOCK}"):
            with contextlib.suppress(OSError, HeldError):
                _remove(folder, name)


def find(name: str) -> Connection | None:
    """A connection to the holder with this name, or with this path of its socket; None: there is no such holder.

    Raises guard.Silent: it accepts no connection; HeldError (HP456): its socket belongs to another user, or may be in a
    folder that cannot be used.
    """
    if "/" in name:
        path = Path(name)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                return guard.connected(name, within(folder, path.name))
            finally:
                os.close(folder)
        return None
    connection = _in_folders(check(name)) or guard.reach(name)
    if connection is None:
        _require_certainty(name)
    return connection


def _in_folders(name: str) -> Connection | None:
    """A connection to the socket of a name in any folder."""
    for place in folders():
        with contextlib.suppress(OSError), opened(place) as folder:
            if (connection := guard.connected(name, within(folder, HOLDER + name))) is not None:
                return connection
    return None


def uncertainty(name: str = "") -> HeldError | None:
    """The error (HP456) that a holder may have its socket where this process does not look; None if there is no doubt.

    name: of that holder; empty: of any."""
    if not (reasons := doubts()):
        return None
    return guard.in_doubt(name, "; ".join(why for why, _ in reasons), reasons[0][1])


def _require_certainty(name: str) -> None:
    """Raises HeldError (HP456)."""
    if (error := uncertainty(name)) is not None:
        raise error


def connect(name: str) -> Connection:
    """Does what find() does, but raises HeldError (HP452) if there is no such holder."""
    connection = find(name)
    if connection is None:
        raise missing(name)
    return connection


def missing(name: str) -> HeldError:
    """The error (HP452) that there is no holder of this name."""
    running = ", ".join(holder for holder, _, runs in known() if runs)
    hint = f"there are: {running}" if running else "hipplan up PLAN --name NAME starts one"
    return HeldError(Diagnostic("HP452", f"there is no holder '{name[:200]}'", hint=hint))
