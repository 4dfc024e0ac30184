"""Change a live layout in place, as a transaction: the way from its program to another one, or nothing.

Order: additions, read back; then changes that an undo takes back, read back; then contents; that is the point of no
return; what is replaced is given back last. Until then a failure leaves the layout as it was: addresses, access, and
bytes but those that contents were writing.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from hipplan import contents, extend, kept, pieces, remake, resize, steps
from hipplan.changes import CopyBytes, TakeOut, refuse
from hipplan.content_steps import check_files
from hipplan.difference import Difference
from hipplan.errors import ApplyError, LayoutInUse, LeakError
from hipplan.live import Live, bindings, host_memory, native_steps
from hipplan.program import Program
from hipplan.resize import Size, require
from hipplan.state import State
from hipplan.tensorfiles import Files
from hipplan.transaction import Making, OnStep, raise_undone, read_back
from hipplan.undo import Undone, conclude, undo, wait_until_idle

if TYPE_CHECKING:
    from hipplan.layout import Layout

log = logging.getLogger("hipplan")

_LOOKED_AT = (
    steps.Map,
    steps.CreateDeviceBuffer,
    steps.CreatePinnedBuffer,
    steps.RegisterBuffer,
    steps.CreateManagedBuffer,
)


def change(
    layout: Layout,
    way: Callable[[State], Difference],
    *,
    bind: Mapping[str, Any] | None = None,
    on_step: OnStep | None = None,
    check: bool = True,
) -> Difference:
    """Goes the way from what the layout is. One at a time: waits for a change that another thread makes.

    way: what to do, of the layout as it is then. Raises ApplyError after rolling back, LayoutInUse with nothing
    changed, LeakError if the layout has changed but something could not be given back.
    """
    with layout._lock:
        layout._require_open()
        if under_way(layout):
            raise refuse("the layout is being changed already", why="a change cannot begin inside of another one")
        state = layout._state
        if state.live.journal.next() > state.end:  # an interrupt stopped even the roll back of an earlier change
            undone = undo(state.program, state.live, since=state.end)
            for failure in undone.diagnostics():
                log.error("%s", failure)
            if undone.interrupt is not None:
                raise undone.interrupt
        difference = way(state)
        if difference.empty:
            layout._state = replace(state, program=difference.new, live=_renamed(state, difference))
            return difference
        _Change(layout, difference, bindings(bind), on_step, check).run()
    return difference


def grow(layout: Layout, name: str, by: Size | None, to: Size | None) -> Difference:
    """layout.grow()."""

    def grown(program: Program, state: State) -> Program:
        if require(program, name, "region", "reservation").kind == "region":
            return resize.grown(program, name, by=by, to=to)
        step = pieces.growth_step(state.program, name)
        return extend.grown(program, name, _addresses(state, name), by=by, to=to, step=step)

    return _become(layout, grown)


def shrink(layout: Layout, name: str, by: Size | None, to: Size | None) -> Difference:
    """layout.shrink()."""

    def shrunk(program: Program, state: State) -> Program:
        if require(program, name, "region", "reservation").kind == "region":
            return resize.shrunk(program, name, by=by, to=to)
        return extend.shrunk(program, name, _addresses(state, name), by=by, to=to)

    return _become(layout, shrunk)


def _become(layout: Layout, other: Callable[[Program, State], Program]) -> Difference:
    """other: the program to become, of that which the layout has, with its memory in one piece each."""
    return change(layout, lambda state: pieces.lead(state.program, other(pieces.as_planned(state.program), state)))


def remap(layout: Layout, name: str, device: str | None, keep_bytes: bool) -> Difference:
    """layout.remap()."""
    return change(layout, lambda state: remake.remapped(state.program, name, device=device, keep_bytes=keep_bytes))


def seal(layout: Layout, name: str) -> Difference:
    """layout.seal()."""
    return _become(layout, lambda program, _: remake.sealed(program, name))


def unseal(layout: Layout, name: str) -> Difference:
    """layout.unseal()."""
    return _become(layout, lambda program, _: remake.unsealed(program, name))


def make_lanes(layout: Layout, devices: Iterable[int]) -> Difference:
    """What moves bytes to and from devices, which stays with the layout."""
    return _become(layout, lambda program, _: contents.with_lanes(program, devices))


def _addresses(state: State, name: str) -> extend.Addresses:
    live = state.live
    return extend.Addresses(live.address(name), lambda one: live.size(one) - live.offset(one))


def rebound(state: State, bind: Mapping[str, Any]) -> frozenset[str]:
    """Names of what was made of something that the caller passed and now passes another one for."""
    live = state.live.moving(Files(), None)
    live.bindings = dict(bind)
    return frozenset(step.name for step in state.program.steps if _is_rebound(step, live))


def _is_rebound(step: steps.Step, live: Live) -> bool:
    """live: with what the caller passes now."""
    if isinstance(step, steps.ImportAllocation):
        return step.bind in live.bindings  # a number is used again, and drivers' descriptors share one inode
    if not isinstance(step, steps.RegisterBuffer) or step.bind not in live.bindings:
        return False
    try:
        given, address, size = live.bound_memory(step)
    except ApplyError:  # told where it is registered
        return True
    given.release()
    return (address, size) != (live.address(step.name), live.size(step.name))


def under_way(layout: Layout) -> bool:
    """Whether this thread is in the middle of a change of the layout: called by on_step, or in a signal's handler."""
    frame = sys._getframe(1).f_back
    while frame is not None:
        if frame.f_code is change.__code__ and frame.f_locals.get("layout") is layout:
            return True
        frame = frame.f_back
    return False


