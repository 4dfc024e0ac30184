"""What only the driver and the system can answer before a layout changes, and the refusals that follow."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from hipplan import _core
from hipplan.errors import ApplyError, MachineError, driver_failure
from hipplan.files.open_by import open_by
from hipplan.files.output import unwritten
from hipplan.files.places import NameInFolder
from hipplan.kinds.pinned.live import CreatePinnedBuffer
from hipplan.language.findings import Findings
from hipplan.layout.holding import Holding
from hipplan.layout.probe import frees_at_once
from hipplan.layout.state import State
from hipplan.layout.undo import wait_until_freed
from hipplan.machines.family import family_of
from hipplan.program import peak, steps
from hipplan.program.difference import Difference
from hipplan.program.refusals import cannot_sleep, no_room_to_wake
from hipplan.program.runs import Run, alike
from hipplan.program.series import segments
from hipplan.program.sleeping_bytes import plan_name_of
from hipplan.program.taking import takers

Answer = TypeVar("Answer")

KEPT_WITH_ITS_RANGE = (
    "this release frees memory only together with its address range (ROCm issue 6021)",
    "close the layout instead",
)
"""HP440: why, and a hint."""


def require_alone(state: State, change: Difference) -> None:
    """Raises HP440 for memory that another process may have."""
    if not any(_is_exportable(step) for step, _ in alike(change.gone)):
        return
    for step in filter(_is_exportable, change.gone):
        if state.snapshot.shared(state.slot(step.name)):
            why = "it was exported: a process that holds its descriptor or maps it keeps the memory"
            if users := _users(state, step.name):
                why = f"it was exported, and {users} its descriptor open"
            hint = "apply the plan again after they have ended"
            raise cannot_sleep(plan_name_of(change.old, step.name), why, hint)


def _is_exportable(step: steps.Step) -> bool:
    return step.owns_memory and step.is_shareable


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


def require_writable(change: Difference) -> None:
    """Raises ApplyError (HP413, HP416) now where the file of a backup could not be replaced later."""
    for step in change.contents:
        if step.file_written:
            try:
                with NameInFolder(step.file_written) as place:
                    place.require_ours(private=True)
            except OSError as error:
                raise ApplyError(unwritten(step.file_written, "", error)) from None


def require_host_memory(change: Difference) -> None:
    """HP303. Where host memory is made, waits for that which is being freed, and raises what a signal raises."""
    if any(isinstance(step, CreatePinnedBuffer) or step.is_on_host for step, _ in alike(change.additions)):
        wait_until_freed()
    findings = Findings()
    if change.old.measured is not None:
        peak.check(change, change.old.measured, findings)
    if findings.errors:
        raise MachineError(findings.all)


def kept_with_its_range(holding: Holding, change: Difference) -> str:
    """An allocation that goes, but whose memory this HIP frees only with its range of addresses; empty if there is
    none."""
    going: dict[int, str] = {}
    for part in segments(change.gone):
        if isinstance(part, Run):
            part = part[-len([*part.alike()]) :] if part.makes == "allocation" else ()
        made = [step for step in part if step.is_on_device]
        going |= {step.owner: step.name for step in made if step.owner is not None}
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


def require_room(state: State, change: Difference) -> None:
    """Raises HP442 if the devices do not have enough free memory."""
    needed: Counter[int] = Counter()
    for step, many in takers(alike(change.additions)):
        if step.is_on_device:
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
