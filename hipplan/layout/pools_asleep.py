"""Pools for PyTorch that sleep, wake and close with the rest of a layout."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from hipplan import _core
from hipplan.errors import ApplyError
from hipplan.layout.growing import POOL_TARGETS, GrowingPool, require_target, together
from hipplan.layout.holding import Holding
from hipplan.layout.questions import KEPT_WITH_ITS_RANGE, keeps_memory
from hipplan.layout.undo import Undone, log_failures
from hipplan.program import patterns
from hipplan.program.patterns import Names, listed
from hipplan.program.program import Program
from hipplan.program.refusals import cannot_sleep
from hipplan.program.sleepers import ABLE, KINDS
from hipplan.program.tags import pools_in, tagged

log = logging.getLogger("hipplan")


def pool_of(holding: Holding, region: str) -> GrowingPool:
    """The pool of a region. Raises ValueError: the layout is closed."""
    holding.require_open()
    return holding.pools.get(holding, holding.state, holding.leases, region)


@contextmanager
def pools_asleep(holding: Holding, names: Names, to: object) -> Iterator[Names]:
    """Puts the pools among names, tags and patterns to sleep, and yields the other names; the pools are as before if
    what is done inside fails. Raises as Layout.sleep()."""
    pools, others = _to_sleep(holding, names, to)
    if not pools:
        yield others
        return
    where = require_target(pools[0].region, to)

    def begin(change: _core.PoolsChange) -> Undone:
        awake = [pool for pool in pools if pool.native.state != "asleep"]  # another thread may have been quicker
        for pool in awake:
            if keeps_memory(holding, pool.device, pool.region):
                raise cannot_sleep(pool.region, *KEPT_WITH_ITS_RANGE)
        return of_all(awake, lambda pool: pool.begin_sleep(where, change))

    with holding.pools.stopped(pools):
        for pool in pools:
            pool.empty_cache()
        with holding.turn.taken(), together(holding.lock.taken, begin):
            yield others


@contextmanager
def pools_awake(holding: Holding, names: Names | None, *, retain: bool) -> Iterator[Names | None]:
    """Wakes the pools among names, tags and patterns, and yields the other names; the pools stay asleep if what is done
    inside fails. Raises as Layout.wake()."""
    turn = holding.turn
    with turn.taken():
        pools, others = _to_wake(holding, names)
    for pool in pools:
        pool.empty_cache()  # what died meanwhile is not restored

    def begin(change: _core.PoolsChange) -> Undone:
        asleep = [pool for pool in pools if pool.native.state == "asleep"]  # another thread may have been quicker
        return of_all(asleep, lambda pool: pool.begin_wake(change))

    with turn.taken(), together(holding.lock.taken, begin, retain=retain):
        yield others


@contextmanager
def pools_emptied(holding: Holding, force: bool) -> Iterator[None]:
    """While entered, no pool gives out anything, and none has memory but that of tensors. For close()."""
    pools = [*holding.pools]
    with holding.pools.stopped(pools, force=force):
        for pool in pools:
            try:
                log_failures(pool.trim())
            except ApplyError as error:  # the device is lost: close() reports that, too
                log.error("%s", error)
        yield


def of_all(pools: Iterable[GrowingPool], act: Callable[[GrowingPool], Undone]) -> Undone:
    """What an act on one pool after the other could not free. Where one raises, that of those before it is logged."""
    undone = Undone(0)
    try:
        for pool in pools:
            undone = undone.and_then(act(pool))
    except BaseException:
        log_failures(undone)
        raise
    return undone


def _to_sleep(holding: Holding, names: Names, to: object) -> tuple[list[GrowingPool], Names]:
    """The pools that are awake among names, tags and patterns, and the other names."""
    program = holding.state.program
    if names is ABLE:
        regions = pools_in(program) if to in POOL_TARGETS else ()
        return _in_state(holding, regions, asleep=False), names
    meant, others = _split(program, listed(names))
    return _in_state(holding, meant, asleep=False), others


def _to_wake(holding: Holding, names: Names | None) -> tuple[list[GrowingPool], Names | None]:
    """The pools that are asleep among names, tags and patterns, and the other names."""
    if names is None:
        return _in_state(holding, [pool.region for pool in holding.pools], asleep=True), None
    meant, others = _split(holding.state.program, listed(names))
    return _in_state(holding, meant, asleep=True), others


def _in_state(holding: Holding, regions: Iterable[str], *, asleep: bool) -> list[GrowingPool]:
    pools = [pool_of(holding, region) for region in regions]
    return [pool for pool in pools if (pool.native.state == "asleep") == asleep]


def _split(program: Program, names: Iterable[str]) -> tuple[list[str], tuple[str, ...]]:
    """The regions of the pools that names, tags and patterns mean, and the names that mean something else."""
    pools = pools_in(program)
    regions: dict[str, None] = {}
    others: list[str] = []
    for name in names:
        meant = tagged(program, name)
        if patterns.ANY in name:
            meant = tuple(region for region in pools if patterns.matches(name, region))
        regions |= dict.fromkeys(meant)
        if not meant:
            others.append(name)
        elif patterns.ANY in name:
            known = (other for other in program.resources if other.kind in KINDS and not other.inside)
            others += [
                other.name for other in known
                if other.name not in pools and "#" not in other.name and patterns.matches(name, other.name)
            ]  # fmt: skip
    return [*regions], tuple(others)
