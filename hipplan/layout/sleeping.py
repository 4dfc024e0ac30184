"""Sleep and wake of a live layout: checks that only the driver can answer, and callbacks."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

from hipplan import _core
from hipplan.errors import ApplyError, LayoutInUse, MachineError, driver_failure, suggest
from hipplan.files.open_by import open_by
from hipplan.files.output import unwritten
from hipplan.files.places import NameInFolder
from hipplan.language.findings import Findings
from hipplan.layout import update
from hipplan.layout.holding import Holding
from hipplan.layout.options import OnBytes, Options
from hipplan.layout.probe import frees_at_once
from hipplan.layout.state import State
from hipplan.layout.undo import wait_until_freed
from hipplan.lowering.lowered import lower, require_way_back
from hipplan.machines.family import family_of
from hipplan.plain import called
from hipplan.program import away, patterns, peak, sleepers, sleeping, steps
from hipplan.program.alterations import cannot_sleep, no_room_to_wake, refuse, refuse_asleep
from hipplan.program.backups import DROP, FILE, HOST, MAPPED
from hipplan.program.content_steps import Save
from hipplan.program.difference import Difference
from hipplan.program.program import Program
from hipplan.program.runs import MemoryRun, Run, alike
from hipplan.program.series import segments
from hipplan.program.sleeping_bytes import plan_name_of

log = logging.getLogger("hipplan")

Answer = TypeVar("Answer")
Names = str | Iterable[str]
OnNames = Callable[[tuple[str, ...]], object]
"""Called with the names that were passed to sleep()."""


ABLE: Names = ("*",)
"""This very object stands for everything that can sleep; the pattern refuses if anything cannot."""


class How(NamedTuple):
    """Arguments of layout.sleep()."""

    to: str | os.PathLike[str]
    unchanged: Names
    checksum: bool | None
    """None: where the backup is a file."""
    force: bool


def sleep(
    holding: Holding,
    names: Names,
    how: How,
    *,
    on_unmap: OnNames | None,
    on_map: OnNames | None,
    on_bytes: OnBytes | None,
) -> Difference:
    """layout.sleep()."""
    program = holding.state.program
    given, unchanged = listed(names), listed(how.unchanged)
    kind, file = _place(how.to)
    if kind == MAPPED and (unchanged or how.checksum):
        what = "unchanged" if unchanged else "checksum"
        raise refuse(f"{what}= is about a copy, and memory that stays mapped has none", hint=f"leave {what} out")
    wanted = sleepers.able(program, kind) if names is ABLE else patterns.chosen(program, given, *sleepers.KINDS)
    same = patterns.chosen(program, unchanged, *sleepers.KINDS)
    checked = kind == FILE if how.checksum is None else how.checksum
    notified: list[State] = []

    def find_change(state: State, _: update.Meet) -> Difference:
        difference = sleeping.falls_asleep(state.program, wanted, to=kind, file=file, unchanged=same, checked=checked)
        if not difference.empty:
            lowering = lower(difference, state.lowered)
            if kind != MAPPED:
                require_way_back(lowering, wanted)
            _require_writable(difference)
            _require_alone(state, difference)
            require_host_memory(lowering.lowered)
            _require_freed_at_once(holding, state, difference)
            if on_unmap is not None:
                notified.append(state)
                on_unmap(wanted)
                if holding.state is not state:
                    raise refuse("on_unmap changed the layout", hint="change the layout before sleep()")
        return difference

    if on_map is not None:
        holding.on_map[wanted] = on_map
    try:
        return update.change(holding, "sleep", find_change, options=Options(on_bytes=on_bytes, force=how.force))
    except BaseException as error:
        if not any(_sleeps(holding.state.program, name) for name in wanted):
            holding.on_map.pop(wanted, None)
            if notified and on_map is not None:
                _call_despite_failure(on_map, wanted)
        if isinstance(error, LayoutInUse):
            raise LayoutInUse(holding.under_way.explained(replace(error.diagnostics[0], hint=_FORCE))) from None
        raise
    finally:
        notified.clear()


def _place(to: str | os.PathLike[str]) -> tuple[str, str]:
    """Where bytes go, and the path of a file: one for each file, whatever links lead to its folder.

    Raises ValueError, TypeError, ApplyError.
    """
    if to in (HOST, DROP, MAPPED):
        return str(to), ""
    if not (path := os.fsdecode(to)):
        raise ValueError("to is 'host', 'mapped', 'drop' or the path of a file")
    if "/" not in path and (meant := suggest(path, (HOST, MAPPED, DROP))):
        raise refuse(f"sleep cannot put bytes to '{path}'", hint=f"{meant} A file of that name is ./{path}")
    if path.endswith((".npy", ".safetensors", ".index.json")):
        raise refuse(f"{path} would hold raw bytes, but its extension names another format", hint="name it .bin")
    try:
        with NameInFolder(path) as place:
            return FILE, place.resolved
    except (OSError, ValueError) as error:
        raise ApplyError(unwritten(path, "", error)) from None


def wake(holding: Holding, names: Names | None, *, retain: bool, on_bytes: OnBytes | None) -> Difference:
    """layout.wake()."""
    wanted = None if names is None else patterns.chosen(holding.state.program, listed(names), *sleepers.KINDS)

    def wakes(state: State, _: update.Meet) -> Difference:
        difference = sleeping.wakes_up(state.program, wanted, retain=retain)
        _require_room(state, difference)
        return difference

    def comes_home(state: State, _: update.Meet) -> Difference:
        difference = away.comes_home(state.program, sleepers.units_away(state.program, wanted), retain=retain)
        _require_room(state, difference)
        return difference

    try:
        program = holding.state.program
        is_mapped = bool(sleepers.units_away(program, wanted))
        changes = [comes_home] if is_mapped else [wakes]
        if is_mapped and sleepers.units_asleep(program, wanted):
            changes = [wakes, comes_home]
        options = Options(on_bytes=on_bytes)
        done = [update.change(holding, "wake", find_change, options=options) for find_change in changes]
        return done[0]
    finally:
        _call_on_map(holding)


def _sleeps(program: Program, name: str) -> bool:
    return program.sleeps(name) or program.is_away(name)


def asleep(program: Program) -> dict[str, str]:
    """layout.asleep"""
    there = (resource for resource in program.outer if resource.asleep and "#" not in resource.name)
    return {resource.name: resource.asleep for resource in there if resource.kind in ("region", "allocation")} | {
        plan_name_of(program, memory): MAPPED for memory in program.away
    }


def require_awake(program: Program, names: Iterable[str]) -> None:
    """Raises ApplyError (HP441)."""
    for name in names:
        if program.sleeps(name):
            raise refuse_asleep(name)


_FORCE = (
    "first delete the arrays and tensors made from it, or call sleep(force=True): any use of them, or of a "
    "captured graph, then faults the GPU until wake()"
)


def listed(names: Names) -> tuple[str, ...]:
    """One name or several. Raises TypeError."""
    if not isinstance(names, Iterable):
        raise TypeError(f"expected one name or several, not {called(names)}")
    wanted = (names,) if isinstance(names, str) else tuple(names)
    for name in wanted:
        if not isinstance(name, str):
            raise TypeError(f"a name is text, not {called(name)}")
    return wanted


def _call_on_map(holding: Holding) -> None:
    """Calls the on_map of sleep() for memory that is restored."""
    for wanted, on_map in list(holding.on_map.items()):
        if not any(_sleeps(holding.state.program, name) for name in wanted):
            del holding.on_map[wanted]
            if holding.state.resources.keys() >= {*wanted}:  # else an update took something away
                on_map(wanted)


def _call_despite_failure(on_map: OnNames, wanted: tuple[str, ...]) -> None:
    try:
        on_map(wanted)
    except Exception as error:  # the caller is raising a more important error
        log.error("on_map raised %s: %s", type(error).__name__, error)


def _require_alone(state: State, change: Difference) -> None:
    """Raises HP440 for memory that another process may have."""
    if not any(isinstance(step, steps.CreateAllocation) and step.shareable != "none" for step, _ in alike(change.gone)):
        return
    made = (step for step in change.gone if isinstance(step, steps.CreateAllocation) and step.shareable != "none")
    for step in made:
        if state.snapshot.shared(state.slot(step.name)):
            why = "it was exported: a process that holds its descriptor or maps it keeps the memory"
            if users := _users(state, step.name):
                why = f"it was exported, and {users} its descriptor open"
            hint = "apply the plan again after they have ended"
            raise cannot_sleep(plan_name_of(change.old, step.name), why, hint)


def _users(state: State, memory: str) -> str:
    """The processes with a descriptor of exported memory, and "has" or "have"; empty if none is visible."""
    try:
        descriptor = state.snapshot.share(state.slot(memory))
    except (OSError, _core.HipError):
        return ""
    try:
        users = open_by(descriptor)
    finally:
        os.close(descriptor)
    return f"{', '.join(users)} {'has' if len(users) == 1 else 'have'}" if users else ""


def _require_writable(change: Difference) -> None:
    """Raises ApplyError (HP413, HP416) now where the file of a backup could not be replaced later."""
    for step in change.contents:
        if isinstance(step, Save):
            try:
                with NameInFolder(step.file) as place:
                    place.require_ours(private=True)
            except OSError as error:
                raise ApplyError(unwritten(step.file, "", error)) from None


def require_host_memory(change: Difference) -> None:
    """HP303. Where host memory is made, waits for that which is being freed, and raises what a signal raises."""
    if any(isinstance(step, steps.CreatePinnedBuffer) or _is_on_host(step) for step, _ in alike(change.additions)):
        wait_until_freed()
    findings = Findings()
    if change.old.measured is not None:
        peak.check(change, change.old.measured, findings)
    if findings.errors:
        raise MachineError(findings.all)


def _is_on_host(step: steps.Step) -> bool:
    return isinstance(step, steps.CreateAllocation) and step.location != "device"


def _require_freed_at_once(holding: Holding, state: State, change: Difference) -> None:
    """Raises HP440 if this HIP frees memory only with its range of addresses."""
    if memory := kept_with_its_range(holding, state, change):
        raise cannot_sleep(plan_name_of(change.old, memory), *KEPT_WITH_ITS_RANGE)


def kept_with_its_range(holding: Holding, state: State, change: Difference) -> str:
    """An allocation that goes, but whose memory this HIP frees only with its range of addresses; empty if there is
    none."""
    going: dict[int, str] = {}
    for part in segments(change.gone):
        if isinstance(part, MemoryRun):
            part = part[-len(part.kinds) :]
        made = [step for step in part if isinstance(step, steps.CreateAllocation)] if not isinstance(part, Run) else []
        going |= {step.device: step.name for step in made if step.location == "device"}
    return next((going[device] for device in sorted(going) if keeps_memory(holding, device, going[device])), "")


def keeps_memory(holding: Holding, device: int, name: str) -> bool:
    """Whether this HIP keeps unmapped memory of a device until its range of addresses is freed; each device is probed
    once. name: of the memory, for an error. Raises ApplyError (HP401)."""
    state = holding.state
    if family_of(state.runtime.path) == "cuda" or device in holding.frees_at_once:
        return False
    if not asked(partial(frees_at_once, state.program, state.runtime, device), name):
        return True
    holding.frees_at_once.add(device)
    return False


KEPT_WITH_ITS_RANGE = (
    "this release frees memory only together with its address range (ROCm issue 6021)",
    "close the layout instead",
)
"""HP440: why, and a hint."""


def _require_room(state: State, change: Difference) -> None:
    """Raises HP442 if the devices do not have enough free memory."""
    needed: Counter[int] = Counter()
    for step, many in alike(change.additions):
        if isinstance(step, steps.CreateAllocation) and step.location == "device":
            needed[step.device] += many * step.size
    names = {ordinal: name for name, ordinal in change.new.devices.items()}
    diagnostics = []
    for device, size in sorted(needed.items()):
        free, _ = asked(partial(state.runtime.memory_info, device), names[device])
        if size > free:
            diagnostics.append(no_room_to_wake(names[device], size, free))
    if diagnostics:
        raise ApplyError(diagnostics)


def asked(ask: Callable[[], Answer], name: str) -> Answer:
    """The answer of the driver to a question before a change. Raises ApplyError (HP401)."""
    try:
        return ask()
    except _core.HipError as error:
        raise driver_failure(error, name, "nothing was changed") from error
