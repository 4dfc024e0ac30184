"""What the caller of apply passes by name (`bind=`): memory for registered buffers, descriptors for allocations."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from hipplan import _core
from hipplan.errors import ApplyError, Diagnostic, reason_of, suggest_or_list
from hipplan.kinds.live import Buffer
from hipplan.layout.holding import live
from hipplan.layout.state import State
from hipplan.plain import called, counted, number, shown
from hipplan.program.program import Program
from hipplan.program.refusals import refuse
from hipplan.program.steps import Step

if TYPE_CHECKING:
    from hipplan.language.loader import LoadedPlan

Bound = dict[int, tuple[Any, int]]
"""Number of a step -> a descriptor, or memory and its bytes."""


def bindings(bind: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a caller passed as `bind`. Raises TypeError."""
    if bind is not None and not isinstance(bind, Mapping):
        raise TypeError(f"bind is a mapping of names to memory or descriptors, not {type(bind).__name__}")
    return dict(bind or {})


def bindings_for(plan: LoadedPlan, bind: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a caller passed as `bind` for this plan. Raises TypeError; ApplyError (HP405) for names that no object of
    the plan binds, in the part of any rank."""
    passed = bindings(bind)
    if not passed:
        return passed
    specs = (*plan.plan.allocations.values(), *plan.plan.buffers.values())
    known = dict.fromkeys(name for spec in specs if (name := getattr(spec, "bind", None)) is not None)
    unknown = [name for name in passed if name not in known]
    if unknown:
        raise ApplyError([_nothing_binds(name, known) for name in unknown])
    return passed


def _nothing_binds(name: object, known: Iterable[str]) -> Diagnostic:
    hint = f"{suggest_or_list(name, known)}; bind= takes the names that stand after bind: in the plan"
    return Diagnostic("HP405", f"nothing in the plan has bind: '{shown(name)}'", hint=hint)


def still_needed(passed: Mapping[str, Any], program: Program) -> dict[str, Any]:
    """The passed objects that the program uses."""
    used = {step.passed_as for step in program.bindings}
    return {name: given for name, given in passed.items() if name in used}


def bound(steps: Sequence[Step], passed: Mapping[str, Any], there: State, gone: Set[str]) -> Bound:
    """The passed objects of each step. Raises ApplyError (HP405, HP420) for the step whose object does not fit.

    there: the layout's state. gone: names of objects that a change frees.
    """
    bound_steps: Bound = {}
    memory: dict[str, range] = {}
    for place, step in enumerate(steps):
        if not step.passed_as:
            continue
        try:
            if not isinstance(step, Buffer):
                bound_steps[place] = _descriptor(step, passed), 0
                continue
            address, size = memory_of(step, passed)
            here = range(address, address + size)
            _require_unregistered(step, here, memory)
            _require_unregistered_there(step, here, there, gone)
            _require_unregistered_elsewhere(step, here, there)
            memory[step.name] = here
            bound_steps[place] = passed[step.passed_as], size
        except ApplyError as error:
            error.step = step.name
            raise
    return bound_steps


def rebound(state: State, passed: Mapping[str, Any]) -> frozenset[str]:
    """Names of objects made from what the caller passed, for which the caller now passes something else."""
    return frozenset(step.name for step in state.program.bindings if _is_rebound(step, state, passed))


def _is_rebound(step: Step, state: State, passed: Mapping[str, Any]) -> bool:
    if step.passed_as not in passed:
        return False
    if not isinstance(step, Buffer):
        return True  # descriptors cannot be compared: numbers are reused, and drivers' files share one inode
    try:
        return memory_of(step, passed) != (state.address_of(step.name), state.size_of(step.name))
    except ApplyError:  # reported where it is registered
        return True


def memory_of(step: Buffer, passed: Mapping[str, Any]) -> tuple[int, int]:
    """Address and bytes of what was passed for a buffer. ApplyError HP405 if it does not fit."""
    what = f"what is bound to '{step.passed_as}'"
    try:
        given = memoryview(_passed(step, passed))
    except (BufferError, TypeError, ValueError) as error:
        hint = "pass an object with the buffer protocol, such as a NumPy array"
        raise ApplyError(Diagnostic("HP405", f"{what} is not memory", step.origin, why=str(error), hint=hint)) from None
    size, hint = given.nbytes, ""
    if not given.c_contiguous:
        wrong, hint = "its elements are not contiguous", "pass a copy: numpy.ascontiguousarray(it)"
    elif step.size > size or size == 0:
        wrong = f"it has {counted(size, 'byte')}"
    elif given.readonly and not step.read_only:
        wrong, hint = "it is read-only", "pass writable memory, such as a bytearray, or write read_only: true"
    else:
        address = _core.buffer_address(given)
        given.release()
        return address, step.size or size
    given.release()
    raise ApplyError(Diagnostic("HP405", f"{what} does not fit '{step.name}': {wrong}", step.origin, hint=hint))


def _passed(step: Step, passed: Mapping[str, Any]) -> Any:
    """ApplyError HP405 if nothing was passed for the step."""
    name = step.passed_as
    if name in passed:
        return passed[name]
    summary = f"nothing is bound to '{name}', which '{step.name}' needs"
    hint = f"pass bind={{'{name}': ...}} to hipplan.apply"
    raise ApplyError(Diagnostic("HP405", summary, step.origin, hint=hint))


def _descriptor(step: Step, passed: Mapping[str, Any]) -> int:
    """The passed descriptor of an allocation. Raises ApplyError (HP405) if it is not open.

    It does not leave the check to the driver: HIP 7.1 may read the number as a pointer.
    """
    given = number(_passed(step, passed))
    if given.__class__ is not int:
        wrong = f"it is {called(given)}, not a file descriptor"
    else:
        try:
            os.fstat(given)
            return int(given)
        except (OSError, OverflowError) as error:
            wrong = f"descriptor {given}: {reason_of(error)}"
    summary = f"what is bound to '{step.passed_as}' does not fit '{step.name}': {wrong}"
    hint = "pass what Layout.export() gave, sent from the other process over a Unix socket"
    raise ApplyError(Diagnostic("HP405", summary, step.origin, hint=hint))


def _overlap(first: range, second: range) -> bool:
    return first.start < second.stop and second.start < first.stop


_ONCE = "register memory once, and view parts of it"


def _require_unregistered(step: Buffer, memory: range, others: Mapping[str, range], of: str = "") -> None:
    """ApplyError HP405 for memory that is registered twice: runtimes end both registrations at the first unregister.
    of: whose the others are."""
    for name, other in others.items():
        if _overlap(memory, other):
            there = f"it is registered as '{name}'{of}"
            summary = f"what is bound to '{step.passed_as}' does not fit '{step.name}': {there}"
            raise ApplyError(Diagnostic("HP405", summary, step.origin, hint=_ONCE))


def _require_unregistered_there(step: Buffer, memory: range, there: State, gone: Set[str]) -> None:
    """ApplyError HP420 if the memory is registered already, which runtimes do not count."""
    for name, other in _registered(there).items():
        if _overlap(memory, other):
            until = " until the end of the change" if name in gone else ""
            summary = f"the memory of '{step.name}' is registered as '{name}'{until}"
            raise refuse(summary, hint="remove it in one update and add it in the next" if until else _ONCE)


def _require_unregistered_elsewhere(step: Buffer, memory: range, there: State) -> None:
    """ApplyError HP405 if another layout of this process has registered the memory."""
    for layout in live():
        state = layout.state
        if state is there or not state.program.bindings:
            continue
        try:
            others = _registered(state)
        except IndexError:  # it is being closed in another thread
            continue
        _require_unregistered(step, memory, others, f" by the layout '{state.program.name}'")


def _registered(state: State) -> dict[str, range]:
    """The addresses of a layout's memory that its caller has passed, by name."""
    buffers = [step.name for step in state.program.bindings if not step.is_import]
    starts = {name: state.address_of(name) for name in buffers}
    return {name: range(start, start + state.size_of(name)) for name, start in starts.items()}
