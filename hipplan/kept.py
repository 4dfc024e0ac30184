"""What layouts closed by force could not give back yet, because views of it are out."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter

from hipplan import _core
from hipplan.errors import Diagnostic
from hipplan.live import Live
from hipplan.program import Program
from hipplan.undo import undo

log = logging.getLogger("hipplan")

_kept: list[tuple[Program, Live, _core.LeaseBook]] = []
# No lock: each use is one operation on the list, and a lock could stay held when an interrupt falls into it.


def keep(program: Program, live: Live, leases: _core.LeaseBook) -> None:
    """The journal of `live` still owns what `leases` are on."""
    _kept.append((program, live, leases))


def give_back() -> None:
    """Tries again: views may be gone by now. A failure goes to the log: whoever could be told has left."""
    for one in list(_kept):
        undone = undo(*one)
        if not undone.kept:
            with contextlib.suppress(ValueError):  # another thread was quicker
                _kept.remove(one)
        for failure in undone.diagnostics():
            log.error("%s", failure)


def in_use(holders: list[_core.Leased], hint: str) -> Diagnostic:
    """HP409, with the names of what is looked at."""
    counted = Counter(holder.name for holder in holders)
    who = ", ".join(f"'{name}' ({count})" for name, count in counted.most_common(5))
    more = f" and {len(counted) - 5} more" if len(counted) > 5 else ""
    return Diagnostic(
        "HP409",
        f"the layout is in use: {len(holders)} view{'s' if len(holders) > 1 else ''} of it are out",
        why=f"of {who}{more}",
        hint=hint,
    )
