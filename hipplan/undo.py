"""Giving back: wait for the devices that can reach the memory, then the journal in reverse.

The same for roll back and teardown. A failure does not stop the rest: it is reported by name. Both run natively, with
a look at signals now and then; the waiting itself on a native thread, so that a device can be given up on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import monotonic, perf_counter_ns, sleep

from hipplan import _core
from hipplan.errors import Diagnostic, SettingError
from hipplan.live import Live
from hipplan.program import Program
from hipplan.runtimes import IDLE_NOTICE_S, idle_notice_s

log = logging.getLogger("hipplan")

"""Seconds after which a device that is still busy is told of, and may be given up on. HIPPLAN_IDLE_NOTICE sets it."""

STICKY = {
    "hipErrorDeinitialized",
    "hipErrorECCNotCorrectable",
    "hipErrorIllegalAddress",
    "hipErrorLaunchTimeOut",
    "hipErrorContextIsDestroyed",
    "hipErrorAssert",
    "hipErrorLaunchFailure",
}
"""After one of these every further call on the device says the same until the process ends."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One thing that could not be undone, or waited for."""

    name: str
    """The plan's name."""
    identity: str
    """Kind, size, address."""
    call: str
    error: str
    code: int
    arguments: str
    lost: bool
    """False for a wait that failed: then nothing is lost by it."""
    is_change: bool = False
    """A change to something that stays, which could not be taken back."""

    def diagnostic(self) -> Diagnostic:
        if self.is_change:
            summary, hint = f"{self.identity} could not be put back", "close the layout, or apply the plan anew"
            return Diagnostic("HP403", summary, hint=hint, notes=(self.driver,))
        summary = f"{self.identity} was not given back" if self.lost else f"{self.identity} is not idle"
        hint = "it is free again when the process ends" if self.lost else "the device may be lost"
        return Diagnostic("HP403" if self.lost else "HP406", summary, hint=hint, notes=(self.driver,))

    @property
    def driver(self) -> str:
        return f"driver: {self.call}({self.arguments}) -> {self.error} ({self.code})"


@dataclass(frozen=True, slots=True)
class Undone:
    """What came of giving back."""

    count: int
    """Objects given back."""
    failures: tuple[Failure, ...] = ()
    kept: tuple[str, ...] = ()
    """Names of what waits for its views to be let go: closed by force."""
    restored: int = 0
    """Changes to objects that stay, taken back."""
    retries: int = 0
    """Calls made again because the driver said NotReady."""
    interrupt: BaseException | None = None
    """What was raised into the wait (KeyboardInterrupt): for the caller to raise when all is done."""

    @property
    def leaks(self) -> tuple[str, ...]:
        """Names of what was lost."""
        return tuple(failure.name for failure in self.failures if failure.lost)

    def diagnostics(self) -> list[Diagnostic]:
        """One for each failure; one for all that a lost device, or a busy one, has taken with it."""
        shared = [one for one in self.failures if one.error in STICKY or not one.call]
        if not shared:
            return [failure.diagnostic() for failure in self.failures]
        # A range that could not even be tried, because what is mapped in it is lost, goes with the rest.
        shared += [one for one in self.failures if one.arguments.startswith("not called")]
        return [_for_all(shared), *(one.diagnostic() for one in self.failures if one not in shared)]

    def summary(self) -> str:
        left = f"{len(self.leaks)} left behind" if self.leaks else "nothing left behind"
        kept = f", {len(self.kept)} kept for the views that are out" if self.kept else ""
        again = f"; {retried_text(self.retries)}" if self.retries else ""
        return (
            f"{self.count} of {self.count + len(self.leaks) + len(self.kept)} objects given back, {left}{kept}{again}"
        )


def retried_text(count: int) -> str:
    """For reports: how often calls were made again."""
    return f"{count} call{'s' if count > 1 else ''} made again because the driver said NotReady"


