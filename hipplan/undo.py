"""Giving back: wait for the devices that can reach the memory, then the journal in reverse.

The same for roll back and teardown. A failure does not stop the rest: it is reported by name. The wait is done on a
thread of its own, so that the caller's thread can answer signals, and give up on a device; the journal's loop on the
caller's thread, natively, with a look at signals every millisecond.
"""

from __future__ import annotations

import _thread
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import monotonic, perf_counter_ns

from hipplan import _core
from hipplan.errors import Diagnostic
from hipplan.live import Live
from hipplan.program import Program

log = logging.getLogger("hipplan")

IDLE_NOTICE_S = 10.0
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
    if live.process != os.getpid() or live.journal.next() <= since or not len(live.journal):
        return Undone(0)
    journal = live.journal

    def mine(entry: int) -> bool:
        return entry >= since

    if leases:
        return _surely(live, lambda: _Work(program.devices, live, lambda: journal.undo_all_but(leases), mine))
    undoing = _core.Undoing(journal, since)
    return _surely(live, lambda: _Work(program.devices, live, undoing, mine))


def conclude(program: Program, live: Live, commit: Callable[[], bool], entries: Sequence[int]) -> Undone:
    """The end of a change: commits it and then gives back what it replaces, out of the reach of signals.

    commit: may be called more than once; False if the change was rolled back instead, then nothing happens.
    """
    mine = frozenset(entries)
    return _surely(
        live, lambda: _Work(program.devices, live, lambda: live.journal.undo(entries), mine.__contains__, commit)
    )


def wait_until_idle(program: Program, live: Live) -> None:
    """Waits for the devices. Raises HipError, and at once what a signal raises: nothing is lost by that."""
    waiting = _Wait(program.devices, live)
    _thread.start_new_thread(waiting.run, ())
    while not waiting.done.acquire(timeout=0.05):
        pass
    if waiting.failed is not None:
        raise waiting.failed


def _surely(live: Live, make: Callable[[], _Work]) -> Undone:
    try:
        began = perf_counter_ns()
        owned = live.journal.contents() if live.record else []
        undone = make().give_back()
    except BaseException:  # an interrupt in the few instructions outside of the wait; more may come
        _surely(live, make)
        raise
    if live.record:
        live.record.undone(owned, live.journal.contents(), undone, perf_counter_ns() - began)
    return undone


class _Wait:
    def __init__(self, devices: dict[str, int], live: Live) -> None:
        self.done = _thread.allocate_lock()
        self.done.acquire()
        self.failed: _core.HipError | None = None
        self._ordinals = list(devices.values())
        self._runtime = live.runtime

    def run(self) -> None:
        try:
            for ordinal in self._ordinals:
                self._runtime.synchronize(ordinal)
        except _core.HipError as error:
            self.failed = error
        finally:
            self.done.release()


def hurry() -> str:
    """What to answer to somebody who interrupts while things are given back; empty if nothing is.

    A device that is past its time is given up on by this.
    """
    return "; ".join(work.hurry() for work in list(_working) if not work.finished)


def _patience_s() -> float:
    try:
        return float(os.environ["HIPPLAN_IDLE_NOTICE"])
    except (KeyError, ValueError):  # nothing may fail in an undo, and least of all this
        return IDLE_NOTICE_S


class _Work:
    """One undo: the wait for the devices and the journal's loop, outside of the reach of signals.

    Made of what an exception at any instruction cannot break: threading.Event and Thread are not (an interrupt
    inside of Event.wait was seen to raise "release unlocked lock").
    """

    def __init__(
        self,
        devices: dict[str, int],
        live: Live,
        what: Callable[[], _core.UndoReport] | _core.Undoing,
        mine: Callable[[int], bool],
        begin: Callable[[], bool] = lambda: True,
    ) -> None:
        """what: undoes, on the thread that waited; an Undoing does it on the caller's own, where the driver's calls
        were seen to be a fifth faster.
        mine: whether an entry of the journal is among what it undoes. begin: False to do nothing.
        """
        self.finished = False
        self._wakes = _thread.allocate_lock()  # released when it is finished
        self._wakes.acquire()
        self._decision = [None]  # whoever pops it decides: the thread to undo, or the caller to give up
        self._devices = devices
        self._live = live
        self._what = what
        self._idle = False
        self._mine = mine
        self._begin = begin
        self._waiting_for = ""
        self._given_up = ""
        self._patience_s = _patience_s()
        self._began = monotonic()
        self._failures: list[Failure] = []
        self._retried = 0
        self._undone = Undone(0)

    def give_back(self) -> Undone:
        try:
            _working.add(self)
            return self._begin_and_wait()
        finally:
            _working.discard(self)

    def _begin_and_wait(self) -> Undone:
        try:
            _thread.start_new_thread(self._run, ())
        except RuntimeError:  # the interpreter is ending and starts no threads any more
            self._run()
        return self._wait()

    def _run(self) -> None:
        retried = _core.thread_retries()
        try:
            if not self._begin():
                return
            failures = self._wait_for_devices()
            if not self._decide():
                return  # given up: the journal stays; its end tries again, if the device is idle by then
            self._waiting_for = ""
            if isinstance(self._what, _core.Undoing):
                self._failures, self._retried = failures, _core.thread_retries() - retried
                self._idle = True
                return
            report = self._what()
            self._undone = _undone(failures, report, _core.thread_retries() - retried)
        finally:
            self.finished = not self._idle
            self._wakes.release()

    def _wait_for_devices(self) -> list[Failure]:
        """hipMemUnmap does not synchronise."""
        failures = []
        for name, ordinal in self._devices.items():
            self._waiting_for = name
            try:
                self._live.runtime.synchronize(ordinal)
            except _core.HipError as error:
                identity = f"device '{name}'"
                failures.append(
                    Failure(name, identity, error.call, error.name, error.code, error.arguments, lost=False)
                )
        return failures

    def _undo_here(self) -> None:
        """May be interrupted at any instruction, and is called again then."""
        assert isinstance(self._what, _core.Undoing)
        self._what.run()
        self._undone = _undone(self._failures, self._what.report, self._retried + self._what.retried)
        self.finished = True

    def _decide(self) -> bool:
        try:
            self._decision.pop()
        except IndexError:
            return False
        return True

    def _wait(self) -> Undone:
        """Until all is given back, or the device was given up on."""
        interrupt: BaseException | None = None
        told = False
        while not self.finished and not self._given_up:
            try:
                if self._idle:
                    self._undo_here()
                    continue
                rest = self._began + self._patience_s - monotonic()
                self._wakes.acquire(timeout=max(0.05, rest))
                if self._waiting_for and self._overdue() and not told:
                    told = True
                    log.warning(_STILL_BUSY, self._waiting_for, self._patience_s)
            except BaseException as error:
                interrupt = interrupt or error
                log.warning("%s", self.hurry())
        if self._given_up:
            return Undone(0, self._all_stays(), interrupt=interrupt)
        return replace(self._undone, interrupt=interrupt)

    def hurry(self) -> str:
        busy = self._waiting_for
        if busy and self._overdue() and self._decide():
            self._given_up = f"device '{busy}' did not become idle"
            return f"{self._given_up}: giving up on it"
        what = f"waiting for device '{busy}'" if busy else "giving memory back"
        return f"still {what}: please wait, stopping now would lose memory"

    def _overdue(self) -> bool:
        return monotonic() - self._began >= self._patience_s

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


_STILL_BUSY = (
    "device '%s' is still busy after %g s; its memory cannot be given back before it is idle. "
    "Interrupt to give up on it"
)
_working: set[_Work] = set()
