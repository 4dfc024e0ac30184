"""What a filler does: it makes what a holder is to hold, fills it, sends descriptors of it and gives back its own."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping

from hipplan import _core
from hipplan.errors import ApplyError, Diagnostic, HeldError, HipplanError, LeakError, driver_failure
from hipplan.language.loader import LoadedPlan
from hipplan.layout.layout import Layout
from hipplan.layout.prepare import prepare
from hipplan.layout.run import run
from hipplan.machines.machine import Machine
from hipplan.machines.runtimes import Chosen
from hipplan.processes.packets import Gone, Late, Line, Message
from hipplan.program import held, written
from hipplan.program.content_steps import written_by
from hipplan.program.lock import Locked
from hipplan.program.program import Program

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
            said = self._line.exchange(None, time.monotonic() + SAY_S).message["held"]
            self.held = {str(uuid): int(size) for uuid, size in said.items()}
        """UUID of a device -> bytes that stay there while this fills."""

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

    @contextlib.contextmanager
    def _heard(self) -> Iterator[None]:
        try:
            yield
        except (Gone, Late, LookupError, ValueError, AttributeError) as error:
            summary = "the holder that this was filled for has ended"
            raise HeldError(Diagnostic("HP455", summary, why=str(error))) from None


def prepared(
    plan: LoadedPlan, chosen: Chosen, profile: Machine | None, lock: Locked | None, there: Mapping[str, int]
) -> Program:
    """The program of what is to be held. there: bytes that are held already, by UUID of device.

    Raises PlanError, MachineError.
    """
    program = prepare(plan, chosen, profile, there)
    locked = program if lock is None else lock.hold(program, profile)
    return held.holdable(locked, held.fixed(program))


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
        layout = made(program if locked else held.at_known_places(program))
    except ApplyError as error:
        if locked or error.leaks or error.diagnostics[0].code != "HP404":
            raise
        layout = made(program)  # those places are taken: the driver chooses
    try:
        _hand_over(layout, chosen, to)
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
    program = held.as_held(program, at)
    descriptors: list[int] = []
    try:
        for name in held.descriptors_held(program):
            descriptors.append(layout.export(name))
        made = {
            "program": written.write(program),
            "plan": program.name,
            "digest": program.digest,
            "machine": program.machine,
            "runtime": chosen.runtime.path,
            "family": chosen.kind,
            "allocations": len(descriptors),
            "bytes": held.bytes_held(program),
            "bytes_by_uuid": held.bytes_by_uuid(program),
            "writable": held.writable(program),
        }
        to.say({"made": made}, descriptors)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
