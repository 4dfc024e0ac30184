"""The open layouts, which are closed when the interpreter exits."""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from typing import Protocol

from hipplan import _core
from hipplan.layout.undo import answer_interrupt, free_waiting, report_leaks, wait_until_freed

log = logging.getLogger("hipplan")


class Open(Protocol):
    """A layout."""

    @property
    def closed(self) -> bool: ...
    def _close_once(self, force: bool, wait: float = 0.0) -> object: ...


_open: weakref.WeakSet[Open] = weakref.WeakSet()
os.register_at_fork(after_in_child=_open.clear)


def add(layout: Open) -> None:
    """Registers a layout until discard(). One that is dropped before is freed with its last view."""
    _open.add(layout)


def discard(layout: Open) -> None:
    _open.discard(layout)


def _close(layout: Open) -> None:
    """Closes a layout at exit. It logs errors, because no caller could catch them; an interrupt can only end the wait
    for a busy device."""
    while True:
        try:
            layout._close_once(force=True)
            return
        except Exception as error:
            log.error("%s", error)
            return
        except BaseException as interrupt:
            if layout.closed:
                if interrupt.__cause__ is not None:
                    log.error("%s", interrupt.__cause__)
                return
            if answer := answer_interrupt():
                log.warning("%s", answer)


@atexit.register
def _close_all() -> None:
    """Closes all layouts while the runtime still works. After this, owners no longer call the driver."""
    try:
        for layout in list(_open):
            _close(layout)
        free_waiting()
        wait_until_freed()
        report_leaks(_core.take_leaks())
    finally:
        _core.shutdown()