def _renamed(state: State, difference: Difference) -> Any:
    """The names alone may differ; no driver call is needed for that."""
    live = state.live.staged((), difference.renamed, state.live.bindings)
    live.before = None
    return live


class _Change:
    """One change of one layout. Its decision falls once: commit, or roll back."""

    def __init__(
        self, layout: Layout, difference: Difference, bind: Mapping[str, Any], on_step: OnStep | None, check: bool
    ) -> None:
        self.layout = layout
        self.difference = difference
        self.check = check
        self.old: State = layout._state
        before = self.old.live
        self.live = before.staged(
            (step.name for step in difference.gone),
            difference.renamed,
            _still_needed({**before.bindings, **bind}, difference.new),
        )
        self.mark = before.journal.next()
        for step in difference.carries:
            if isinstance(step, CopyBytes):
                self.live.add(remake.before(step.name), before.entry(step.name))
        total = sum(map(len, (difference.additions, difference.carries, difference.changes, difference.contents)))
        self.making = Making(self.live, total, on_step)
        self.barred: list[tuple[int, int]] = []
        self._decided: dict[str, str] = {}
        self.both = replace(difference.new, devices=_devices_of_both(difference))

    def run(self) -> None:
        """Raises as `change` does."""
        if self.live.record is not None:
            self.live.record.changed(self.difference.in_a_line())
        try:
            self._bar()
            self._check_registrations()
            self.live.add_devices(self.both.devices.values())
            checks = self._make()
            state = State(self.difference.new, self.live, checks, self.live.journal.next())
            self._conclude(state)
        except BaseException as error:
            self._stopped(error)
        finally:
            self.live.files.close()

    def _make(self) -> Any:
        """Everything up to the point of no return; gives what was read back."""
        difference, live = self.difference, self.live
        check_files(difference.contents, live.files)
        additions = replace(difference.new, steps=difference.additions)
        self.making.make(additions.steps, native_steps(additions))
        checks: Any = ()
        if self.check and additions.steps:
            checks = read_back(additions, live)
        if difference.changes:
            if difference.takes_out:  # hipMemUnmap does not wait by itself
                self.making.step = next(step for step in difference.changes if isinstance(step, TakeOut))
                wait_until_idle(self.both, live)
            self.making.make(difference.carries)
            self.making.make(difference.changes)
            if self.check:
                checks = read_back(replace(difference.new, steps=difference.to_read_back()), live)
        self.making.make(difference.contents)
        return checks

    def _conclude(self, state: State) -> None:
        self.layout._require_open()  # a signal's handler may have closed it
        released = [*self._released()]
        if not released and not self.difference.changes:
            self.live.before = None
            self.layout._state = state  # this is all it takes
            return

        def commit() -> bool:
            if not self._decide("commit"):
                return False
            self.live.journal.keep_changes()
            self.live.before = None
            for name in self._temporary():
                self.live.forget(name)
            self.layout._state = state
            self.layout._book.settle()
            return True

        undone = conclude(self.both, self.live, commit, released)
        leaked = LeakError(undone.diagnostics(), undone=undone) if undone.failures else None
        if undone.interrupt is not None:
            raise undone.interrupt from leaked
        if leaked is not None:
            raise leaked

    def _stopped(self, error: BaseException) -> NoReturn:
        """Rolls back, unless the decision has fallen already."""
        try:
            if self.layout._state is not self.old or not self._decide("roll back"):
                conclude(self.both, self.live, lambda: True, [*self._released()])  # nothing, where it has ended
                raise error
            undone = self._roll_back(error)
            if isinstance(error, LayoutInUse):
                raise error
            if isinstance(error, Exception):
                self.layout._require_open()
            raise_undone(error, self.making, undone)
        finally:
            del error  # its traceback has this frame: a circle would hold what was bound until a garbage collection

    def _roll_back(self, error: BaseException) -> Undone:
        try:
            self.making.stop(error)
            if self.live.record is not None:
                self.live.record.failed(error)
        finally:  # whatever a signal's handler raises meanwhile
            undone = undo(self.both, self.live, since=self.mark)
            for address, size in self.barred:
                self.layout._book.unbar(address, size)
            self.layout._state = replace(self.old, end=self.live.journal.next())
        return undone

    def _decide(self, how: str) -> bool:
        """Whether this is the decision: the first one counts, whichever thread makes it."""
        return self._decided.setdefault("how", how) == how

    def _bar(self) -> None:
        """LayoutInUse (HP409) if somebody looks at what would go."""
        book = self.layout._book
        for going in self._going():
            self.barred.append(going)  # first: an interrupt behind the bar would leave it there for good
            if holders := book.bar(*going):
                raise LayoutInUse(kept.in_use(holders, "delete the arrays and tensors made from it first"))

    def _check_registrations(self) -> None:
        """HP420: the caller's memory would be registered twice at once, which runtimes do not keep apart."""
        new = [s for s in self.difference.additions if isinstance(s, steps.RegisterBuffer) and s.bind]
        old = [s for s in self.old.program.steps if new and isinstance(s, steps.RegisterBuffer) and s.bind]
        gone = {step.name for step in self.difference.gone}
        before = self.old.live
        for step in new:
            given, address, size = self.live.bound_memory(step)
            given.release()
            for twin in old:
                start = before.address(twin.name)
                if address < start + before.size(twin.name) and start < address + size:
                    until = " until the end of the change" if twin.name in gone else ""
                    summary = f"the memory of '{step.name}' is registered as '{twin.name}'{until}"
                    once = "register memory once, and view parts of it"
                    raise refuse(summary, hint="remove it in one update and add it in the next" if until else once)

    def _going(self) -> list[tuple[int, int]]:
        """(address, bytes) of all that goes and that somebody may look at; neighbours in one."""
        before = self.old.live
        ranges = sorted(
            (before.address(step.name), before.size(step.name))
            for step in self.difference.gone
            if isinstance(step, _LOOKED_AT)
        )
        out: list[tuple[int, int]] = []
        for address, size in ranges:
            if out and out[-1][0] + out[-1][1] == address:
                out[-1] = (out[-1][0], out[-1][1] + size)
            else:
                out.append((address, size))
        return out

    def _released(self) -> Iterator[int]:
        """Entries of the journal to give back."""
        before = self.old.live
        for step in self.difference.released:
            for name in (step.name, host_memory(step.name)):
                if name in before:
                    yield before.entry(name)
        for step in self.difference.carries:
            if not isinstance(step, CopyBytes) and step.name in self.live:
                yield self.live.entry(step.name)

    def _temporary(self) -> Iterator[str]:
        """Names that mean something only while bytes are carried over."""
        for step in self.difference.carries:
            yield remake.before(step.name) if isinstance(step, CopyBytes) else step.name


def _still_needed(bindings: Mapping[str, Any], program: Program) -> dict[str, Any]:
    """What the caller passed stays alive as long as something of the program uses it."""
    used = {s.bind for s in program.steps if isinstance(s, (steps.ImportAllocation, steps.RegisterBuffer))}
    return {name: given for name, given in bindings.items() if name in used}


def _devices_of_both(difference: Difference) -> dict[str, int]:
    """Devices to wait for: those of the old program that the new one does not name come along."""
    out = dict(difference.new.devices)
    for name, ordinal in difference.old.devices.items():
        if ordinal not in out.values():
            out[name if name not in out else f"{name} (before)"] = ordinal
    return out
