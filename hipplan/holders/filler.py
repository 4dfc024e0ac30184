"""The work of a filler: it makes and fills memory for a holder, sends descriptors of it, and frees its own handles.

For a holder that goes to sleep or wakes, it saves the bytes of the memory to host memory, or restores them.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hipplan import _core
from hipplan.errors import (
    ApplyError,
    Diagnostic,
    HeldError,
    HipplanError,
    LeakError,
    MachineError,
    PlanError,
    driver_failure,
)
from hipplan.holders.tasks import FILL, RESTORE, SAVE
from hipplan.language.loader import LoadedPlan
from hipplan.layout.assembly import Target
from hipplan.layout.layout import Layout
from hipplan.layout.options import OnBytes, OnProgress, Options
from hipplan.layout.run import run
from hipplan.lowering.lowered import require_attachable
from hipplan.machines.discover import discover
from hipplan.machines.host import memory_available
from hipplan.machines.runtimes import Chosen
from hipplan.processes.connections import Connection, Late
from hipplan.processes.packets import Gone, Message, Received, TooLong
from hipplan.program import held, held_bytes, held_losses, open_sizes, written
from hipplan.program.program import Program
from hipplan.program.resources import RANGES
from hipplan.units import about_size

log = logging.getLogger("hipplan")

SEND_S = 60.0
"""How long the holder may take to send its request, or to read a message."""
_PROGRESS_EVERY_S = 0.05


class HolderConnection:
    """The filler's connection to its holder, with the request for it."""

    def __init__(self, descriptor: int) -> None:
        """Receives the request. Raises HeldError (HP455)."""
        link = socket.socket(fileno=descriptor)
        link.setblocking(False)
        os.set_inheritable(descriptor, False)
        self._connection = Connection(link)
        self._last_progress = 0.0
        self.descriptors: list[int] = []
        """Received with the request; open until close()."""
        try:
            received = self._exchange(None)
            self._request, self.descriptors = received.message, received.descriptors
            self.task = self._expect("task", str)
            if self.task not in (FILL, SAVE, RESTORE):
                raise _not_understood(f"there is no task '{self.task}'")
            self.beside: Mapping[str, int] = self._expect("beside", dict) if "beside" in self._request else {}
            """UUID of a device -> bytes that other generations of the holder use meanwhile."""
            if not all(isinstance(size, int) for size in self.beside.values()):
                raise _not_understood("'beside' has numbers of bytes")
        except BaseException:
            self.close()
            raise

    def held_program(self) -> Program:
        """The program whose memory is to be saved or restored. Raises HeldError (HP455), PlanError (HP028)."""
        return written.read(self._expect("program", str))

    def require_same_plan(self, program: Program) -> None:
        """Raises HeldError (HP441): the holder wakes, and this is not the plan that it held."""
        expected = {key: self._request.get(key) for key in ("plan", "digest")}
        if expected["digest"] is not None and expected != {"plan": program.name, "digest": program.digest}:
            why = "its plan, or a variable, has changed since it was filled, and no copy of its bytes was kept"
            hint = "hipplan replace fills the new plan"
            raise HeldError(Diagnostic("HP441", "the holder cannot wake", why=why, hint=hint))

    def sizes_kept(self, plan: LoadedPlan) -> open_sizes.Sizes:
        """Bytes of what the plan leaves open, of the memory that the plan's is to replace. Raises HeldError (HP455),
        PlanError (HP028): the request is invalid."""
        if "replaces" not in self._request or not open_sizes.open_sizes(plan.objects):
            return open_sizes.NONE_KNOWN
        return open_sizes.kept(written.read(str(self._expect("replaces", dict).get("program", ""))), plan)

    def require_consent(self, new: Program) -> None:
        """Raises ApplyError (HP423): the new program loses something of the one that it replaces, unasked. HeldError
        (HP455), PlanError (HP028): the request is invalid."""
        replaces = self._expect("replaces", dict) if "replaces" in self._request else None
        if replaces is not None:
            try:
                old, given, access, lose = (replaces[key] for key in ("program", "given", "access", "lose"))
            except KeyError as error:
                raise _not_understood(f"'replaces' has no {error}") from None
            held_losses.require_consent(written.read(old), new, given=given, access=access, lose=lose)

    def send_progress(self, done: int, total: int) -> None:
        """Report bytes of contents, at most every 50 ms. Raises HeldError (HP455)."""
        if done < total and time.monotonic() - self._last_progress < _PROGRESS_EVERY_S:
            return
        self._last_progress = time.monotonic()
        self.send({"done": done, "total": total})

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Raises HeldError (HP455): the holder has ended or does not read; PlanError (HP450): the message, with a
        description of the memory, is too long."""
        self._exchange(message, descriptors)

    def close(self) -> None:
        self._connection.close()
        while self.descriptors:
            os.close(self.descriptors.pop())

    def _exchange(self, message: Message | None, descriptors: Sequence[int] = ()) -> Received:
        """Sends a message, or receives one if there is none to send."""
        deadline = time.monotonic() + SEND_S
        try:
            return self._connection.exchange(message, deadline, descriptors, receives=message is None)
        except Gone as error:
            summary = "the connection of this filler to its holder has ended"
            raise HeldError(Diagnostic("HP455", summary, why=str(error))) from None
        except Late:
            verb = "sent no request" if message is None else "read no message"
            raise HeldError(Diagnostic("HP455", f"the holder {verb} for {SEND_S:g} s")) from None
        except TooLong as error:
            summary, hint = "a holder cannot hold so many objects", "write several plans, each with its own holder"
            raise PlanError(Diagnostic("HP450", summary, why=str(error), hint=hint)) from None

    def _expect(self, key: str, kind: type) -> Any:
        """A value of the request. Raises HeldError (HP455)."""
        value = self._request.get(key)
        if not isinstance(value, kind):
            raise _not_understood(f"it has no valid '{key}'")
        return value


def _not_understood(why: str) -> HeldError:
    return HeldError(Diagnostic("HP455", "the filler does not understand the request of its holder", why=why))


def program_to_hold(
    plan: LoadedPlan, where: Target, beside: Mapping[str, int], kept: open_sizes.Sizes = open_sizes.NONE_KNOWN
) -> Program:
    """Compile a plan into a program that a holder can hold.

    beside: bytes that other generations of the holder use, by UUID of a device. kept: as of sizes_kept().
    Raises PlanError, MachineError.
    """
    program = held.holdable(where.program(plan, beside, kept)[0])
    require_attachable(program)
    return program


def fill(
    program: Program,
    chosen: Chosen,
    holder: HolderConnection,
    *,
    locked: bool,
    on_progress: OnProgress,
    on_bytes: OnBytes,
) -> None:
    """Apply and fill a program, send its descriptors to the holder, and close the layout in this process.

    locked: the program has its addresses from a lock; otherwise addresses are chosen that are likely to be free in
    processes that attach. Raises as run() does, HipError, HeldError, LeakError.
    """
    all_contents = _AllContents(program)

    def report_step(done: int, total: int) -> None:
        all_contents.next_step()
        on_progress(done, total)

    def report_bytes(done: int, total: int) -> None:
        holder.send_progress(*all_contents.progress(done, total))
        on_bytes(done, total)

    def apply(program: Program) -> Layout:
        options = Options(on_progress=report_step, on_bytes=report_bytes)
        return run(program, chosen.runtime, options, notice=chosen.notice)

    try:
        layout = apply(program if locked else held.with_addresses(program))
    except ApplyError as error:
        if locked or error.leaks or error.diagnostics[0].code != "HP404":
            raise
        layout = apply(program)  # the chosen addresses are taken in this process: the driver chooses
    _close_after(layout, lambda: _hand_over(layout, chosen, holder))


def save(chosen: Chosen, holder: HolderConnection, *, on_progress: OnProgress, on_bytes: OnBytes) -> None:
    """Write the bytes of the holder's allocations into files; the request has descriptors of both.

    Raises MachineError (HP303) before it moves bytes, else as fill().
    """
    program = holder.held_program()
    size = held_bytes.size_held(program)
    _require_host_memory(size)
    count = len(held.exported_allocations(program))
    files = [(file, os.fstat(file).st_size) for file in holder.descriptors[count:]]
    saving = held_bytes.saving_program(program, discover(chosen, lambda _: ()), files)
    bind = dict(zip(held.imported_allocations(saving), holder.descriptors[:count], strict=True))
    _run(saving, chosen, holder, on_progress, on_bytes, bind).close()
    holder.send({"saved": size})


def restore(chosen: Chosen, holder: HolderConnection, *, on_progress: OnProgress, on_bytes: OnBytes) -> None:
    """Create the allocations again, with the bytes of the files that came with the request, and send their descriptors.

    Raises ApplyError (HP442) before it creates an allocation, else as fill().
    """
    program = holder.held_program()
    files = [(f"/proc/self/fd/{file}", os.fstat(file).st_size) for file in holder.descriptors]
    used = [*program.devices.values()]
    here = discover(chosen, lambda _: used)
    restoring = held_bytes.restoring_program(program, here, files)
    held_bytes.require_free_memory(restoring, here, holder.beside)
    layout = _run(restoring, chosen, holder, on_progress, on_bytes)
    restored = {"restored": held_bytes.size_held(program)}
    names = held.exported_allocations(program)
    _close_after(layout, lambda: _send_descriptors(layout, names, lambda _: restored, holder))


def _require_host_memory(size: int) -> None:
    """Raises MachineError (HP303)."""
    available = memory_available()
    if available is not None and size > available:
        summary = f"host memory lacks {about_size(size - available)} for the bytes: {about_size(size)} are needed"
        hint = "nothing was changed: free host memory, or sleep with --keep drop, which keeps no bytes"
        raise MachineError(Diagnostic("HP303", summary, why=f"{about_size(available)} are available", hint=hint))


def _run(
    program: Program,
    chosen: Chosen,
    holder: HolderConnection,
    on_progress: OnProgress,
    on_bytes: OnBytes,
    bind: Mapping[str, int] | None = None,
) -> Layout:
    def report_bytes(done: int, total: int) -> None:
        holder.send_progress(done, total)
        on_bytes(done, total)

    options = Options(bind=bind, on_progress=on_progress, on_bytes=report_bytes)
    return run(program, chosen.runtime, options, notice=chosen.notice)


def _close_after(layout: Layout, hand_over: Callable[[], None]) -> None:
    """Close a layout after its descriptors were sent. Raises what hand_over() raises, LeakError."""
    try:
        hand_over()
    except BaseException as error:
        _undo(layout, error)
        raise
    layout.close()


class _AllContents:
    """The progress of all contents of a program, of which each step reports only its own bytes."""

    def __init__(self, program: Program) -> None:
        self._total = sum(part.size for step in program.contents for part in step.written())
        self._before = self._step = 0

    def next_step(self) -> None:
        self._before, self._step = self._before + self._step, 0

    def progress(self, done: int, total: int) -> tuple[int, int]:
        """(bytes done, bytes in all) of all contents. done, total: of the current step."""
        self._step = total
        return min(self._before + done, self._total), self._total


def _undo(layout: Layout, error: BaseException) -> None:
    """Close the layout after a failed hand-over. Raises ApplyError, with that error first, if something leaks."""
    try:
        layout.close()
    except LeakError as leak:
        first = driver_failure(error) if isinstance(error, _core.HipError) else error
        if isinstance(first, HipplanError):
            raise ApplyError([*first.diagnostics, *leak.diagnostics], undone=leak.undone) from error
        log.error("%s", leak)


def _hand_over(layout: Layout, chosen: Chosen, holder: HolderConnection) -> None:
    """Send the holder a description of the layout and descriptors of its allocations."""
    addresses = {
        resource.name: layout[resource.name].address for resource in layout.program.outer if resource.kind in RANGES
    }
    program = held.held_program(layout.program, addresses)

    def message(descriptors: int) -> Message:
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

    _send_descriptors(layout, held.exported_allocations(program), message, holder)


def _send_descriptors(
    layout: Layout, names: Sequence[str], message: Callable[[int], Message], holder: HolderConnection
) -> None:
    """Export allocations and send their descriptors. message: called with their number. Raises HeldError, HipError."""
    descriptors: list[int] = []
    try:
        for name in names:
            descriptors.append(layout.export(name))
        holder.send(message(len(descriptors)), descriptors)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
