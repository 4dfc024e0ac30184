"""What ranks agree over: a place for small values that all of them reach. Each value is written once.

A store is a folder that all ranks see, or a torch.distributed Store, such as torchrun's.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

_PAUSE_FIRST_S, _PAUSE_LAST_S, _PAUSE_SHARE = 0.0002, 0.02, 50
"""A wait is longer by one part in so many of what it is, and by no more than the last."""
_NOTHING = "hipplan: nothing is there"
_READ_MAX = 1 << 24
"""Bytes: 64,000 ranks say less."""


class StoreLost(Exception):
    """The store does not answer, or answers nonsense."""


class Store(Protocol):
    """Keys are text, values bytes. Every method may raise StoreLost."""

    def first(self, key: str, value: bytes) -> bytes:
        """Writes a value if none is there. Returns what is there: the same for everybody who ever asks."""

    def get(self, key: str, until: float) -> bytes | None:
        """Waits for a value until a monotonic time; None if there is none by then."""


class FolderStore:
    """A folder that all ranks see, on one host or on a shared file system: a value is a file, made by link()."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Raises OSError if it cannot be made or written."""
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        if not os.access(self._folder, os.W_OK | os.X_OK):
            raise PermissionError(13, "it cannot be written", str(folder))

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

    def get(self, key: str, until: float) -> bytes | None:
        place = self._place(key)
        with _lost():
            for _ in _attempts(until):
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
        raise StoreLost(f"the folder of the group cannot be used: {error}") from None


def _read(place: Path) -> bytes:
    with place.open("rb") as file:
        return file.read(_READ_MAX)


class TorchStore:
    """A torch.distributed Store."""

    def __init__(self, store: Any, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    def first(self, key: str, value: bytes) -> bytes:
        return self._compare_set(key, "", value.decode())  # "": if there is none

    def get(self, key: str, until: float) -> bytes | None:
        # Store.wait() would be one operation, but a TCPStore of torch 1 is of no use after a wait in vain. A value that
        # nobody expects is never set: what is there comes back, or else that value.
        for _ in _attempts(until):
            value = self._compare_set(key, _NOTHING, _NOTHING)
            if value != _NOTHING.encode():
                return value
        return None

    def _compare_set(self, key: str, expected: str, wanted: str) -> bytes:
        try:
            return bytes(self._store.compare_set(self._prefix + key, expected, wanted))
        except Exception as error:  # torch has no class for all that can go wrong with a connection
            raise StoreLost(f"the store of torch.distributed does not answer: {error}") from None


def _attempts(until: float) -> Iterator[None]:
    """At once, then again and again, with growing pauses, until a monotonic time."""
    began = time.monotonic()
    while True:
        yield
        now = time.monotonic()
        if now >= until:
            return
        pause = min(max(_PAUSE_FIRST_S, (now - began) / _PAUSE_SHARE), _PAUSE_LAST_S)
        time.sleep(min(pause, until - now))
