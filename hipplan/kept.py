"""What layouts that were closed by force or dropped could not give back yet, because views of it are out."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from typing import TYPE_CHECKING

from hipplan import _core
from hipplan.contents import STAGING
from hipplan.errors import Diagnostic
from hipplan.undo import undo

if TYPE_CHECKING:
    from hipplan.state import State

log = logging.getLogger("hipplan")


EVERYWHERE = 2**64 - 1
"""More bytes than there are."""


class Holder:
    """What a layout stands on. It may outlive it."""

    __slots__ = ("leases", "state", "whole")

    def __init__(self, state: State, leases: _core.LeaseBook) -> None:
        self.state = state
        self.leases = leases
        self.whole = False
        """Nobody has asked for the memory to go, so all of it stays as long as one of the leases is out."""


_kept: list[Holder] = []
# No lock: each use is one operation on the list, and a lock could stay held when an interrupt falls into it.


def keep(holder: Holder) -> None:
    """The journal still owns what leases are on."""
    if holder not in _kept:
        _kept.append(holder)


def dropped(holder: Holder) -> None:
    """The layout has gone without being closed. Without leases its journal goes with it."""
    if holder.state.live.is_forked:  # nor a lock: a thread that the child has not got may hold it
        return
    if holder.leases.bar(0, EVERYWHERE, force=True):
        holder.whole = True
        keep(holder)


def give_back() -> BaseException | None:
    """Tries again: views may be gone by now. A failure goes to the log: whoever could be told has left.

    Gives what was raised into the waits, such as KeyboardInterrupt: for the caller to raise.
    """
    interrupt: BaseException | None = None
    for one in list(_kept):
        if one.whole and len(one.leases):
            continue
        undone = undo(one.state.program, one.state.live, one.leases)
        if not undone.kept:
            with contextlib.suppress(ValueError):  # another thread was quicker
                _kept.remove(one)
        for failure in undone.diagnostics():
            log.error("%s", failure)
        interrupt = interrupt or undone.interrupt
    return interrupt


def in_use(holders: list[_core.Leased], hint: str) -> Diagnostic:
    """HP409, with the names of what is looked at."""
    names = [holder.name for holder in holders]
    if any(name.startswith(STAGING) for name in names):  # the leases are a move's, not a view's
        moved = ", ".join(sorted({f"'{name}'" for name in names if not name.startswith(STAGING)})[:5])
        return Diagnostic(
            "HP409",
            f"the layout is in use: bytes of {moved or 'it'} are being moved",
            hint="wait until fill, load, copy or save has ended",
        )
    counted = Counter(names)
    who = ", ".join(f"'{name}' ({count})" for name, count in counted.most_common(5))
    more = f" and {len(counted) - 5} more" if len(counted) > 5 else ""
    return Diagnostic(
        "HP409",
        f"the layout is in use: {len(holders)} view{' of it is' if len(holders) == 1 else 's of it are'} out",
        why=f"of {who}{more}",
        hint=hint,
    )