def _for_all(failures: list[Failure]) -> Diagnostic:
    lost = [failure for failure in failures if failure.lost]
    names = f"not given back: {', '.join(failure.name for failure in lost) or 'nothing'}"
    first = failures[0]
    hint = "what is named is free again when the process ends"
    if not first.call:
        return Diagnostic("HP411", f"{first.error}; it was given up on", hint=hint, notes=(names,))
    devices = [failure.identity for failure in failures if not failure.lost]
    are, them = ("are", "them") if len(devices) > 1 else ("is", "it")
    summary = f"{' and '.join(devices) or 'a device'} {are} lost, and {len(lost)} objects with {them}"
    why = f"after {first.error} every call on it fails until the process ends"
    return Diagnostic("HP410", summary, why=why, hint=hint, notes=(first.driver, names))


def undo(program: Program, live: Live, leases: _core.LeaseBook | None = None, since: int = 0) -> Undone:
    """Undoes what the journal holds. Never raises for the driver's sake.

    leases: with some out, what their pointers would need in order not to hit new memory stays in the journal.
    since: only entries from this one on.
    What is raised into the wait, such as KeyboardInterrupt, does not end it: it comes back in `interrupt`.
    """
    if live.is_forked:
        return Undone(0)
    if live.journal.next() <= since or not len(live.journal):
        live.let_go()
        return Undone(0)
    undoing = _core.Undoing.all_but(live.journal, leases) if leases else _core.Undoing(live.journal, since)
    return _surely(live, lambda: _Work(program.devices, live, undoing, lambda entry: entry >= since))


def conclude(program: Program, live: Live, commit: Callable[[], bool], entries: Sequence[int]) -> Undone:
    """The end of a change: commits it and then gives back what it replaces, out of the reach of signals.

    commit: may be called more than once; False if the change was rolled back instead, then nothing happens.
    """
    undoing = _core.Undoing.only(live.journal, entries)
    return _surely(live, lambda: _Work(program.devices, live, undoing, frozenset(entries).__contains__, commit))


def wait_until_idle(program: Program, live: Live) -> None:
    """Waits for the devices. Raises HipError, and at once what a signal raises: nothing is lost by that."""
    names, ordinals = [*program.devices], [*program.devices.values()]
    waiting = _core.IdleWait(live.runtime, ordinals)
    patience_s = max(_LOOK_S, _patience_s())
    if not waiting.wait(patience_s) and (busy := waiting.busy) is not None:
        log.warning("device '%s' is still busy after %g s; the change waits for it", names[busy], patience_s)
    while not waiting.wait(patience_s):
        pass
    for _, error in waiting.failures:
        raise error


def _surely(live: Live, make: Callable[[], _Work]) -> Undone:
    try:
        began = perf_counter_ns()
        owned = live.journal.contents() if live.record else []
        undone = make().give_back()
        live.let_go(undone)
    except BaseException:  # an interrupt in the few instructions outside of the wait; more may come
        _surely(live, make)
        raise
    if live.record:
        live.record.undone(owned, live.journal.contents(), undone, perf_counter_ns() - began)
    return undone


def tell_leaks(lines: Sequence[str]) -> None:
    """Of layouts that were dropped unclosed: nobody has heard of it yet."""
    for line in lines:
        log.error("not given back: %s", line)


def hurry() -> str:
    """What to answer to somebody who interrupts while things are given back; empty if nothing is.

    A device that is past its time is given up on by this.
    """
    return "; ".join(work.hurry() for work in list(_working) if not work.finished)


def _patience_s() -> float:
    try:
        return idle_notice_s()
    except SettingError:  # set since the runtime was chosen: nothing may fail in an undo, and least of all this
        return IDLE_NOTICE_S


