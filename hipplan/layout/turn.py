"""Whose turn it is to move bytes of a layout: its pinned memory and lanes are for one thread at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from hipplan.errors import LayoutInUse
from hipplan.layout.leases import being_copied
from hipplan.layout.transfer import UnderWay


class Turn:
    """Of one layout. A thread takes it before the layout's lock, if it needs both."""

    def __init__(self, lock: threading.RLock, under_way: UnderWay) -> None:
        """lock: the layout's. under_way: what threads of ours move, with the same pinned memory."""
        self._turn = threading.RLock()
        self._of_layout = threading.Condition(lock)
        self._under_way = under_way
        self.names: tuple[str, ...] = ()
        """What a fill, copy, load, save, read or write moves now; empty if none does."""

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Waits until no other thread moves bytes; none begins before this ends.

        Raises RuntimeError in a callback of a move, and LayoutInUse where it cannot wait: the caller has the layout's
        lock, for which the other thread may wait.
        """
        is_locked = self._is_locked_here()
        if is_locked and not self._turn.acquire(blocking=False):
            raise LayoutInUse(being_copied(self.names))
        with self._turn:
            if is_locked:
                self._turn.release()
            if self.names:  # this very thread's, which is in on_bytes or a signal's handler
                raise RuntimeError("bytes are being copied already: this cannot begin during a copy")
            self._under_way.wait_for_threads()
            yield

    def _is_locked_here(self) -> bool:
        try:
            self._of_layout.notify(0)
        except RuntimeError:  # this thread has not got the lock
            return False
        return True
