"""Pools for PyTorch that take memory as tensors come: the regions of a plan with `torch: {tag: ...}`.

The chunks belong to native code (cpp/core/growing_pool.hpp), not to the layout's program. So a pool changes while
other threads change the rest of the layout; what changes the pool itself (sleep, wake, update, close) stops it first.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace

from hipplan import _core
from hipplan.errors import ApplyError, Diagnostic, LayoutInUse, LeakError, driver_failure
from hipplan.kinds.mapping.live import rights_of
from hipplan.layout.mempool import MemPool
from hipplan.layout.state import State
from hipplan.layout.undo import Undone, log_failures, undone_of, wait_until_idle
from hipplan.layout.usage import PoolUsage
from hipplan.machines.family import family_of
from hipplan.machines.machine import FALLBACK_GRANULARITY
from hipplan.program.backups import DROP, HOST
from hipplan.program.refusals import cannot_sleep, no_room_to_wake, refuse_asleep
from hipplan.program.tags import tag_of

log = logging.getLogger("hipplan")

_OUT_OF_MEMORY = 2
POOL_TARGETS = (HOST, DROP)
"""Where the bytes of a pool can be while it sleeps."""


class GrowingPool(MemPool):
    """One region's pool."""

    def __init__(self, state: State, leases: _core.LeaseBook, region: str) -> None:
        program = state.program
        placed = program.regions[region]
        self.label = placed.region.devices[0]
        """The plan's name for its device."""
        device = program.devices[self.label]
        machine = program.measured.devices[device] if program.measured is not None else None
        step = (machine and machine.granularity_recommended) or FALLBACK_GRANULARITY
        self.region = region
        self.tag = tag_of(program, region)
        self._to = ""
        self._runtime = state.runtime
        self._spec = placed.region.spec
        self._leases = leases
        self._users = 0
        self._lock = threading.Lock()
        self._refused = 0
        self.native = _core.GrowingPool(
            state.runtime, state.snapshot, program.slots[region], region, device, (placed.chunk, step),
            placed.region.spec.rdma, rights_of(placed.region.access_to(self.label), program.devices), leases,
        )  # fmt: skip
        functions = (f"hipplan_chunks_malloc_{self.native.slot:03x}", f"hipplan_chunks_free_{self.native.slot:03x}")
        super().__init__(region, family_of(state.runtime.path), device, functions)

    def is_outdated(self, state: State) -> bool:
        """Whether a change in place gave it another chunk, and it has no tensors left; then it is closed."""
        now = state.program.regions[self.region].region.spec
        if now == self._spec:
            return False
        self.tag = tag_of(state.program, self.region)
        if self.native.usage.blocks or self._users:
            return False
        log_failures(self.trim())
        log_failures(self.close())
        return True

    @property
    def used_bytes(self) -> int:
        return self.native.usage.used

    @property
    def asleep_in(self) -> str:
        """Where its bytes are while it sleeps: host or drop; else empty."""
        return self._to if self.native.state == "asleep" else ""

    @property
    def usage(self) -> PoolUsage:
        """What it takes now."""
        native = self.native.usage
        return PoolUsage(
            self.region, self.tag, self.label, self.asleep_in or self.native.state, native.reserved, native.mapped,
            native.used, native.saved, native.chunks, native.blocks,
        )  # fmt: skip

    @contextmanager
    def entering(self) -> Iterator[None]:
        """Raises ApplyError (HP441): it is asleep; LayoutInUse (HP409): another thread changes it."""
        with self._lock:
            if self.native.state == "asleep":
                raise refuse_asleep(self.region)
            if self.native.state != "open":
                raise LayoutInUse(Diagnostic("HP409", f"the pool '{self.region}' is being changed", hint="try again"))
            self._users += 1
            self._refused = self.native.usage.refused
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1

    def why_full(self) -> str:
        return self.native.why_full if self.native.usage.refused > self._refused else ""

    def stop(self, *, force: bool = False) -> bool:
        """Ends it: it has no memory to give from here on. Returns whether it had before. Raises LayoutInUse (HP409): a
        thread is allocating in it, and not force."""
        with self._lock:
            if self._users and not force:
                hint = "leave every `with layout.torch_pool(...)` block first"
                summary = f"the pool '{self.region}' is in use: PyTorch allocates in it"
                raise LayoutInUse(Diagnostic("HP409", summary, hint=hint))
            if stops := self.native.state == "open":
                self.native.stop()
            return stops

    def trim(self) -> Undone:
        """Frees chunks without tensors. Raises, with nothing freed, ApplyError (HP401) and what a signal raises."""
        self.empty_cache()
        before = self.native.mark()
        if self.native.usage.chunks and self.native.state != "asleep":
            try:
                wait_until_idle(self._runtime, {self.label: self.device})
            except _core.HipError as error:
                raise driver_failure(error, self.region, "nothing was freed") from error
        return reported(lambda report: self.native.free_chunks(before, report))

    def begin_sleep(self, to: str, change: _core.PoolsChange) -> Undone:
        """Adds it to what sleeps: its memory is unmapped, and stays until the change is committed. It is stopped. to:
        host or drop. Raises ApplyError (HP401); then it is as before, or what is logged says that it is asleep."""
        before = self.native.mark()
        self._to = to
        try:
            wait_until_idle(self._runtime, {self.label: self.device})
            freed = reported(lambda report: self.native.free_chunks(before, report))
            return freed.and_then(reported(lambda report: change.sleep(self.native, to == HOST, report)))
        except _core.HipError as error:
            raise driver_failure(error, self.region, f"the pool '{self.region}' cannot sleep") from error

    def begin_wake(self, change: _core.PoolsChange) -> Undone:
        """Adds it to what wakes: memory and bytes are restored, and it stays stopped until the change is committed.
        Raises ApplyError (HP401, HP442); then it is still asleep."""
        before = self.native.mark()
        freed = reported(lambda report: self.native.free_chunks(before, report))
        try:
            return freed.and_then(reported(lambda report: change.wake(self.native, report)))
        except _core.HipError as error:
            raise self._unwoken(error) from error

    def _unwoken(self, error: _core.HipError) -> ApplyError:
        """HP442 if the device has too little memory, else HP401."""
        if error.code == _OUT_OF_MEMORY and error.call == "hipMemCreate":
            with suppress(_core.HipError):
                free, _ = self._runtime.memory_info(self.device)
                needed = self.native.usage.all_chunks
                return ApplyError(no_room_to_wake(self.label, max(needed, free), free, f" the pool '{self.region}'"))
        return driver_failure(error, self.region, f"the pool '{self.region}' is still asleep")

    def host_copy(self, address: int, size: int) -> memoryview | None:
        """The copy in host memory of bytes of a block; None if there is none. It is not freed while views of it live.

        The caller holds the layout's lock.
        """
        at = self.native.copy_of(address, size)
        return memoryview(_HostCopy(self, at, size)) if at else None

    def close(self) -> Undone:
        """Frees all of its memory; tensors that still live point at nothing. The device is idle."""
        return reported(lambda report: self.native.close(True, report))