class _Work:
    """One undo: the wait for the devices and the journal's loop, which an exception at any instruction cannot break."""

    def __init__(
        self,
        devices: dict[str, int],
        live: Live,
        undoing: _core.Undoing,
        mine: Callable[[int], bool],
        begin: Callable[[], bool] = lambda: True,
    ) -> None:
        """mine: whether an entry of the journal is among what is undone. begin: False to do nothing."""
        self.finished = False
        self._decided: dict[str, str] = {}
        self._devices = devices
        self._live = live
        self._undoing = undoing
        self._mine = mine
        self._begin = begin
        self._waiting: _core.IdleWait | None = None
        self._began = monotonic()
        self._told = False
        self._undone = Undone(0)

    def give_back(self) -> Undone:
        """Until all is given back, or a device was given up on."""
        interrupt: BaseException | None = None
        try:
            _working.add(self)
            while not self.finished and not self._given_up:
                try:
                    self._go_on()
                except MemoryError:  # nothing is given up for want of a little memory: it may come back
                    sleep(_MEMORY_PAUSE_S)
                except BaseException as error:
                    interrupt = interrupt or error
                    log.warning("%s", self.hurry())
        finally:
            _working.discard(self)
        undone = self._undone
        if self._given_up:
            _left.append(self._live)
            undone = Undone(0, self._all_stays())
        return undone if interrupt is None else replace(undone, interrupt=interrupt)

    def _go_on(self) -> None:
        """May be interrupted at any instruction, and is called again then."""
        if not self._begin():
            self.finished = True
            return
        if self._waiting is None:  # hipMemUnmap does not synchronise
            self._waiting = _core.IdleWait(self._live.runtime, [*self._devices.values()])
        while not self._waiting.wait(_LOOK_S):
            if self._given_up:
                return
            if not self._told and self._overdue():
                self._told = True
                log.warning(_STILL_BUSY, self._busy(), _patience_s(), _how_to_give_up())
        if self._decide(""):
            return
        report = self._undoing.run()
        retried = self._waiting.retried + self._undoing.retried
        self._undone = _undone(self._not_idle(self._waiting), report, retried)
        self.finished = True

    def _not_idle(self, waiting: _core.IdleWait) -> list[Failure]:
        out = []
        for place, error in waiting.failures:
            name = [*self._devices][place]
            out.append(
                Failure(
                    name, f"device '{name}'", error.call, error.name, error.code, error.arguments, lost=False
                )
            )  # fmt: skip
        return out

    def _busy(self) -> str:
        """The device that is waited for; empty if none is."""
        place = self._waiting.busy if self._waiting is not None else None
        return "" if place is None else [*self._devices][place]

    @property
    def _given_up(self) -> str:
        """Why, or empty."""
        return self._decided.get("given up", "")

    def _decide(self, given_up: str) -> str:
        """To undo (empty) or to give up: the first one counts, whichever thread makes it, and is the answer."""
        return self._decided.setdefault("given up", given_up)

    def hurry(self) -> str:
        busy = self._busy()
        if busy and self._overdue() and self._decide(f"device '{busy}' did not become idle"):
            return f"{self._given_up}: giving up on it"
        what = f"waiting for device '{busy}'" if busy else "giving memory back"
        return f"still {what}: please wait, stopping now would lose memory"

    def _overdue(self) -> bool:
        return monotonic() - self._began >= _patience_s()

    def _all_stays(self) -> tuple[Failure, ...]:
        return tuple(
            Failure(name, identity, "", self._given_up, 0, "", lost=True)
            for entry, name, identity in self._live.journal.contents()
            if self._mine(entry)
        )


def _undone(waits: list[Failure], report: _core.UndoReport, retried: int) -> Undone:
    lost = [
        Failure(
            leak.name, leak.identity, leak.call, leak.error, leak.code, leak.arguments,
            lost=True, is_change=leak.is_change,
        )
        for leak in report.leaks
    ]  # fmt: skip
    return Undone(report.undone, (*waits, *lost), tuple(report.kept), report.restored, retried)


def _how_to_give_up() -> str:
    """Only the main thread hears an interrupt."""
    return ". Interrupt to give up on it" if threading.current_thread() is threading.main_thread() else ""


_MEMORY_PAUSE_S = 0.01
_LOOK_S = 0.05
"""How long a wait goes on before it is seen whether there is something to tell, or nothing more to wait for."""
_STILL_BUSY = "device '%s' is still busy after %g s; its memory cannot be given back before it is idle%s"
_working: set[_Work] = set()
_left: list[Live] = []
"""What was given up on: for the rest of the process, because the end of a journal would wait for the device again."""
