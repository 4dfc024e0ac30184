"""What layouts closed by force could not give back yet, because views of it are out."""

from __future__ import annotations

import logging
import threading
from collections import Counter

from hipplan import _core
from hipplan.errors import Diagnostic
from hipplan.live import Live
from hipplan.program import Program
from hipplan.undo import undo

log = logging.getLogger("hipplan")

_kept: list[tuple[Program, Live, _core.LeaseBook]] = []
_lock = threading.Lock()


def keep(program: Program, live: Live, leases: _core.LeaseBook) -> None:
    """The journal of `live` still owns what `leases` are on."""
    with _lock:
        _kept.append((program, live, leases))


def give_back() -> None:
    """Tries again: views may be gone by now. A failure goes to the log: whoever could be told has left."""
    with _lock:
        waiting, _kept[:] = list(_kept), []
    for one in waiting:
        undone = undo(*one)
        if undone.kept:
            keep(*one)
        for failure in undone.diagnostics():
            log.error("%s", failure)


def in_use(holders: list[_core.Leased]) -> Diagnostic:
    """HP409, with the names of what is looked at."""
    counted = Counter(holder.name for holder in holders)
    who = ", ".join(f"'{name}' ({count})" for name, count in counted.most_common(5))
    more = f" and {len(counted) - 5} more" if len(counted) > 5 else ""
    return Diagnostic(
        "HP409",
        f"the layout is in use: {len(holders)} view{'s' if len(holders) > 1 else ''} of it are out",
        why=f"of {who}{more}",
        hint="delete the arrays and tensors made from it first, or close(force=True)",
    )
