"""What a filler does: it makes what a holder is to hold, fills it, sends descriptors of it and frees its own handles.

Or, for a holder that goes to sleep or wakes: it saves the bytes of what is held into host memory, or restores them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from hipplan import _core
from hipplan.errors import (
    ApplyError,
    Diagnostic,
    HeldError,
    HipplanError,
    LeakError,
    MachineError,
    driver_failure,
)
from hipplan.holders.tasks import FILL, RESTORE, SAVE
from hipplan.language.loader import LoadedPlan
from hipplan.layout.layout import Layout
from hipplan.layout.prepare import prepare
from hipplan.layout.run import run
from hipplan.machines.discover import discover
from hipplan.machines.host_room import host_memory_available
from hipplan.machines.machine import Machine
from hipplan.machines.runtimes import Chosen
from hipplan.processes.packets import Gone, Late, Line, Message
from hipplan.program import held, held_bytes, written
from hipplan.program.content_steps import written_by
from hipplan.program.lock import Locked
from hipplan.program.program import Program
from hipplan.units import about_size

log = logging.getLogger("hipplan")

OnProgress = Callable[[int, int], None]
SAY_S = 60.0
"""How long the holder may take to read."""
_EVERY_S = 0.05


class ToHolder:
    """The filler's end of the connection."""

    def __init__(self, descriptor: int) -> None:
        """Raises HeldError (HP455)."""
        link = socket.socket(fileno=descriptor)
        link.setblocking(False)
        os.set_inheritable(descriptor, False)
        self._line = Line(link)
        self._told = 0.0
        with self._heard():
            received = self._line.exchange(None, time.monotonic() + SAY_S)
            self._request = received.message
            self.descriptors = received.descriptors
            """Sent with the request, until close()."""
            self.task = str(self._request["task"])
            if self.task not in (FILL, SAVE, RESTORE):
                raise ValueError(f"there is no task '{self.task}'")
            beside = self._request.get("beside", {})
            self.beside = {str(uuid): int(size) for uuid, size in beside.items()}
            """UUID of a device -> bytes that stay in use there meanwhile."""

    def held(self) -> Program:
        """What is held, if it is to be saved or restored. Raises HeldError, PlanError (HP028)."""
        with self._heard():
            text = self._request["program"]
        return written.read(text)

    def require_same(self, program: Program) -> None:
        """Raises HeldError (HP441): what is to be filled anew is not what was held."""
        wanted = {key: self._request.get(key) for key in ("plan", "digest")}
        if wanted["digest"] is not None and wanted != {"plan": program.name, "digest": program.digest}:
            why = "its plan, or a variable, has changed since it was filled, and no copy of its bytes was kept"
            hint = "hipplan replace fills the new plan"
            raise HeldError(Diagnostic("HP441", "the holder cannot wake", why=why, hint=hint))

    def progress(self, done: int, total: int) -> None:
        """Now and then. Raises HeldError: the holder has ended."""
        if done < total and time.monotonic() - self._told < _EVERY_S:
            return
        self._told = time.monotonic()
        self.say({"done": done, "total": total})

    def say(self, message: Message, descriptors: list[int] | None = None) -> None:
        """Raises HeldError."""
        with self._heard():
            self._line.exchange(message, time.monotonic() + SAY_S, descriptors=descriptors or (), listens=False)

    def close(self) -> None:
        self._line.close()
        while self.descriptors:
            os.close(self.descriptors.pop())

    @contextlib.contextmanager
    def _heard(self) -> Iterator[None]:
        try:
            yield
        except (Gone, Late, LookupError, ValueError, AttributeError) as error:
            summary = "the holder that this was filled for has ended"
            raise HeldError(Diagnostic("HP455", summary, why=str(error))) from None


def prepared(
    plan: LoadedPlan, chosen: Chosen, profile: Machine | None, lock: Locked | None, beside: Mapping[str, int]
) -> Program:
    """The program of what is to be held. beside: bytes that are held already, by UUID of device.

    Raises PlanError, MachineError.
    """
    program = prepare(plan, chosen, profile, beside)
    locked = program if lock is None else lock.hold(program, profile)
    return held.holdable(locked, held.fixed_reservations(program))


def fill(
    program: Program, chosen: Chosen, to: ToHolder, *, locked: bool, on_progress: OnProgress, on_bytes: OnProgress
) -> None:
    """Makes and fills it, hands it over, and frees what this process has of it.

    locked: its addresses are; others are chosen, so that they are free in those who attach as far as anybody can know.
    Raises as run() does, HipError, HeldError, LeakError.
    """
    whole = _Whole(program)

    def progressed(done: int, total: int) -> None:
        whole.next_step()
        on_progress(done, total)

    def moved(done: int, total: int) -> None:
        to.progress(*whole.of(done, total))
        on_bytes(done, total)

    def made(program: Program) -> Layout:
        return run(program, chosen.runtime, notice=chosen.notice, on_progress=progressed, on_bytes=moved)

    try:
        layout = made(program if locked else held.with_addresses(program))
    except ApplyError as error:
        if locked or error.leaks or error.diagnostics[0].code != "HP404":
            raise
        layout = made(program)  # those places are taken: the driver chooses
    _close_after(layout, lambda: _hand_over(layout, chosen, to))


