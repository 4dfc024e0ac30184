"""Change a live layout in place: which program it is to become, and the way there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

from hipplan.errors import GroupInDoubt, LayoutInUse
from hipplan.layout.bound import bindings
from hipplan.layout.holding import Agreement, Holding
from hipplan.layout.mover import OnBytes
from hipplan.layout.state import State
from hipplan.layout.together import carried_out
from hipplan.layout.transaction import OnStep, Transaction
from hipplan.layout.undo import give_back
from hipplan.program import contents, extend, peak, pieces, resize
from hipplan.program.alterations import refuse
from hipplan.program.content_steps import Staging
from hipplan.program.difference import Difference
from hipplan.program.program import Program
from hipplan.program.resize import Size, require

log = logging.getLogger("hipplan")

Meet = Callable[[Program], Program]


def change(
    holding: Holding,
    call: str,
    way: Callable[[State, Meet], Difference],
    *,
    bind: Mapping[str, Any] | None = None,
    on_step: OnStep | None = None,
    on_bytes: OnBytes | None = None,
    check: bool = True,
    force: bool = False,
) -> Difference:
    """Changes the layout. One at a time: waits for a change that another thread makes.

    call: what the ranks of the layout's group do together; empty: this one does it alone. way: what to do, of the
    layout as it is then; it is given what makes a program one that also maps what other ranks make. force: views of
    what goes stay, and look at nothing.

    Raises ApplyError after rolling back, LayoutInUse with nothing changed, LeakError if the layout has changed but
    something could not be given back; of a group also GroupError and GroupInDoubt.
    """
    with holding.lock, ExitStack() as group:
        if holding.is_forked:
            holding.require_open()  # which reports to no other rank
        agreement = group.enter_context(holding.ranks.agreeing(call)) if holding.ranks and call else None
        holding.require_open()
        _require_own(holding, call)
        _require_at_rest(holding)
        difference = way(holding.state, partial(_met, holding, agreement))
        peak.require_capacity(difference)
        if agreement is not None and not agreement.has_met:
            agreement.plans(None)
        record = None if difference.empty else holding.record
        if record is not None:
            record.changed(difference.in_a_line())

        def make(way: Difference) -> Transaction:
            return Transaction(
                holding.native,
                way,
                bind=bindings(bind),
                on_step=on_step,
                on_bytes=on_bytes,
                check=check,
                record=record,
                together=agreement,
                force=force,
            )

        return _watched(holding, difference, lambda: carried_out(difference, make, agreement).way)


def _watched(holding: Holding, way: Difference, carry_out: Callable[[], Difference]) -> Difference:
    """Carries a change out, and calls the watches of its memory before and after. Raises as change()."""
    watches = holding.watches
    _tell_watches(holding, way)
    holding.under_way.settle()
    if way.contents or any(step.makes == "stream" for step in way.gone):
        holding.under_way.wait_for_threads()  # they use the same pinned memory and streams
    try:
        done = carry_out()
    except LayoutInUse as busy:
        watches.after(holding.state, is_failing=True)
        raise LayoutInUse(holding.under_way.explained(busy.diagnostics[0])) from None
    except GroupInDoubt as doubt:
        holding.in_doubt, doubt.give_back = doubt.give_back, holding.settle
        raise
    except BaseException:
        watches.after(holding.state, is_failing=True)
        raise
    watches.after(holding.state)
    return done


def _tell_watches(holding: Holding, way: Difference) -> None:
    """Before anything happens. Raises what a callback raises, with nothing changed."""
    state = holding.state
    try:
        holding.watches.before(state, way)
        if holding.state is not state:
            raise refuse("on_unmap changed the layout", hint="change the layout at another time")
    except BaseException:
        holding.watches.after(holding.state, is_failing=True)
        raise


_OF_ATTACHED = ("", "seal", "unseal")
"""Calls that change nothing of the memory."""


def _require_own(holding: Holding, call: str) -> None:
    """Raises ApplyError (HP420) where the memory is a holder's."""
    if holding.holder is not None and call not in _OF_ATTACHED:
        why = f"the memory is of the holder '{holding.holder.name}', and others may map it too"
        hint = f"hipplan replace {holding.holder.name} PLAN, then attach again"
        raise refuse(f"{call}() is for layouts that this process has applied", why=why, hint=hint)


def _require_at_rest(holding: Holding) -> None:
    """Raises ApplyError (HP420): a change is under way, or was left damaged; and what interrupts the end of another."""
    holdings = holding.native
    if holdings.changing:
        raise refuse("the layout is being changed already", why="changes cannot be nested")
    if holdings.retired.freeable:  # an interrupt stopped the end of an earlier change
        undone = give_back(holdings.retired, holding.record)
        for failure in undone.diagnostics():
            log.error("%s", failure)
        if undone.interrupt is not None:
            raise undone.interrupt
    if holdings.damaged:
        raise refuse("the layout is damaged: an earlier change could not be undone", hint="close it")


def _met(holding: Holding, agreement: Agreement | None, program: Program) -> Program:
    """The program that also maps what other ranks make."""
    if agreement is None:
        return program
    return agreement.meet(program, holding.state.runtime, holding.state.program)


def grow(holding: Holding, name: str, by: Size | None, to: Size | None) -> Difference:
    """layout.grow()."""

    def grown(program: Program, state: State) -> Program:
        if require(program, name, "region", "reservation") == "region":
            return resize.grown(program, name, by=by, to=to)
        step = pieces.growth_step(state.program, name)
        return extend.grown(program, name, _addresses(state, name), by=by, to=to, step=step)

    return become(holding, "grow", grown)


def shrink(holding: Holding, name: str, by: Size | None, to: Size | None) -> Difference:
    """layout.shrink()."""

    def shrunk(program: Program, state: State) -> Program:
        if require(program, name, "region", "reservation") == "region":
            return resize.shrunk(program, name, by=by, to=to)
        return extend.shrunk(program, name, _addresses(state, name), by=by, to=to)

    return become(holding, "shrink", shrunk)


def become(holding: Holding, call: str, other: Callable[[Program, State], Program]) -> Difference:
    """other: the program to become, of that which the layout has, with its memory in one piece each."""

    def way(state: State, meet: Meet) -> Difference:
        return pieces.lead(state.program, meet(other(pieces.as_planned(state.program), state)))

    return change(holding, call, way)


def make_lanes(holding: Holding, staging: Staging) -> Difference:
    """What moves bytes to and from devices, which stays with the layout."""
    return become(holding, "", lambda program, _: contents.with_lanes(program, staging))


def _addresses(state: State, name: str) -> extend.Addresses:
    return extend.Addresses(state.address_of(name), state.size_of)
