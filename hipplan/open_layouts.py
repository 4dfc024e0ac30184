"""The layouts that are open, which are closed when the interpreter exits."""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from typing import TYPE_CHECKING

from hipplan import _core, kept
from hipplan.undo import hurry, tell_leaks

if TYPE_CHECKING:
    from hipplan.layout import Layout

log = logging.getLogger("hipplan")

_open: dict[weakref.ref[Layout], kept.Holder] = {}
os.register_at_fork(after_in_child=_open.clear)


def add(layout: Layout, holder: kept.Holder) -> None:
    """Until discard(). If it is dropped before, what it stands on goes when the last view of it has gone."""
    _open[weakref.ref(layout, _dropped)] = holder  # no __del__, in which a ^C would be lost


def discard(layout: Layout) -> None:
    _open.pop(weakref.ref(layout), None)


def _dropped(which: weakref.ref[Layout]) -> None:
    """May be interrupted at any instruction, its first one too: then the next give_back() goes on with it."""
    holder = _open.get(which)
    if holder is not None:
        kept.dropped(holder)
        _open.pop(which, None)


def give_back() -> BaseException | None:
    """What of layouts that are gone is still there. Gives what was raised into it, for the caller to raise."""
    for which, holder in _open.copy().items():  # a copy: any instruction may drop a layout
        if which() is None:
            kept.dropped(holder)
            kept.keep(holder)  # whoever else has it: the interrupt's traceback may
            _open.pop(which, None)
    return kept.give_back()


def _close(layout: Layout) -> None:
    """Nobody is left to whom anything could be raised; an interrupt only hurries what is under way, as anywhere."""
    while True:
        try:
            layout.close(force=True)
            return
        except Exception as error:
            log.error("%s", error)
            return
        except BaseException as interrupt:
            if layout.closed:
                if interrupt.__cause__ is not None:
                    log.error("%s", interrupt.__cause__)
                return
            if answer := hurry():
                log.warning("%s", answer)


@atexit.register
def _close_all() -> None:
    """While the runtime still stands. After this, owners no longer call the driver."""
    try:
        for which in list(_open):
            layout = which()
            if layout is not None:
                _close(layout)
        give_back()
        tell_leaks(_core.take_leaks())
    finally:
        _core.shutdown()
