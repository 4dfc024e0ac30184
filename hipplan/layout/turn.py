"""One thread at a time moves bytes of a layout: all moves use the same pinned memory and lanes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from hipplan.errors import LayoutInUse
from hipplan.layout.leases import being_copied
from hipplan.layout.transfer import UnderWay


class Turn:
    """A lock of one layout for moves of bytes. A thread that needs both takes it before the layout's lock."""

    def __init__(self, lock: threading.RLock, under_way: UnderWay) -> None:
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
        is_locked = self._layout_lock._is_owned()  # type: ignore[attr-defined]  # no public method says it
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
