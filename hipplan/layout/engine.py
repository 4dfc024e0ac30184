"""The engine: carries out any verb (verbs.py) on a live layout, all of it or nothing.

From top to bottom: it takes the turn and the layout's lock, and begins the agreement of the ranks; it requires that the
layout may change; it plans the change, lowers it for the release of HIP, asks the driver what only that knows, calls
the callback of a sleep, and requires consent and capacity; it calls who watches the memory, stops the pools whose
regions go, and runs the transaction (transaction.py), which commits or rolls back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial

from hipplan.errors import GroupInDoubt, LayoutInUse
from hipplan.layout.gathering import gather
from hipplan.layout.holding import Holding
from hipplan.layout.options import DEFAULT, Options
from hipplan.layout.transaction import run_at_free_addresses
from hipplan.layout.undo import free_retired, log_behind, log_failures
from hipplan.layout.verbs import VERBS, Verb, Wanted
from hipplan.lowering.lowered import Lowering, lower
from hipplan.program import consent, peak
from hipplan.program.difference import Difference
from hipplan.program.refusals import refuse
from hipplan.program.runs import plain


def carry_out(holding: Holding, wanted: Wanted, options: Options = DEFAULT) -> Difference:
    """Changes the layout, after waiting for a change in another thread. Returns the change.

    wanted: the verb and its arguments. options: those of the caller; the layout's record and ranks are added.

    Raises, with nothing changed, ApplyError, MachineError, LayoutInUse (HP409), RuntimeError in a callback of what
    moves bytes, and ValueError: the layout is closed; ApplyError after rolling back; LeakError if the layout has
    changed but an object could not be freed; in a group also GroupError and GroupInDoubt.
    """
    verb = VERBS[type(wanted)]
    if not verb.takes_turn:
        return _change(holding, verb, wanted, options)
    holding.require_open()
    with holding.turn.taken():
        return _change(holding, verb, wanted, options)


def _change(holding: Holding, verb: Verb, wanted: Wanted, options: Options) -> Difference:
    with holding.lock.taken(), ExitStack() as group:
        if holding.is_forked:
            holding.require_open()  # raises, before an agreement begins
        agreement = None
        if holding.ranks is not None and verb.call:
            lose = f"(lose={sorted({*options.lose})})" if options.lose else ""
            agreement = group.enter_context(holding.ranks.agreeing(verb.call + lose))
        holding.require_open()
        _require_own(holding, verb)
        _require_at_rest(holding)

        def plan() -> Lowering:
            return lower(verb.plan(wanted, holding.state, agreement), holding.state.lowered)

        lowering = plan()
        if not lowering.planned.empty:
            if verb.ask is not None:
                verb.ask(wanted, holding, lowering)
            if options.notice is not None:
                lowering = _after(options.notice.before, holding, lowering, plan)
        planned = lowering.planned
        if verb.may_lose:
            consent.require(planned, options.lose, options.is_reviewed)
        peak.require_capacity(planned)
        if agreement is not None and not agreement.has_met:
            agreement.plans(None)

        record = None if planned.empty else holding.record
        options = replace(options, record=record, together=agreement)
        if not verb.call:  # lanes: no memory of the plan is unmapped, and a callback before a change may need them
            return _run(holding, lowering, options)
        done = _run_watched(holding, lowering, plan, options)
        holding.calls += 1
        return done


def _require_own(holding: Holding, verb: Verb) -> None:
    """Raises ApplyError (HP420) where the memory is a holder's."""
    if holding.holder is not None and not verb.if_attached:
        why = f"the memory is of the holder '{holding.holder.name}', and others may map it too"
        hint = f"hipplan replace {holding.holder.name} PLAN, then attach again"
        if verb.call in ("sleep", "wake"):
            hint = f"close all layouts that are attached, then hipplan {verb.call} {holding.holder.name}"
        raise refuse(f"{verb.call}() is for layouts that this process has applied", why=why, hint=hint)


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


def _after(call: Callable[[], None], holding: Holding, lowering: Lowering, plan: Callable[[], Lowering]) -> Lowering:
    """Calls callbacks, and returns the change again: copies of bytes may have added pinned memory and streams, which
    are not in the plan. Raises what the callbacks raise, and ApplyError (HP420) if one has changed the layout."""
    before, calls = holding.state, holding.calls
    call()
    if holding.state is before:
        return lowering
    if holding.ranks is not None or holding.calls != calls:
        raise refuse("on_unmap changed the layout", hint="change the layout at another time")
    return plan()


def _run_watched(holding: Holding, lowering: Lowering, plan: Callable[[], Lowering], options: Options) -> Difference:
    """Runs a change, and calls the watches of its memory before and after. plan: makes the change again. Raises as
    carry_out()."""
    watches = holding.watches
    try:
        before = partial(watches.before, holding.state, lowering.planned)
        lowering = _after(before, holding, lowering, plan)
    except BaseException:
        watches.after(holding.state, is_failing=True)
        raise
    try:
        done = _run(holding, lowering, options)
    except GroupInDoubt:
        raise
    except BaseException:
        watches.after(holding.state, is_failing=True)
        raise
    watches.after(holding.state)
    return done


def _run(holding: Holding, lowering: Lowering, options: Options) -> Difference:
    """Runs a change. Raises as carry_out()."""
    change = lowering.planned
    if options.record is not None:
        options.record.changed(change.in_a_line())
    holding.under_way.forget_done()
    if change.contents or any(step.makes == "stream" for step in plain(change.gone)):
        holding.under_way.wait_for_threads()  # they use the same pinned memory and streams
    holding.is_filling = bool(change.contents)
    try:
        with _pools_emptied(holding, change):
            done = run_at_free_addresses(holding.native, lowering, options).change.planned
        gather(holding.native)
        return done
    except LayoutInUse as busy:
        raise LayoutInUse(holding.under_way.explained(busy.diagnostics[0])) from None
    except GroupInDoubt as doubt:
        holding.in_doubt, doubt.undo = doubt.undo, holding.undo_doubt
        raise
    finally:
        holding.is_filling = False


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
