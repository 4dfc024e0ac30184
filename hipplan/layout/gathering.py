"""Gathers the chunks of a live layout that growing added into runs, without a driver call."""

from __future__ import annotations

import logging
from dataclasses import replace

from hipplan import _core
from hipplan.layout.state import State
from hipplan.program.gathering import gathered, is_due
from hipplan.program.memo import keep

log = logging.getLogger("hipplan")


def gather(holdings: _core.Holdings) -> None:
    """After a growth, makes a state with the same objects, more of them in runs, if that is due."""
    state: State = holdings.state
    if not (state.program.added and is_due(state.program)):
        return
    if state.lowered is not state.program or holdings.retired.freeable:
        return
    keep(state.program, loose_chunks=0)  # if it fails, it is not tried again at once
    try:
        _gather(holdings, state)
    except Exception as error:  # the growth is done: without this, later changes are only slower
        log.debug("chunks were not gathered: %s", error)


def _gather(holdings: _core.Holdings, state: State) -> None:
    """Raises RuntimeError, with the layout as it was: an object would not stay."""
    made = gathered(state.program)
    if made is None:
        return
    program = made.program
    change = _core.Change(holdings, _core.Rows([]), len(program.slots), kept=made.moved)
    try:
        if sum(many for *_, many in made.moved) != len(state.program.slots):
            raise RuntimeError("some would be freed")
        change.commit(replace(state, program=program, lowered=program, snapshot=_core.Snapshot(change)))
    except BaseException:
        change.roll_back()  # whoever keeps the exception would keep the change undecided
        raise
