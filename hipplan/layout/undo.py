"""Frees objects: waits for the devices that can access them, then frees what is retired, latest first.

The same for roll back, change and teardown. A failure does not stop the rest: it is reported by name. It is one native
call that cannot be interrupted; a native thread waits for the devices, so that the wait can be abandoned.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic_ns
from typing import Protocol

from hipplan import _core
from hipplan.errors import Diagnostic, LeakError, SettingError
from hipplan.machines.runtimes import IDLE_NOTICE_S, idle_notice_s


class UndoRecord(Protocol):
    """A recorder of what was released."""

    def undone(
        self, owned: Sequence[_core.Described], left: Sequence[_core.Described], undone: Undone, began_ns: int
    ) -> None: ...


log = logging.getLogger("hipplan")

STICKY = {
    "hipErrorDeinitialized",
    "hipErrorECCNotCorrectable",
    "hipErrorIllegalAddress",
    "hipErrorLaunchTimeOut",
    "hipErrorContextIsDestroyed",
    "hipErrorAssert",
    "hipErrorLaunchFailure",
}
"""After one of these errors every call on the device fails with it until the process ends."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An object or alteration that could not be undone, or a device that could not be waited for."""

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
    """An alteration of an object that stays, which could not be undone."""

    def diagnostic(self) -> Diagnostic:
        if self.is_change:
            summary, hint = f"{self.identity} could not be restored", "close the layout and apply the plan again"
            return Diagnostic("HP403", summary, hint=hint, notes=(self.driver,))
        summary = f"{self.identity} was not released" if self.lost else f"{self.identity} is not idle"
        hint = "it is freed when the process ends" if self.lost else "the device may be lost"
        return Diagnostic("HP403" if self.lost else "HP406", summary, hint=hint, notes=(self.driver,))

    @property
    def driver(self) -> str:
        return f"driver: {self.call}({self.arguments}) -> {self.error} ({self.code})"


@dataclass(frozen=True, slots=True)
class Undone:
    """The outcome of a roll back, the end of a change or a teardown."""

    count: int
    """Objects released."""
    failures: tuple[Failure, ...] = ()
    kept: tuple[str, ...] = ()
    """Names of objects that are kept until their views end, after close(force=True)."""
    restored: int = 0
    """Alterations of objects that stay, undone."""
    retries: int = 0
    """Calls repeated because the driver returned NotReady."""
    ranks: tuple[int, ...] = ()
    """Ranks that have not closed their shared layout, after close() has waited for them."""
    interrupt: BaseException | None = None
    """The exception of a signal during the wait (KeyboardInterrupt): the caller raises it at the end."""

    @property
    def leaks(self) -> tuple[str, ...]:
        """Names of what was lost."""
        return tuple(failure.name for failure in self.failures if failure.lost)

    def diagnostics(self) -> list[Diagnostic]:
        """One for each failure; a single one for all objects on a lost or busy device."""
        shared = [failure for failure in self.failures if failure.error in STICKY or not failure.call]
        if not shared:
            return [failure.diagnostic() for failure in self.failures]
        # Ranges that were not freed because a lost mapping is inside belong to the same failure.
        shared += [failure for failure in self.failures if failure.arguments.startswith("not called")]
        return [_for_all(shared), *(failure.diagnostic() for failure in self.failures if failure not in shared)]

    def and_then(self, other: Undone) -> Undone:
        """Both, one after the other."""
        return replace(
            other,
            count=self.count + other.count,
            failures=self.failures + other.failures,
            restored=self.restored + other.restored,
            interrupt=self.interrupt or other.interrupt,
        )

    def raise_failures(self) -> None:
        """Raises what interrupted it, or else LeakError, if an object was not released."""
        leaked = LeakError(self.diagnostics(), undone=self) if self.failures else None
        if self.interrupt is not None:
            raise self.interrupt from leaked
        if leaked is not None:
            raise leaked

    def __repr__(self) -> str:
        return f"<hipplan.Undone: {self.summary()}>"

    def summary(self) -> str:
        if not (self.count or self.failures or self.kept or self.restored or self.retries):
            return "there was nothing to release"
        left = f"{len(self.leaks)} leaked" if self.leaks else "nothing leaked"
        kept = f", {len(self.kept)} kept until their views end" if self.kept else ""
        again = f"; {retried_text(self.retries)}" if self.retries else ""
        return f"{self.count} of {self.count + len(self.leaks) + len(self.kept)} objects released, {left}{kept}{again}"


NOTHING = Undone(0)
"""There was nothing to release."""


def retried_text(count: int) -> str:
    """Says for reports how often calls were repeated."""
    return f"{count} call{'s' if count > 1 else ''} repeated because the driver returned NotReady"


def _for_all(failures: list[Failure]) -> Diagnostic:
    lost = [failure for failure in failures if failure.lost]
    names = f"not released: {', '.join(failure.name for failure in lost) or 'nothing'}"
    first = failures[0]
    hint = "the named objects are freed when the process ends"
    if not first.call:
        return Diagnostic("HP411", f"{first.error}; hipplan stopped waiting for it", hint=hint, notes=(names,))
    devices = [failure.identity for failure in failures if not failure.lost]
    are, them = ("are", "them") if len(devices) > 1 else ("is", "it")
    summary = f"{' and '.join(devices) or 'a device'} {are} lost, and {len(lost)} objects with {them}"
    why = f"after {first.error} every call on it fails until the process ends"
    return Diagnostic("HP410", summary, why=why, hint=hint, notes=(first.driver, names))


