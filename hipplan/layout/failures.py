"""Diagnostics for failures of a change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hipplan import _core
from hipplan.errors import ApplyError, Diagnostic, reason_of
from hipplan.machines.family import family_of
from hipplan.machines.shortages import shortage
from hipplan.program.checks import Check
from hipplan.program.steps import Step

_HINTS = {
    "hipErrorInvalidValue": "this runtime refuses the arguments; `hipplan machine` shows what it can do",
    "hipErrorNotSupported": "this runtime lacks the feature; see docs/hardware.md",
    "hipErrorInsufficientDriver": "the kernel's driver is too old for this runtime: update it, or use an older ROCm",
    "hipErrorNoDevice": "no device is visible: check the visibility variables, and the permissions of /dev/kfd",
    "hipErrorNotInitialized": "the runtime did not start: check `hipplan machine` and the kernel's log",
    "hipErrorContextAlreadyInUse": "another process has exclusive use of the device: wait, or choose another",
    "hipErrorHostMemoryAlreadyRegistered": "register memory once, and view parts of it",
    "hipErrorInvalidDevice": "check `hipplan machine` and the visibility variables",
}
"""Error of a driver call -> what to do about it."""


def hint_for(error: _core.HipError, step: Step | None, runtime: _core.Runtime) -> str:
    """What to do about it."""
    if error.name == "hipErrorOutOfMemory":
        is_placed = bool(getattr(step, "address", 0) or getattr(step, "alignment", 0))
        return shortage(error.call, getattr(step, "size", 0), family_of(runtime.path), is_placed=is_placed)
    return _HINTS.get(error.name, "")


def reasons_of(
    error: BaseException, step: Step | None, number: str, hint: str, notes: tuple[str, ...]
) -> list[Diagnostic]:
    """Why a change stopped; empty for an error that is not hipplan's. As of refused(); notes: of the last reason."""
    if isinstance(error, _core.HipError):
        return [refused(error, step, number, hint, notes)]
    if isinstance(error, ApplyError):
        *others, last = error.diagnostics
        return [*others, replace(last, notes=(*last.notes, *notes))]
    if isinstance(error, (OSError, ValueError)) and step is not None:  # a file to register
        return [unusable_memory(step, error, notes)]
    return []


def refused(error: _core.HipError, step: Step | None, number: str, hint: str, notes: tuple[str, ...]) -> Diagnostic:
    """HP401: a driver call failed. step: the one under way, or None while reading back; number: the step's, as text."""
    if step is None:
        summary, origin, where = f"reading back failed for {error.subject}", None, "step: read back"
    else:
        summary, origin = f"{error.call} failed for '{step.name}'", step.origin
        where = f"step: {number}, {step.call} {step.name}: {step.describe()}"
    driver = f"driver: {error.call}({error.arguments}) -> {error.name} ({error.code})"
    why = "" if step is None else error.subject
    return Diagnostic("HP401", summary, origin, why=why, hint=hint, notes=(driver, where, *notes))


def unusable_memory(step: Step, error: OSError | ValueError, notes: tuple[str, ...]) -> Diagnostic:
    """HP405: the file or the pages of a registered buffer cannot be had."""
    path = getattr(step, "file", "")
    hint = f"its absolute path is {Path(path).absolute()}" if isinstance(error, FileNotFoundError) else ""
    return Diagnostic("HP405", f"'{step.name}': {reason_of(error)}", step.origin, hint=hint, notes=notes)


def mismatch(check: Check) -> Diagnostic:
    """HP402: a value read back differs from the plan."""
    notes = f"- desired: {check.desired}", f"+ current: {check.current}"
    return Diagnostic("HP402", f"'{check.name}' differs from the plan: {check.what}", notes=notes)
