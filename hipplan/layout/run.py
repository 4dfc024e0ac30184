"""run(): makes a layout from a program, or rolls back."""

from __future__ import annotations

from hipplan import _core
from hipplan.layout.holding import AgreeingRanks, Holding, LayoutHolder
from hipplan.layout.layout import Layout
from hipplan.layout.options import DEFAULT, Options
from hipplan.layout.state import State
from hipplan.layout.transaction import run_at_free_addresses
from hipplan.layout.undo import free_waiting
from hipplan.lowering.lowered import lower
from hipplan.machines.runtimes import described
from hipplan.program.difference import from_nothing
from hipplan.program.program import Program


def run(
    program: Program,
    runtime: _core.Runtime,
    options: Options = DEFAULT,
    *,
    notice: str = "",
    ranks: AgreeingRanks | None = None,
    holder: LayoutHolder | None = None,
) -> Layout:
    """Runs every step, reads back, and returns the layout. Raises as Transaction.run(); MachineError (HP309): this
    release of HIP cannot make the program.

    notice: about the choice of the runtime. ranks: those that change the layout together. holder: the process that has
    its memory, if any.
    """
    if (interrupt := free_waiting()) is not None:
        raise interrupt
    change = lower(from_nothing(program), program.nothing)
    record = options.record
    if record is not None:
        record.begin(program, described(runtime), change.lowered.step_count)
    book = _core.LeaseBook()
    holdings = _core.Holdings(_core.Retired(runtime, book, program.name), book)
    holdings.state = State(change.planned.old, change.lowered.old, runtime, _core.Snapshot(holdings))
    try:
        made = run_at_free_addresses(holdings, change, options)
    except BaseException:
        if record is not None:
            record.end()
        raise
    return Layout(Holding(holdings, record, ranks, holder), notice, made.retries)
