"""A live layout: addresses and sizes by name, until it is closed."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import Any

from typing_extensions import Self

from hipplan import _core, kept
from hipplan.errors import LayoutInUse, LeakError
from hipplan.live import Live
from hipplan.places import family_of, places_of
from hipplan.program import Program, Resource
from hipplan.undo import Undone, undo
from hipplan.verify import Check, Checks, verify
from hipplan.views import Piece

log = logging.getLogger("hipplan")

_INSIDE = ("mapping", "tensor")
_WITHOUT_OWN_ADDRESS = (*_INSIDE, "allocation", "stream", "peer")


class Layout:
    """What apply() returns. Use it as a context manager, or close() it.

    layout["scratch"] is a Piece: its address and size, and views of its bytes for NumPy, PyTorch and CuPy.
    Closing gives every byte back; at interpreter exit layouts that are still open are closed. A forked child
    must not use or close its parent's layout: there it closes without touching the driver.
    """

    def __init__(
        self, program: Program, live: Live, checks: Sequence[Check], notice: str = "", retries: int = 0
    ) -> None:
        self.program = program
        self.checks = checks
        """What was read back after the last step."""
        self.notice = notice
        """What to know about the runtime; empty if nothing."""
        self.retries = retries
        """Calls of apply made again because the driver said NotReady."""
        self._live = live
        self._book = _core.LeaseBook()
        self._lock = threading.RLock()  # a signal's handler may close what its thread is closing
        self._closed = False
        self._addresses = {
            resource.name: live.address(resource.name)
            for resource in program.resources
            if resource.kind not in _WITHOUT_OWN_ADDRESS
        }
        _open.add(self)

    @cached_property
    def _resources(self) -> dict[str, Resource]:
        """By name; made when somebody asks, because layouts of thousands of mappings are often only held."""
        return {resource.name: resource for resource in self.program.resources}

    def __getitem__(self, name: str) -> Piece:
        """A new Piece each time. KeyError names what there is; BufferError once the layout is closed."""
        try:
            resource = self._resources[name]
        except KeyError:
            raise KeyError(f"the layout has no '{name}'; it has {', '.join(self._resources)}") from None
        if self._closed:
            raise _core.LeaseRefused(f"'{name}' is closed: its memory was given back")
        if resource.kind == "registered" and not resource.size:
            size = self._live.size(name)  # all of a file: the plan need not know how much that is
            resource = replace(resource, asked=size, size=size)
        if resource.kind in _INSIDE:
            address: int | None = self._addresses[resource.inside] + resource.offset
        else:
            address = self._addresses.get(name)
        places = places_of(resource, self.program, family_of(self.runtime.path))
        return Piece(resource, address, places, self._book, self.runtime)

    def __contains__(self, name: object) -> bool:
        return name in self._resources

    def __iter__(self) -> Any:
        return iter(self._resources)

    def __len__(self) -> int:
        return len(self._resources)

    @property
    def runtime(self) -> _core.Runtime:
        return self._live.runtime

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def leases(self) -> int:
        """Arrays, tensors and buffers made from this layout that still live."""
        return len(self._book)

    def verify(self) -> Checks:
        """Reads everything back again; what does not match is in the checks' `ok`.

        Raises HipError if a query fails, ValueError if the layout is closed.
        """
        with self._lock:
            if self._closed:
                raise ValueError("the layout is closed")
            return verify(self.program, self._live)

    def drift(self) -> list[Check]:
        """What differs from the plan now: changed by somebody else. Raises as verify() does."""
        return self.verify().mismatches()

    def close(self, *, force: bool = False) -> Undone:
        """Waits for the devices, then gives everything back, latest first. A second close does nothing.

        Raises LayoutInUse (HP409), with nothing changed, while arrays or tensors made from this layout live.
        force: closes all the same. Mapped memory is unmapped, so a pointer used after this faults; its
        addresses, and any buffer with a view, are kept until the views are let go (Undone.kept).
        Raises LeakError, after everything else was given back, if something could not be.
        """
        if self._live.process != os.getpid():  # nor the lock: a thread that the child has not got may hold it
            return Undone(0)
        with self._lock:
            if self._closed:
                return Undone(0)
            holders = self._book.bar(0, _EVERYWHERE, force)
            if holders and not force:
                raise LayoutInUse(kept.in_use(holders))
            undone = undo(self.program, self._live, self._book)
            self._closed = True  # not before: an interrupt until here leaves a layout that can be closed
        _open.discard(self)
        if undone.kept:
            kept.keep(self.program, self._live, self._book)
        kept.give_back()
        leaked = LeakError(undone.diagnostics(), undone=undone) if undone.failures else None
        if undone.interrupt is not None:
            raise undone.interrupt from leaked
        if leaked is not None:
            raise leaked
        return undone

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except (LeakError, LayoutInUse) as unclosed:
            if error is None:
                raise
            log.error("%s", unclosed)  # the body's own exception goes on unchanged
        except BaseException:
            if not self._closed:  # an interrupt came before close could begin
                self.close()
            raise


_EVERYWHERE = 2**64 - 1
_open: weakref.WeakSet[Layout] = weakref.WeakSet()
os.register_at_fork(after_in_child=_open.clear)


@atexit.register
def _close_all() -> None:
    """While the runtime still stands. After this, owners no longer call the driver."""
    for layout in list(_open):
        try:
            layout.close(force=True)
        except LeakError as leak:
            log.error("%s", leak)
    _core.shutdown()
