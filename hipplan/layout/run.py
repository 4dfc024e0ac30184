"""run(): makes a layout from a program, or rolls back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hipplan import _core
from hipplan.layout.bound import bindings
from hipplan.layout.holding import Holder, Holding, Ranks
from hipplan.layout.layout import Layout
from hipplan.layout.mover import OnBytes
from hipplan.layout.record import Recorder
from hipplan.layout.state import State
from hipplan.layout.together import Together, carried_out
from hipplan.layout.transaction import OnProgress, OnStep, Transaction
from hipplan.layout.undo import free_waiting
from hipplan.machines.runtimes import described
from hipplan.program.difference import Difference, from_nothing
from hipplan.program.program import Program


def run(
    program: Program,
    runtime: _core.Runtime,
    *,
    bind: Mapping[str, Any] | None = None,
    on_step: OnStep | None = None,
    on_progress: OnProgress | None = None,
    on_bytes: OnBytes | None = None,
    check: bool = True,
    notice: str = "",
    record: Recorder | None = None,
    together: Together | None = None,
    ranks: Ranks | None = None,
    holder: Holder | None = None,
) -> Layout:
    """Runs every step, reads back, and returns the layout. together and errors: as of Transaction. ranks: those that
    change the layout together. holder: the process that has its memory, if any."""
    if (interrupt := free_waiting()) is not None:
        raise interrupt
    if record is not None:
        record.begin(program, described(runtime))
    book = _core.LeaseBook()
    holdings = _core.Holdings(_core.Retired(runtime, book, program.name), book)
    change = from_nothing(program)
    holdings.state = State(change.old, runtime, _core.Snapshot(holdings))

    def make(change: Difference) -> Transaction:
        return Transaction(
            holdings,
            change,
            bind=bindings(bind),
            on_step=on_step,
            on_progress=on_progress,
            on_bytes=on_bytes,
            check=check,
            record=record,
            together=together,
        )

    try:
        made = carried_out(change, make, together)
    except BaseException:
        if record is not None:
            record.end()
        raise
    return Layout(Holding(holdings, record, ranks, holder), notice, made.retries)
