"""The locks of a layout: one for changing it, and one for moving its bytes, which all use the same pinned memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from hipplan.errors import LayoutInUse
from hipplan.layout.leases import being_copied
from hipplan.layout.transfer import UnderWay


class LayoutLock:
    """The lock for changing a layout. A thread may take it again: a signal's handler may close what it closes."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._owner: int | None = None
        """The thread that has it."""

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait until no other thread has it; none gets it before this ends."""
        with self._lock:
            before = self._owner
            try:
                self._owner = threading.get_ident()
                yield
            finally:
                self._owner = before

    def is_taken_here(self) -> bool:
        """Whether this thread has it."""
        return self._owner == threading.get_ident()


class Turn:
    """A lock of one layout for moves of bytes. A thread that needs both takes it before the layout's lock."""

    def __init__(self, lock: LayoutLock, under_way: UnderWay) -> None:
        """lock: the layout's. under_way: transfers on hipplan's own threads, which use the same pinned memory."""
        self._turn = threading.RLock()
        self._layout_lock = lock
        self._under_way = under_way
        self.names: tuple[str, ...] = ()
        """What a fill, copy, load, save, read or write moves now; empty if none does."""

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait until no other thread moves bytes; no other thread begins before this ends.

        Raises RuntimeError in a callback of a move, and LayoutInUse if the caller has the layout's
        lock: the other thread may need that lock, so waiting would be a deadlock.
        """
        is_locked = self._layout_lock.is_taken_here()
        if is_locked and not self._turn.acquire(blocking=False):
            raise LayoutInUse(being_copied(self.names))
        with self._turn:
            if is_locked:
                self._turn.release()
            if self.names:  # moved by this same thread, which is in on_bytes or in a signal's handler
                raise RuntimeError("bytes are being copied already: this cannot begin during a copy")
            self._under_way.wait_for_threads()
            yield

    def is_moving_here(self) -> bool:
        """Whether this thread moves bytes: it is in on_bytes, or in a signal's handler."""
        if not self.names or not self._turn.acquire(blocking=False):
            return False
        self._turn.release()
        return bool(self.names)