class _HostCopy(_core.Window):
    """Bytes of a pool's copy in host memory. A view of it keeps the pool, which owns them."""

    def __init__(self, pool: GrowingPool, address: int, size: int) -> None:
        book = pool._leases
        super().__init__(book, pool.region, address, (size,), 1, "B", "", False, book.age)
        self._owner = pool.native


class GrowingPools:
    """The pools of a layout, by region; made when they are first used."""

    def __init__(self) -> None:
        self._made: dict[str, GrowingPool] = {}
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[GrowingPool]:
        return iter([*self._made.values()])

    def get(self, owner: object, state: State, leases: _core.LeaseBook, region: str) -> GrowingPool:
        """The pool of a region. owner: what the pool must not outlive but for its tensors."""
        with self._lock:
            pool = self._made.get(region)
            if pool is None or pool.is_outdated(state):
                self._made[region] = pool = GrowingPool(state, leases, region)
                weakref.finalize(owner, pool.native.abandon)
            return pool

    @contextmanager
    def stopped(self, pools: list[GrowingPool], *, force: bool = False) -> Iterator[None]:
        """While entered, these give out nothing. Raises LayoutInUse (HP409), with nothing stopped."""
        mine: list[GrowingPool] = []
        try:
            for pool in pools:
                mine.append(pool)
                stops = False
                try:
                    stops = pool.stop(force=force)
                finally:
                    if not stops:
                        mine.pop()
            yield
        finally:
            for pool in mine:
                pool.native.resume()

    def drop(self, pool: GrowingPool) -> Undone:
        """Close one whose region is gone."""
        self._made.pop(pool.region, None)
        return pool.close()


def require_target(region: str, to: object) -> str:
    """host or drop. Raises ApplyError (HP440): a pool sleeps into no file."""
    if to not in POOL_TARGETS:
        raise cannot_sleep(region, "the bytes of a pool go to host memory or are dropped", "write to='host'")
    return str(to)


@contextmanager
def together(
    lock: Callable[[], AbstractContextManager[None]],
    begin: Callable[[_core.PoolsChange], Undone],
    *,
    retain: bool = False,
) -> Iterator[None]:
    """What several pools begin, all of them do when the block ends, and none does if it raises.

    lock: takes the layout's, for what frees copies. begin: adds them to a change; retain: as of Layout.wake(). Raises
    what begin and the block raise; LeakError, of the block too: it is done, but memory could not be released.
    """
    change, undone, leaked = _core.PoolsChange(), Undone(0), None
    ended, taken_back = _core.UndoReport(), _core.UndoReport()  # now, so that no memory is needed at the decision
    try:
        with lock():
            undone = begin(change)
        try:
            yield
        except LeakError as error:
            leaked = error
        with lock():
            change.commit(retain, ended)
    except BaseException:
        with lock():
            change.undo(taken_back)
        log_failures(undone)
        _log_undo(undone_of(taken_back))
        raise
    undone = undone.and_then(undone_of(ended))
    if leaked is not None:
        log_failures(undone)
        raise leaked
    undone.raise_failures()


def reported(call: Callable[[_core.UndoReport], object]) -> Undone:
    """Runs a call that adds to a report. What the report names of a call that failed is logged."""
    report = _core.UndoReport()
    try:
        call(report)
    except BaseException:
        _log_undo(undone_of(report))
        raise
    return undone_of(report)


def _log_undo(undone: Undone) -> None:
    """Logs what a sleep that failed has left: pools whose memory could not be mapped again, and what was not freed."""
    for failure in undone.failures:
        if failure.is_change:
            text = "the pool '%s' stays asleep, with its bytes; wake() tries again to map its memory. %s"
            log.error(text, failure.name, failure.driver)
    log_failures(replace(undone, failures=tuple(failure for failure in undone.failures if not failure.is_change)))
