"""Objects as the command shows them, for notebooks: what is long is grouped."""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import Any

from hipplan.errors import printable
from hipplan.layout.layout import Layout
from hipplan.layout.verify import Checks
from hipplan.layout.views import Piece
from hipplan.lowering.lowered import lowered
from hipplan.lowering.pieces import note
from hipplan.machines.machine import Machine
from hipplan.program import listing
from hipplan.program.difference import Difference, from_nothing
from hipplan.program.program import Program
from hipplan.show import render, summary
from hipplan.units import full_size, short_size


@singledispatch
def text_of(shown: Any) -> str:
    """What a notebook shows of an object."""
    return repr(shown)


def _text(*parts: str) -> str:
    lines = "\n".join(part.strip("\n") for part in parts if part.strip("\n")).split("\n")
    return "\n".join(map(printable, lines))


@text_of.register
def _(layout: Layout) -> str:
    heading = repr(layout).strip("<>")
    if layout.closed:
        return _text(heading)
    resources = summary.outline(layout.program.resources)
    more = len(layout.program.resources) - len(resources)
    rest = f"and {more} more, inside of these" if more else ""
    return _text(heading, render.resources_table(resources, layout), rest, render.totals(layout.program))


@text_of.register
def _(piece: Piece) -> str:
    access = f"devices: {', '.join(piece.devices)}" if piece.devices else ""
    return _text(repr(piece).strip("<>"), f"size: {full_size(piece.size)}", access)


@text_of.register
def _(program: Program) -> str:
    steps = from_nothing(program).all_steps
    by_kind = summary.resources_by_kind(program)
    heading = f"{program.name} on {program.machine}: {len(steps)} steps, nothing done"
    rows = len(steps) + summary.how_many(by_kind)
    if rows <= summary.ROWS_MAX:
        tables = [render.steps_table(enumerate(steps, 1)), render.resources_table(program.resources)]
    else:
        tables = [summary.steps_summary(steps), summary.resources_summary(by_kind)]
    return _text(heading, *tables, render.totals(program), note(lowered(program)))


@text_of.register
def _(difference: Difference) -> str:
    lines = listing.lines(difference)
    is_short = len(lines) <= summary.ROWS_MAX
    table: Callable[..., Any] = render.difference_table if is_short else summary.changes_summary
    return _text(str(table(lines)) if lines else "", listing.note(difference), listing.summary(lines))


@text_of.register
def _(machine: Machine) -> str:
    from hipplan.show.tables import fitted_table

    rows = []
    for number, device in enumerate(machine.devices):
        memory = short_size(device.memory) if device.memory else "?"
        in_use = short_size(device.in_use) if device.in_use else ""
        rows.append((str(number), device.name, device.arch or "", memory, in_use))
    heading = f"{machine.name}: {machine.description}" if machine.description else machine.name
    host = f"host memory: {short_size(machine.host_memory)}" if machine.host_memory else ""
    return _text(heading, fitted_table((">device", "name", "arch", ">memory", ">in use"), rows), host)


@text_of.register
def _(checks: Checks) -> str:
    return _text(str(checks))
