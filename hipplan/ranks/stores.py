"""Stores: places for small values that all ranks reach. Each value is written once.

A store is a folder that all ranks see, or a torch.distributed Store, such as torchrun's. More: mpi.py, ray_store.py.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from hipplan.errors import reason_of
from hipplan.processes.connections import LOOK_S, Look

_PAUSE_FIRST_S, _PAUSE_LAST_S, _PAUSE_SHARE = 0.0002, 0.02, 50
"""The pause between attempts: the time waited so far, divided by the share; at least the first, at most the last."""
_NOTHING = "hipplan: nothing is there"
READ_MAX = 1 << 24
"""Bytes; the messages of 64,000 ranks are shorter."""
ANSWER_S = 5.0
"""How long a store may take to answer. Some stores wait in C++ code, which cannot be interrupted."""


class StoreLost(Exception):
    """The store does not answer, or its reply is invalid."""


class Store(Protocol):
    """Values are bytes. Every method may raise StoreLost.

    Keys are call/round/rank and call/round/late.rank, which only that rank writes and only rank 0 must be able to read,
    and call/round/end.
    """

    def first(self, key: str, value: bytes) -> bytes:
        """Writes a value if there is none. Returns the stored value, which is the same for every reader."""

    def get(self, key: str, until: float, look: Look) -> bytes | None:
        """Waits for a value until a monotonic time, or until look() ends the wait; None if there is none by then."""


class FolderStore:
    """A folder that all ranks see, on one host or on a shared file system: a value is a file, made by link()."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Raises OSError if it cannot be made or written, or if others may write there, ValueError for no path."""
        self._folder = Path(folder).absolute()  # the process may change its own
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = self._folder.stat()
        if about.st_uid != os.getuid() or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(1, "other users can write there and could impersonate a rank")
        if not os.access(self._folder, os.W_OK | os.X_OK):
            raise PermissionError(13, "it cannot be written")

    def first(self, key: str, value: bytes) -> bytes:
        place = self._place(key)
        with _lost():
            part = place.with_name(f"{place.name}.{secrets.token_hex(8)}.part")
            try:
                part.write_bytes(value)
                os.link(part, place)
            except FileExistsError:
                return _read(place)
            finally:
                part.unlink(missing_ok=True)
        return value

    def get(self, key: str, until: float, look: Look) -> bytes | None:
        place = self._place(key)
        for _ in attempts(until, look):
            with _lost():
                try:
                    return _read(place)
                except FileNotFoundError:
                    if not self._folder.is_dir():
                        raise
        return None

    def _place(self, key: str) -> Path:
        return self._folder / key.replace("/", ".")


@contextlib.contextmanager
def _lost() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreLost(f"the folder of the group cannot be used: {reason_of(error)}") from None


def _read(place: Path) -> bytes:
    """Reads a file of this user; does not wait for anything else with that name, such as a FIFO."""
    descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.getuid():
            raise StoreLost(f"{str(place)!r} is not a file of this user")
        return file.read(READ_MAX)


class TorchStore:
    """A torch.distributed Store."""

    def __init__(self, store: Any, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    def first(self, key: str, value: bytes) -> bytes:
        return self._compare_set(key, "", value.decode())  # "": if there is none

    def get(self, key: str, until: float, look: Look) -> bytes | None:
        # Store.wait() would be one operation, but a TCPStore of torch 1 is unusable after a wait that timed out.
        # compare_set with an expected value that never occurs sets nothing, and returns the stored value, or that one.
        for _ in attempts(until, look):
            value = self._compare_set(key, _NOTHING, _NOTHING)
            if value != _NOTHING.encode():
                return value
        return None

    def _compare_set(self, key: str, expected: str, wanted: str) -> bytes:
        try:
            return bytes(self._store.compare_set(self._prefix + key, expected, wanted))
        except Exception as error:  # torch has no class for all that can go wrong with a connection
            raise StoreLost(f"the store of torch.distributed does not answer: {error}") from None


def attempts(until: float, look: Look) -> Iterator[None]:
    """Iterates at once, then with growing pauses, until a monotonic time or until look() ends it."""
    began = looked = time.monotonic()
    while True:
        yield
        now = time.monotonic()
        if now >= until:
            return
        if now - looked >= LOOK_S:
            looked = now
            if look():
                return
        pause = min(max(_PAUSE_FIRST_S, (now - began) / _PAUSE_SHARE), _PAUSE_LAST_S)
        time.sleep(min(pause, until - now))