def free_retired(retired: _core.Retired, record: UndoRecord | None = None, *, waits_behind: bool = False) -> Undone:
    """Frees retired objects, except those with views. Driver errors are in the result, never raised.

    waits_behind: also for what is freed behind the caller, and reports what failed there. An exception of a signal
    during the wait is in the result, too.
    """
    if not retired.any and not (waits_behind and retired.behind):
        return NOTHING
    began = monotonic_ns()
    owned = retired.contents() if record else []
    report = _core.UndoReport()
    work = _core.UndoRun(retired, patience(), waits_behind)
    undone = _undone(work, report, work.run(report, _on_busy, _on_interrupt))
    if record:
        record.undone(owned, retired.contents(), undone, began)
    return undone


def _undone(work: _core.UndoRun, report: _core.UndoReport, interrupt: BaseException | None) -> Undone:
    if work.abandoned:
        given_up = f"device '{work.abandoned_device}' did not become idle"
        stays = [Failure(name, identity, "", given_up, 0, "", lost=True) for _, name, identity in work.left_over]
        return Undone(0, tuple(stays), interrupt=interrupt)
    failures = [
        Failure(name, f"device '{name}'", error.call, error.name, error.code, error.arguments, lost=False)
        for name, error in work.failures
    ]
    failures += _failures_in(report)
    kept = tuple(report.kept)
    return Undone(report.freed, tuple(failures), kept, report.restored, work.retried, interrupt=interrupt)


def log_behind(retired: _core.Retired, record: UndoRecord | None) -> None:
    """Logs what could not be freed behind the caller of an earlier change, and records it."""
    if not (owned := retired.behind):
        return
    began, report = monotonic_ns(), _core.UndoReport()
    retired.report_behind(report)
    left = retired.behind
    undone = undone_of(report)
    log_failures(undone)
    if record is not None and len(left) < len(owned):
        count = len(owned) - len(left) - len(undone.failures)
        record.undone(owned, left, replace(undone, count=count), began)


def wait_until_freed() -> None:
    """Waits for everything that this process frees behind a caller. Raises what a signal raises."""
    while not _core.wait_until_freed(_LOOK_S):
        pass


def undone_of(report: _core.UndoReport) -> Undone:
    """What a call has reported."""
    return Undone(report.freed, tuple(_failures_in(report)), restored=report.restored)


def log_failures(undone: Undone) -> None:
    """Logs the leaks of a call whose result is more important."""
    for failure in undone.diagnostics():
        log.error("%s", failure)


def _failures_in(report: _core.UndoReport) -> list[Failure]:
    return [
        Failure(
            leak.name, leak.identity, leak.call, leak.error, leak.code, leak.arguments,
            lost=True, is_change=leak.is_change,
        )
        for leak in report.leaks
    ]  # fmt: skip


def free_waiting() -> BaseException | None:
    """Frees objects that waited for views, if those have ended. Failures are logged, because the layout's caller has
    returned. Returns the exception of a signal, such as KeyboardInterrupt, for the caller to raise."""
    interrupt: BaseException | None = None
    for pool in _core.GrowingPool.left_over():  # first: its chunks are in a range of a layout
        pool.abandon()
    for retired in _waiting():
        if retired.waits:
            continue
        undone = free_retired(retired)
        if not undone.kept:
            _core.remove_waiting(retired)
        log_failures(undone)
        interrupt = interrupt or undone.interrupt
    return interrupt


def _waiting() -> list[_core.Retired]:
    """Retired objects of closed or destroyed layouts that wait for views."""
    waiting: list[_core.Retired] = []
    for place in range(_core.waiting()):  # mostly none: ending the loop by IndexError would cost each apply 0.1 ms
        with contextlib.suppress(IndexError):  # another thread was quicker
            waiting.append(_core.Retired(place))
    return waiting


def wait_until_idle(runtime: _core.Runtime, devices: Mapping[str, int]) -> None:
    """Waits for devices. Raises HipError; and what a signal raises, at once, because nothing is lost then."""
    waiting = _core.IdleWait(runtime, [*devices.values()])
    patience_s = max(_LOOK_S, patience())
    if not waiting.wait(patience_s) and (busy := waiting.busy) is not None:
        log.warning("device '%s' is still busy after %g s; the change waits for it", [*devices][busy], patience_s)
    while not waiting.wait(patience_s):
        pass
    for _, error in waiting.failures:
        raise error


def report_leaks(lines: Sequence[str]) -> None:
    """Reports leaks of layouts that were dropped without close()."""
    for line in lines:
        log.error("not released: %s", line)


def answer_interrupt() -> str:
    """Handles an interrupt while objects are freed: abandons the wait for a device that has been busy for too long.

    Returns a message for the user; empty if no objects are being freed.
    """
    return "; ".join(_answer_about(work) for work in _core.UndoRun.active() if not work.finished)


def _answer_about(work: _core.UndoRun) -> str:
    busy = work.busy
    if busy is not None and work.overdue and work.abandon_wait():
        return f"device '{busy}' did not become idle: no longer waiting for it"
    what = f"waiting for device '{busy}'" if busy is not None else "releasing memory"
    return f"still {what}: please wait, stopping now would lose memory"


def _on_interrupt() -> None:
    if message := answer_interrupt():  # empty if everything was freed meanwhile
        log.warning("%s", message)


def _on_busy(device: str) -> None:
    text = "device '%s' is still busy after %g s; its memory cannot be released before it is idle"
    if threading.current_thread() is threading.main_thread():  # only the main thread gets interrupts
        text += ". Interrupt to stop waiting for it"
    log.warning(text, device, patience())


def patience() -> float:
    """Seconds after which a busy device is reported, and an interrupt ends the wait for it. HIPPLAN_IDLE_NOTICE."""
    try:
        return idle_notice_s()
    except SettingError:  # changed since the runtime was chosen: an undo must not fail because of it
        return IDLE_NOTICE_S


_LOOK_S = 0.05
