"""Apply a program as a transaction: all steps, verified, or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from time import perf_counter_ns
from typing import Any, NoReturn

from hipplan import _core, open_layouts
from hipplan.content_steps import check_files
from hipplan.errors import ApplyError, Diagnostic
from hipplan.layout import Layout
from hipplan.live import Live, OnBytes, bindings, described, native_steps
from hipplan.places import family_of
from hipplan.program import Program
from hipplan.record import Recorder
from hipplan.shortages import shortage
from hipplan.steps import Step
from hipplan.undo import Undone, retried_text, tell_leaks, undo
from hipplan.verify import Checks, verify

OnStep = Callable[[int, Step], None]
"""Called before each step with its number from 0. What it raises rolls back: the CLI's signals come this way."""

_HINTS = {
    "hipErrorInvalidValue": "this runtime refuses the arguments; `hipplan machine` shows what it can do",
    "hipErrorNotSupported": "this runtime lacks the feature; see docs/hardware.md",
    "hipErrorInsufficientDriver": "the kernel's driver is too old for this runtime: update it, or use an older ROCm",
    "hipErrorNoDevice": "no device is visible: look at the visibility variables, and at who may open /dev/kfd",
    "hipErrorNotInitialized": "the runtime did not start: look at `hipplan machine` and at the kernel's log",
    "hipErrorContextAlreadyInUse": "another process has the device to itself: wait for it, or choose another device",
    "hipErrorInvalidDevice": "look at `hipplan machine` and the visibility variables",
}


def run(
    program: Program,
    runtime: _core.Runtime,
    *,
    bind: Mapping[str, Any] | None = None,
    on_step: OnStep | None = None,
    on_bytes: OnBytes | None = None,
    check: bool = True,
    notice: str = "",
    record: Recorder | None = None,
) -> Layout:
    """Makes every step, reads back, and hands out the layout.

    Raises ApplyError after rolling back: a driver call failed (HP401), what was read back differs (HP402),
    an address or a binding is not there (HP404, HP405). Any other exception rolls back and goes on.
    """
    if (interrupt := open_layouts.give_back()) is not None:
        raise interrupt
    if record is not None:
        record.begin(program, described(runtime))
    live = Live(runtime, bindings(bind), program.devices.values(), record)
    making = Making(live, len(program.steps), on_step)
    try:
        live.on_bytes = on_bytes
        check_files(program.contents, live.files)
        making.make(program.steps, native_steps(program))
        checks = read_back(program, live) if check else ()
        return Layout(program, live, checks, notice, making.retries)
    except BaseException as error:
        if record is not None:
            record.failed(error)
        making.stop(error)
        undone = undo(program, live)
        if record is not None:
            record.end()
        raise_undone(error, making, undone)
    finally:
        live.files.close()
        live.on_bytes = None


class Making:
    """Makes steps one by one, and knows where it is."""

    def __init__(self, live: Live, total: int, on_step: OnStep | None) -> None:
        self.live = live
        self.total = total
        self.on_step = on_step
        self.number = 0
        """Of the step under way, from 0."""
        self.step: Step | None = None
        """The step under way."""
        tell_leaks(_core.take_leaks_here())  # what is in the log at the end is of this
        self._retries_before = _core.thread_retries()
        self._retries_after: int | None = None
        self.hint = ""
        """What to do about the driver call that failed."""

    @property
    def retries(self) -> int:
        """Calls that were made again, because the driver said NotReady."""
        after = _core.thread_retries() if self._retries_after is None else self._retries_after
        return after - self._retries_before

    def stop(self, error: BaseException) -> None:
        """Nothing more is made, because of an error: what this thread calls again from here on is the roll back's."""
        self._retries_after = _core.thread_retries()
        if isinstance(error, _core.HipError):
            self.hint = _HINTS.get(error.name, "")
            if error.name == "hipErrorOutOfMemory":
                size = getattr(self.step, "size", 0)
                self.hint = shortage(error.call, size, family_of(self.live.runtime.path))

    def make(self, steps: tuple[Step, ...], native: _core.NativeSteps | None = None) -> None:
        """Makes these steps. Raises what the one raises that fails.

        native: the same steps; what it can is done natively then, if nobody looks between the steps.
        """
        first = self.number
        run = self.live.native_run(native) if native is not None and self.on_step is None else None
        while self.number - first < len(steps):
            if run is not None:
                self.step = None  # what a signal's handler raises meanwhile is no step's
                done, error = run.go_on(self.number - first)
                self.number += done
                if error is not None:
                    self.step = steps[self.number - first]
                    try:
                        raise error
                    finally:
                        del error  # see raise_undone
                if self.number - first == len(steps):
                    break
            self.step = steps[self.number - first]
            if self.on_step is not None:
                self.live.call_back(self.on_step, self.number, self.step)
            self.live.make(self.step)
            self.number += 1
        self.step = None


