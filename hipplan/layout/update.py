"""Changes a live layout in place: finds the new program and runs the change to it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial

from hipplan.errors import GroupInDoubt, LayoutInUse
from hipplan.layout.holding import Holding, LayoutAgreement
from hipplan.layout.options import DEFAULT, Options
from hipplan.layout.state import State
from hipplan.layout.together import carried_out
from hipplan.layout.transaction import Transaction
from hipplan.layout.undo import free_retired, log_behind, log_failures
from hipplan.lowering.lowered import Lowering, lower
from hipplan.lowering.pieces import growth_step
from hipplan.program import consent, contents, extend, patterns, peak, resize, sealing
from hipplan.program.alterations import refuse
from hipplan.program.content_steps import Staging
from hipplan.program.difference import Difference, difference
from hipplan.program.program import Program
from hipplan.program.resize import Size, require
from hipplan.program.runs import plain

log = logging.getLogger("hipplan")

_RANGES = ("region", "reservation")
_SEALABLE = ("region", "reservation", "mapping")

Meet = Callable[[Program], Program]


def change(
    holding: Holding,
    call: str,
    find_change: Callable[[State, Meet], Difference],
    *,
    lose: Sequence[str] | None = None,
    options: Options = DEFAULT,
) -> Difference:
    """Changes the layout, after waiting for a change in another thread.

    call: the name of the call that all ranks of the layout's group make; empty: this rank makes it alone. find_change:
    returns the change from the current state; its second argument adds memory of other ranks to a program. lose: what
    it may lose, equal in all ranks; None: anything, because the call itself says what goes. options: those of the
    caller; the layout's record and ranks are added.

    Raises ApplyError after rolling back, LayoutInUse with nothing changed, LeakError if the layout has changed but an
    object could not be freed; in a group also GroupError and GroupInDoubt.
    """
    with holding.lock, ExitStack() as group:
        if holding.is_forked:
            holding.require_open()  # raises, before an agreement begins
        with_consent = f"{call}(lose={sorted({*lose})})" if lose else call
        agreement = group.enter_context(holding.ranks.agreeing(with_consent)) if holding.ranks and call else None
        holding.require_open()
        _require_own(holding, call)
        _require_at_rest(holding)
        planned = find_change(holding.state, partial(_met, holding, agreement))
        lowering = lower(planned, holding.state.lowered)
        if lose is not None:
            consent.require(planned, lose)
        peak.require_capacity(planned)
        if agreement is not None and not agreement.has_met:
            agreement.plans(None)
        record = None if planned.empty else holding.record
        if record is not None:
            record.changed(planned.in_a_line())
        complete = replace(options, record=record, together=agreement)

        def make(change: Lowering) -> Transaction:
            return Transaction(holding.native, change, complete)

        return _watched(holding, planned, lambda: carried_out(lowering, make, agreement).change.planned)


def _watched(holding: Holding, change: Difference, carry_out: Callable[[], Difference]) -> Difference:
    """Runs a change, and calls the watches of its memory before and after. Raises as change()."""
    watches = holding.watches
    _call_watches(holding, change)
    holding.under_way.settle()
    if change.contents or any(step.makes == "stream" for step in plain(change.gone)):
        holding.under_way.wait_for_threads()  # they use the same pinned memory and streams
    holding.is_filling = bool(change.contents)
    try:
        with _pools_emptied(holding, change):
            done = carry_out()
    except LayoutInUse as busy:
        watches.after(holding.state, is_failing=True)
        raise LayoutInUse(holding.under_way.explained(busy.diagnostics[0])) from None
    except GroupInDoubt as doubt:
        holding.in_doubt, doubt.undo = doubt.undo, holding.settle
        raise
    except BaseException:
        watches.after(holding.state, is_failing=True)
        raise
    finally:
        holding.is_filling = False
    watches.after(holding.state)
    return done


@contextmanager
def _pools_emptied(holding: Holding, change: Difference) -> Iterator[None]:
    """While entered, the pools whose regions go give out nothing and have no memory but that of tensors. Raises
    LayoutInUse (HP409)."""
    gone = {step.name for step in plain(change.gone) if step.makes == "reservation"}
    pools = [pool for pool in holding.pools if pool.region in gone]
    with holding.pools.stopped(pools):
        for pool in pools:
            log_failures(pool.trim())
        yield
        for pool in pools:
            log_failures(holding.pools.drop(pool))


def _call_watches(holding: Holding, change: Difference) -> None:
    """Calls the watches before a change. Raises what a callback raises, with nothing changed."""
    state = holding.state
    try:
        holding.watches.before(state, change)
        if holding.state is not state:
            raise refuse("on_unmap changed the layout", hint="change the layout at another time")
    except BaseException:
        holding.watches.after(holding.state, is_failing=True)
        raise


_OF_ATTACHED = ("", "seal", "unseal")
"""Calls that do not change the memory."""


def _require_own(holding: Holding, call: str) -> None:
    """Raises ApplyError (HP420) where the memory is a holder's."""
    if holding.holder is not None and call not in _OF_ATTACHED:
        why = f"the memory is of the holder '{holding.holder.name}', and others may map it too"
        hint = f"hipplan replace {holding.holder.name} PLAN, then attach again"
        raise refuse(f"{call}() is for layouts that this process has applied", why=why, hint=hint)


