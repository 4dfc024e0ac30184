"""A live layout: addresses and sizes by name, until it is closed."""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Any

from typing_extensions import Self

from hipplan import _core
from hipplan.errors import LeakError
from hipplan.live import Live
from hipplan.program import Program, Resource
from hipplan.undo import Undone, undo
from hipplan.verify import Check, Checks, verify

log = logging.getLogger("hipplan")

_WITHOUT_OWN_ADDRESS = ("mapping", "allocation", "stream", "peer")


@dataclass(frozen=True, slots=True)
class Piece:
    """One object of a live layout."""

    resource: Resource
    address: int | None
    """Where it begins, for the device and the host alike; None where it has no address."""

    @property
    def name(self) -> str:
        return self.resource.name

    @property
    def kind(self) -> str:
        return self.resource.kind

    @property
    def size(self) -> int:
        """Bytes, padding included."""
        return self.resource.size


class Layout:
    """What apply() returns. Use it as a context manager, or close() it.

    layout["scratch"].address, layout["scratch"].size: bytes. Closing gives every byte back; at interpreter
    exit layouts that are still open are closed. A forked child must not use or close its parent's layout:
    there it closes without touching the driver.
    """

    def __init__(self, program: Program, live: Live, checks: Sequence[Check], notice: str) -> None:
        self.program = program
        self.checks = checks
        """What was read back after the last step."""
        self.notice = notice
        """What to know about the runtime; empty if nothing."""
        self._live = live
        self._lock = threading.Lock()
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
        """KeyError names what there is."""
        try:
            resource = self._resources[name]
        except KeyError:
            raise KeyError(f"the layout has no '{name}'; it has {', '.join(self._resources)}") from None
        if resource.kind == "mapping":
            return Piece(resource, self._addresses[resource.inside] + resource.offset)
        return Piece(resource, self._addresses.get(name))

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

    def verify(self) -> Checks:
        """Reads everything back again. Raises HipError; what does not match is in the checks' `ok`."""
        return verify(self.program, self._live)

    def drift(self) -> list[Check]:
        """What differs from the plan now."""
        return self.verify().mismatches()

    def close(self) -> Undone:
        """Waits for the devices, then gives everything back, latest first. A second close does nothing.

        Raises LeakError, after everything else was given back, if something could not be.
        """
        with self._lock:
            if self._closed:
                return Undone(0, ())
            self._closed = True
        _open.discard(self)
        undone = undo(self.program, self._live)
        if undone.failures:
            raise LeakError(undone.diagnostics(), undone=undone)
        return undone

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except LeakError as leak:
            if error is None:
                raise
            log.error("%s", leak)  # the body's own exception goes on unchanged


_open: weakref.WeakSet[Layout] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """While the runtime still stands. After this, owners no longer call the driver."""
    for layout in list(_open):
        try:
            layout.close()
        except LeakError as leak:
            log.error("%s", leak)
    _core.shutdown()
