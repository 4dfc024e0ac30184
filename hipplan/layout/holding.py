"""The native memory of a layout, and the lock for changing or closing it."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol

from hipplan import _core
from hipplan.errors import Diagnostic, LayoutInUse, suggest_or_list
from hipplan.layout.dlpack import places_of
from hipplan.layout.growing import GrowingPools
from hipplan.layout.leases import in_use
from hipplan.layout.record import Recorder
from hipplan.layout.state import State
from hipplan.layout.streams import Stream
from hipplan.layout.together import Together
from hipplan.layout.transfer import UnderWay
from hipplan.layout.turn import LayoutLock, Turn
from hipplan.layout.undo import NOTHING, Undone, free_retired
from hipplan.layout.views import Piece
from hipplan.layout.watching import Watches
from hipplan.machines.family import family_of
from hipplan.plain import shown
from hipplan.program.backups import WHERE
from hipplan.program.patterns import required
from hipplan.program.program import Program
from hipplan.program.refusals import WAKE_IT

log = logging.getLogger("hipplan")

_FORKED = "a layout of the parent process: a forked child cannot use it"


class LayoutAgreement(Together, Protocol):
    """One change that ranks make together, and its preparation."""

    has_met: bool
    """Whether the ranks have exchanged their plans."""

    def plans(self, program: Program | None) -> object:
        """Waits until all ranks have compiled their programs."""

    def meet(self, program: Program, runtime: _core.Runtime, old: Program | None = None) -> Program:
        """Waits as plans() does; returns the program that also maps other ranks' memory. old: the layout's program."""


class AgreeingRanks(Protocol):
    """The ranks that change a layout together (hipplan.ranks.agreement)."""

    def agreeing(self, call: str) -> AbstractContextManager[LayoutAgreement]:
        """An agreement that reports exceptions raised within it to its ranks."""

    def lost(self) -> dict[int, str]:
        """Returns what Layout.lost returns."""

    def notify_closed(self, wait_s: float = 0.0) -> tuple[int, ...]:
        """Notifies the others that the layout is closed. Returns the ranks that still hold theirs after so long."""

    def barrier(self, timeout_s: float | None = None) -> None:
        """Waits as Layout.barrier() does."""


class LayoutHolder(Protocol):
    """The holder process whose memory an attached layout maps (hipplan.holders.attaching)."""

    @property
    def name(self) -> str: ...

    def lost(self) -> str:
        """Returns how the holder was lost, for Layout.lost; empty while it keeps what the layout maps."""

    def why_read_only(self, mapping: str, range_: str) -> tuple[str, str] | None:
        """Why this process may not write a mapping of a range, and what to do; None if attaching is not why."""

    def detach(self) -> None:
        """Notifies the holder that the layout is closed."""


_known: weakref.WeakValueDictionary[int, Holding] = weakref.WeakValueDictionary()
os.register_at_fork(after_in_child=_known.clear)


def live() -> list[Holding]:
    """The layouts of this process that are not closed."""
    known = (reference() for reference in _known.valuerefs())  # a copy: other threads may make more
    return [holding for holding in known if holding is not None and not holding.native.closed]


class Holding:
    """The memory of one layout."""

    def __init__(
        self,
        native: _core.Holdings,
        record: Recorder | None,
        ranks: AgreeingRanks | None = None,
        holder: LayoutHolder | None = None,
    ) -> None:
        self.native = native
        self.ranks = ranks
        self.holder = holder
        self.in_doubt: Callable[[], Undone] | None = None
        """Rolls back a change whose group decision is unknown."""
        self.on_map: dict[tuple[str, ...], Callable[[tuple[str, ...]], object]] = {}
        """Callbacks for when sleeping memory is restored, by its names."""
        self.frees_at_once: set[int] = set()
        """Devices whose memory is free as soon as it is released."""
        self.under_way = UnderWay()
        """Asynchronous transfers."""
        self.pools = GrowingPools()
        """Pools for PyTorch, whose memory is no part of the state."""
        self.watches = Watches()
        """Callbacks before memory is freed."""
        self.record = record
        """Writes the record, if there is one."""
        self.lock = LayoutLock()
        """The lock for changing it."""
        self.turn = Turn(self.lock, self.under_way)
        """Whose it is to move bytes."""
        self.calls = 0
        """How many changes were made by calls of the layout, unlike those that hipplan makes for a copy of bytes."""
        self.is_filling = False
        """Whether a change with contents is under way: it copies bytes between its calls of on_bytes."""
        self._process = os.getpid()
        _known[id(self)] = self

    @property
    def state(self) -> State:
        """The current state."""
        state: State = self.native.state
        return state

    @property
    def leases(self) -> _core.LeaseBook:
        """The leases on it."""
        return self.native.leases

    @property
    def is_forked(self) -> bool:
        """Whether this process is a child of the one whose memory this is."""
        return self._process != os.getpid()

    @property
    def closed(self) -> bool:
        """Whether everything that can be released is released."""
        return self.native.closed and not self.native.retired.freeable

    def require_open(self) -> None:
        """Raises ValueError where this is closed, or is a parent process's."""
        if self.is_forked:
            raise ValueError(f"this is {_FORKED}")
        if self.native.closed:
            raise ValueError("the layout is closed")
        if self.in_doubt is not None:
            raise ValueError("the group of this layout is in doubt: it can only be closed")

    def is_changed_here(self) -> bool:
        """Whether this thread is in the middle of a change: called by on_step, or in a signal's handler."""
        return self.lock.is_taken_here() and self.native.changing

    def piece(self, name: str) -> Piece:
        """Returns a new Piece. KeyError suggests a similar name; BufferError while it sleeps, once the layout is
        closed, or in a fork; TypeError for what is not text."""
        required(name, "the name of an object, such as 'weights'")
        while True:
            age, state = self.leases.age, self.state
            try:
                piece = self._piece(name, state, age)
            except IndexError:  # released by a change in place, or by closing, meanwhile
                if self.state is state:
                    raise self._refusal(name) from None
                continue
            if self.leases.age == age:  # else it may be memory that a change in place has just replaced
                return piece

    def _piece(self, name: str, state: State, age: int) -> Piece:
        try:
            resource = state.resource(name)
        except KeyError:
            hint = suggest_or_list(name, state.program.by_name)
            raise KeyError(f"the layout has no '{shown(name)}'; {hint}") from None
        if self.native.closed or self.is_forked or self.in_doubt is not None:
            raise self._refusal(name)
        if resource.asleep:
            where = WHERE[resource.asleep]
            raise _core.LeaseRefused(
                f"'{name}' is asleep: its bytes are {where}, and its addresses have no memory; {WAKE_IT}"
            )
        if resource.kind == "registered" and not resource.size:
            size = state.size_of(name)  # a whole file, whose size the plan may omit
            resource = replace(resource, asked=size, size=size)
        places = places_of(resource, state.program, family_of(state.runtime.path))
        piece = resource, state.address(resource), places, self.leases, state.runtime, age
        return Stream(state.stream_of(name), *piece) if resource.kind == "stream" else Piece(*piece)

    def _refusal(self, name: str) -> _core.LeaseRefused:
        if self.is_forked:
            return _core.LeaseRefused(f"'{name}' belongs to {_FORKED}")
        if self.in_doubt is not None:
            return _core.LeaseRefused(f"'{name}' belongs to a layout whose group is in doubt: it can only be closed")
        return _core.LeaseRefused(f"'{name}' is closed: its memory was freed")

    def undo_doubt(self) -> Undone:
        """Rolls back a change in doubt. Afterwards the layout can still only be closed."""
        with self.lock.taken():
            return NOTHING if self.in_doubt is None else self.in_doubt()

    def close(self, force: bool) -> Undone:
        """Releases everything; the caller has the lock. Raises LayoutInUse (HP409), with nothing changed, while views
        exist, or in a callback of what copies its bytes; force: memory with views is kept until they end."""
        if self.is_filling or self.turn.is_moving_here():
            hint = "raise an exception in the callback: it ends the call that copies"
            raise LayoutInUse(Diagnostic("HP409", "the layout is in use: this thread copies its bytes", hint=hint))
        for failure in self.undo_doubt().diagnostics():
            log.error("%s", failure)
        if (holders := self.native.close(force)) and not force:
            hint = "first delete the arrays and tensors made from it, or call close(force=True)"
            raise LayoutInUse(self.under_way.explained(in_use(holders, hint)))
        self.state.copies.files.clear()  # they stay, but nothing reads them any more
        freed = [pool.close() for pool in self.pools]  # first: their chunks are in ranges of the layout
        undone = free_retired(self.native.retired, self.record, waits_behind=True)
        for more in freed:
            undone = more.and_then(undone)
        return undone