def _require_at_rest(holding: Holding) -> None:
    """Frees what an earlier change has left. Raises ApplyError (HP420) during a change or after a damaged one; and what
    a signal raises."""
    holdings = holding.native
    if holdings.changing:
        raise refuse("the layout is being changed already", why="changes cannot be nested")
    if holdings.retired.freeable:  # an interrupt stopped the end of an earlier change
        undone = free_retired(holdings.retired, holding.record)
        log_failures(undone)
        if undone.interrupt is not None:
            raise undone.interrupt
    log_behind(holdings.retired, holding.record)
    if holdings.damaged:
        raise refuse("the layout is damaged: an earlier change could not be undone", hint="close it")


def _met(holding: Holding, agreement: LayoutAgreement | None, program: Program) -> Program:
    """The program that also maps memory of other ranks."""
    if agreement is None:
        return program
    return agreement.meet(program, holding.state.runtime, holding.state.program)


def grow(holding: Holding, name: str, by: Size | None, to: Size | None) -> Difference:
    """layout.grow()."""

    def grown(program: Program, state: State, name: str) -> Program:
        if require(program, name, *_RANGES) == "region":
            return resize.grown(program, name, by=by, to=to)
        step = growth_step(state.lowered, name)
        return extend.grown(program, name, _addresses(state, name), by=by, to=to, step=step)

    return become(holding, "grow", each(name, _RANGES, grown))


def shrink(holding: Holding, name: str, by: Size | None, to: Size | None) -> Difference:
    """layout.shrink()."""

    def shrunk(program: Program, state: State, name: str) -> Program:
        if require(program, name, *_RANGES) == "region":
            return resize.shrunk(program, name, by=by, to=to)
        return extend.shrunk(program, name, _addresses(state, name), by=by, to=to)

    return become(holding, "shrink", each(name, _RANGES, shrunk))


def seal(holding: Holding, name: str) -> Difference:
    """layout.seal()."""
    return become(holding, "seal", each(name, _SEALABLE, lambda program, _, name: sealing.sealed(program, name)))


def unseal(holding: Holding, name: str) -> Difference:
    """layout.unseal()."""
    return become(holding, "unseal", each(name, _SEALABLE, lambda program, _, name: sealing.unsealed(program, name)))


def each(
    name: str, kinds: Sequence[str], change_one: Callable[[Program, State, str], Program]
) -> Callable[[Program, State], Program]:
    """The change of all objects that a name or pattern means: one change, so all of them are made or none."""

    def changed(program: Program, state: State) -> Program:
        for one in patterns.chosen(program, [name], *kinds):
            program = change_one(program, state, one)
        return program

    return changed


def become(holding: Holding, call: str, other: Callable[[Program, State], Program]) -> Difference:
    """Changes the layout's program. other: returns the new program, from the current one."""

    def find_change(state: State, meet: Meet) -> Difference:
        return difference(state.program, meet(other(state.program, state)))

    return change(holding, call, find_change)


def make_lanes(holding: Holding, staging: Staging) -> Difference:
    """Adds streams and staging memory to the layout, for moving bytes."""
    return become(holding, "", lambda program, _: contents.with_lanes(program, staging))


def _addresses(state: State, name: str) -> extend.Addresses:
    return extend.Addresses(state.address_of(name), state.size_of)