def save(chosen: Chosen, to: ToHolder, *, on_progress: OnProgress, on_bytes: OnProgress) -> None:
    """Writes the bytes of the allocations whose descriptors came into the files that came after them.

    Raises MachineError (HP303) before anything is moved, else as fill().
    """
    program = to.held()
    size = held_bytes.size_held(program)
    _require_host_memory(size)
    count = len(held.exported_allocations(program))
    files = [(file, os.fstat(file).st_size) for file in to.descriptors[count:]]
    saving = held_bytes.saving_program(program, discover(chosen, lambda _: ()), files)
    bind = dict(zip(held.imported_allocations(saving), to.descriptors[:count], strict=True))
    _run(saving, chosen, to, on_progress, on_bytes, bind).close()
    to.say({"saved": size})


def restore(chosen: Chosen, to: ToHolder, *, on_progress: OnProgress, on_bytes: OnProgress) -> None:
    """Makes the allocations anew with the bytes of the files that came, and hands them over.

    Raises ApplyError (HP442) before anything is made, else as fill().
    """
    program = to.held()
    files = [(f"/proc/self/fd/{file}", os.fstat(file).st_size) for file in to.descriptors]
    used = [*program.devices.values()]
    here = discover(chosen, lambda _: used)
    restoring = held_bytes.restoring_program(program, here, files)
    held_bytes.require_free_memory(restoring, here, to.beside)
    layout = _run(restoring, chosen, to, on_progress, on_bytes)
    restored = {"restored": held_bytes.size_held(program)}
    names = held.exported_allocations(program)
    _close_after(layout, lambda: _send(layout, names, lambda _: restored, to))


def _require_host_memory(size: int) -> None:
    """Raises MachineError (HP303)."""
    available = host_memory_available()
    if available is not None and size > available:
        summary = f"host memory lacks {about_size(size - available)} for the bytes: {about_size(size)} are needed"
        hint = "nothing was changed: free host memory, or sleep with --keep drop, which keeps no bytes"
        raise MachineError(Diagnostic("HP303", summary, why=f"{about_size(available)} are available", hint=hint))


def _run(
    program: Program,
    chosen: Chosen,
    to: ToHolder,
    on_progress: OnProgress,
    on_bytes: OnProgress,
    bind: Mapping[str, int] | None = None,
) -> Layout:
    def moved(done: int, total: int) -> None:
        to.progress(done, total)
        on_bytes(done, total)

    return run(program, chosen.runtime, bind=bind, notice=chosen.notice, on_progress=on_progress, on_bytes=moved)


def _close_after(layout: Layout, hand_over: Callable[[], None]) -> None:
    """What was handed over stays with the holder. Raises what hand_over() raises, LeakError."""
    try:
        hand_over()
    except BaseException as error:
        _undo(layout, error)
        raise
    layout.close()


class _Whole:
    """How much of all contents is there, where each step counts its own bytes."""

    def __init__(self, program: Program) -> None:
        self._total = sum(part.size for step in program.contents for part in written_by(step))
        self._before = self._step = 0

    def next_step(self) -> None:
        self._before, self._step = self._before + self._step, 0

    def of(self, done: int, total: int) -> tuple[int, int]:
        """(done, total) of a step -> of all."""
        self._step = total
        return min(self._before + done, self._total), self._total


def _undo(layout: Layout, error: BaseException) -> None:
    """Raises ApplyError, with what stopped the hand-over first, if something cannot be freed."""
    try:
        layout.close()
    except LeakError as leak:
        first = driver_failure(error) if isinstance(error, _core.HipError) else error
        if isinstance(first, HipplanError):
            raise ApplyError([*first.diagnostics, *leak.diagnostics], undone=leak.undone) from error
        log.error("%s", leak)


def _hand_over(layout: Layout, chosen: Chosen, to: ToHolder) -> None:
    program = layout.program
    at = {
        resource.name: layout[resource.name].address
        for resource in program.resources
        if resource.kind in ("reservation", "region")
    }
    program = held.held_program(program, at)

    def made(descriptors: int) -> Message:
        description = {
            "program": written.write(program),
            "plan": program.name,
            "digest": program.digest,
            "machine": program.machine,
            "runtime": chosen.runtime.path,
            "family": chosen.kind,
            "allocations": descriptors,
            "size": held_bytes.size_held(program),
            "bytes": held.bytes_held(program),
            "bytes_by_uuid": held.bytes_by_uuid(program),
            "writable": held.writable(program),
        }
        return {"made": description}

    _send(layout, held.exported_allocations(program), made, to)


def _send(layout: Layout, names: Sequence[str], message: Callable[[int], Message], to: ToHolder) -> None:
    """Descriptors of allocations, and a message about so many. Raises HeldError, HipError."""
    descriptors: list[int] = []
    try:
        for name in names:
            descriptors.append(layout.export(name))
        to.say(message(len(descriptors)), descriptors)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
