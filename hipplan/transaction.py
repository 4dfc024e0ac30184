"""Apply a program as a transaction: all steps, verified, or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from hipplan import _core
from hipplan.errors import ApplyError, Diagnostic
from hipplan.layout import Layout
from hipplan.live import Live
from hipplan.program import Program
from hipplan.steps import Step
from hipplan.undo import Undone, retried_text, undo
from hipplan.verify import verify

OnStep = Callable[[int, Step], None]
"""Called before each step with its number from 0. What it raises rolls back: the CLI's signals come this way."""

_HINTS = {
    "hipErrorOutOfMemory": "free memory on the device, or make the plan smaller",
    "hipErrorInvalidValue": "this runtime refuses the arguments; `hipplan machine` shows what it can do",
    "hipErrorNotSupported": "this runtime lacks the feature; see docs/hardware.md",
    "hipErrorInvalidDevice": "look at `hipplan machine` and the visibility variables",
}


def run(
    program: Program,
    runtime: _core.Runtime,
    *,
    bind: Mapping[str, Any] | None = None,
    on_step: OnStep | None = None,
    check: bool = True,
    notice: str = "",
) -> Layout:
    """Makes every step, reads back, and hands out the layout.

    Raises ApplyError after rolling back: a driver call failed (HP401), what was read back differs (HP402),
    an address or a binding is not there (HP404, HP405). Any other exception rolls back and goes on.
    """
    live = Live(runtime, bind or {}, program.devices.values())
    step: Step | None = None
    number = 0
    retried = _core.thread_retries()
    try:
        steps = program.steps
        while number < len(steps):
            if on_step is None:  # nobody looks between the steps: native, as far as it goes
                done, error = live.run_steps(steps, number)
                number += done
                if error is not None:
                    step = steps[number]
                    raise error
                if number == len(steps):
                    break
            step = steps[number]
            if on_step is not None:
                on_step(number, step)
            step.do(live)
            number += 1
        step = None
        checks = verify(program, live) if check else None
        if checks is not None and (wrong := checks.mismatches()):
            raise ApplyError([_mismatch(one.name, one.what, one.desired, one.current) for one in wrong])
        retried = _core.thread_retries() - retried
        return Layout(program, live, () if checks is None else checks, notice, retried)
    except BaseException as error:
        retried = _core.thread_retries() - retried
        undone = undo(program, live)
        failed = _failed(error, program, step, number, undone, retried)
        if undone.interrupt is not None and isinstance(failed, Exception):
            raise undone.interrupt from failed  # ^C during a roll back: the roll back is done
        if failed is error:
            raise
        raise failed from error


def _failed(
    error: BaseException, program: Program, step: Step | None, number: int, undone: Undone, retried: int
) -> BaseException:
    """The error to raise: ours with what was undone in it, anybody else's as it is."""
    notes = (f"retried: {retried_text(retried)}",) if retried else ()
    notes = (*notes, f"undone: {undone.summary()}")
    if isinstance(error, _core.HipError):
        found = [_driver_failure(error, program, step, number, notes)]
        call, code = error.call, error.code
    elif isinstance(error, ApplyError):
        found = [*error.diagnostics[:-1], _with_notes(error.diagnostics[-1], notes)]
        call, code = "", 0
    elif isinstance(error, (OSError, ValueError)) and step is not None:  # a file to register
        found = [Diagnostic("HP405", f"'{step.name}': {error}", step.origin, notes=notes)]
        call, code = "", 0
    else:
        if undone.failures:
            error.__cause__ = ApplyError(undone.diagnostics(), undone=undone)
        return error
    found += undone.diagnostics()
    name = step.name if step is not None else ""
    return ApplyError(found, step=name, call=call, code=code, undone=undone)


def _driver_failure(
    error: _core.HipError, program: Program, step: Step | None, number: int, notes: tuple[str, ...]
) -> Diagnostic:
    if step is None:
        summary, origin, where = f"reading back failed: {error.subject}", None, "step: read back"
    else:
        summary = f"{error.call} failed for '{step.name}'"
        origin = step.origin
        where = f"step: {number + 1} of {len(program.steps)}, {step.call} {step.name}: {step.describe()}"
    driver = f"driver: {error.call}({error.arguments}) -> {error.name} ({error.code})"
    return Diagnostic(
        "HP401", summary, origin, why=error.subject, hint=_HINTS.get(error.name, ""), notes=(driver, where, *notes)
    )


def _mismatch(name: str, what: str, desired: str, current: str) -> Diagnostic:
    return Diagnostic(
        "HP402",
        f"'{name}' is not as the plan says: {what}",
        notes=(f"- desired: {desired}", f"+ current: {current}"),
    )


def _with_notes(diagnostic: Diagnostic, notes: tuple[str, ...]) -> Diagnostic:
    return replace(diagnostic, notes=(*diagnostic.notes, *notes))