def read_back(program: Program, live: Live) -> Checks:
    """Compares what was made with the program. Raises HipError, and ApplyError (HP402) if it differs."""
    began = perf_counter_ns()
    checks = verify(program, live)
    wrong = checks.mismatches()
    if live.record is not None:
        live.record.verified(len(checks), wrong, perf_counter_ns() - began)
    if wrong:
        raise ApplyError([_mismatch(one.name, one.what, one.desired, one.current) for one in wrong])
    return checks


def raise_undone(error: BaseException, making: Making, undone: Undone) -> NoReturn:
    """Raises what stopped the making, with what was undone in it."""
    failed = error  # which there is whatever interrupts the next line
    try:
        failed = _failed(error, making, undone)
        if undone.interrupt is not None and isinstance(failed, Exception):
            raise undone.interrupt from failed  # ^C during a roll back: the roll back is done
        if failed is error:
            raise error
        raise failed from error
    finally:  # a circle of errors and frames would hold what the caller has bound until a garbage collection
        making.live.callers_own = None
        del error, failed


def _failed(error: BaseException, making: Making, undone: Undone) -> BaseException:
    """The error to raise: ours with what was undone in it, anybody else's as it is."""
    step = making.step
    callers_own = error is making.live.callers_own
    notes = (f"retried: {retried_text(making.retries)}",) if making.retries else ()
    notes = (*notes, f"undone: {undone.summary()}")
    changed = tuple(_core.take_leaks_here())  # else nobody hears of them
    notes = (*notes, *(f"not as it was: {line}" for line in changed))
    if isinstance(error, _core.HipError) and not callers_own:
        found = [_driver_failure(error, making, notes)]
        call, code = error.call, error.code
    elif isinstance(error, ApplyError):
        found = [*error.diagnostics[:-1], _with_notes(error.diagnostics[-1], notes)]
        call, code = "", 0
    elif isinstance(error, (OSError, ValueError)) and step is not None and not callers_own:  # a file to register
        found = [Diagnostic("HP405", f"'{step.name}': {error}", step.origin, notes=notes)]
        call, code = "", 0
    else:
        found = undone.diagnostics()
        if changed:
            found.append(Diagnostic("HP403", "something is not as it was", notes=changed))
        if found:
            error.__cause__ = ApplyError(found, undone=undone, not_as_it_was=changed)
        return error
    found += undone.diagnostics()
    name = step.name if step is not None else ""
    return ApplyError(found, step=name, call=call, code=code, undone=undone, not_as_it_was=changed)


def _driver_failure(error: _core.HipError, making: Making, notes: tuple[str, ...]) -> Diagnostic:
    step = making.step
    if step is None:
        summary, origin, where = f"reading back failed: {error.subject}", None, "step: read back"
    else:
        summary = f"{error.call} failed for '{step.name}'"
        origin = step.origin
        where = f"step: {making.number + 1} of {making.total}, {step.call} {step.name}: {step.describe()}"
    driver = f"driver: {error.call}({error.arguments}) -> {error.name} ({error.code})"
    return Diagnostic("HP401", summary, origin, why=error.subject, hint=making.hint, notes=(driver, where, *notes))


def _mismatch(name: str, what: str, desired: str, current: str) -> Diagnostic:
    return Diagnostic(
        "HP402",
        f"'{name}' is not as the plan says: {what}",
        notes=(f"- desired: {desired}", f"+ current: {current}"),
    )


def _with_notes(diagnostic: Diagnostic, notes: tuple[str, ...]) -> Diagnostic:
    return replace(diagnostic, notes=(*diagnostic.notes, *notes))
