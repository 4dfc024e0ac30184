"""Driver calls that alter a layout's memory outside hipplan."""

from __future__ import annotations

from typing import Any

from hipplan import _core
from hipplan.layout.layout import Layout


def meddle(layout: Layout, operation: str, name: str, *fields: Any) -> None:
    """Runs one row about an object: see hipplan/lowering/rows.py. No check, and no trace in the layout's own state."""
    holdings, slot = layout._holding.native, layout._holding.state.slot(name)
    rows = _core.Rows([(operation, name, slot, *fields)])
    there = len(_core.Snapshot(holdings))
    change = _core.Change(holdings, rows, slots=there, same_slots=there)
    change.advance(1)
    change.commit(holdings.state)


def set_access(layout: Layout, mapping: str, *rights: tuple[int, str]) -> None:
    """Gives devices other rights."""
    meddle(layout, "set access", mapping, rights, None, False)


class Making:
    """Rows run straight away, with no plan: what they make is freed with the last reference."""

    def __init__(self, runtime: _core.Runtime, *rows: tuple[Any, ...]) -> None:
        """Raises what a row raises, after freeing what earlier rows made."""
        slots = 1 + max(row[2] for row in rows)
        book = _core.LeaseBook()
        self.holdings = _core.Holdings(_core.Retired(runtime, book), book)
        change = _core.Change(self.holdings, _core.Rows(rows), slots=slots)
        while change.done < len(rows):
            change.advance(len(rows))
        change.commit(None)
        self.snapshot = _core.Snapshot(self.holdings)

    def release(self) -> None:
        del self.snapshot, self.holdings
