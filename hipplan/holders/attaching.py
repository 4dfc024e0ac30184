"""attach(): map a holder's memory in this process as a layout, in one transaction like an apply."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, get_args

from hipplan.errors import ApplyError, Diagnostic, HeldError
from hipplan.holders import names
from hipplan.holders.clients import REPLACED
from hipplan.holders.requests import ANSWER_S, no_answer, send_request
from hipplan.layout.layout import Layout
from hipplan.layout.options import OnStep, Options
from hipplan.layout.record import Recorder
from hipplan.layout.run import run
from hipplan.machines.discover import discover
from hipplan.machines.machine import Machine
from hipplan.machines.runtimes import choose
from hipplan.plain import called, seconds
from hipplan.processes.connections import Connection
from hipplan.processes.packets import CLOSED, Message
from hipplan.program import held, written
from hipplan.program.held import AddressChoice, Limit, Right
from hipplan.program.program import Program

log = logging.getLogger("hipplan")


class Attachment:
    """The connection of an attached process to its holder."""

    def __init__(self, name: str, connection: Connection) -> None:
        self.name = name
        self.read_only: Mapping[str, Right] = {}
        """Mappings that this process may only read -> the plan's right for attached processes."""
        self.allows: Limit = "plan"
        """The holder's --access."""
        self._connection = connection
        self._detached = False

    def lost(self) -> str:
        """Says why the memory is not the holder's any more: replaced, closed or ended; empty while it is."""
        if self._detached:
            return ""
        packet = self._connection.last_packet()
        if packet is None:
            return "ended"
        return {CLOSED: "closed", REPLACED: "replaced"}.get(packet, "")

    def why_read_only(self, mapping: str, range_: str) -> tuple[str, str] | None:
        """Why this process may not write a mapping of a range, and what to do; None if attaching is not why."""
        if mapping not in self.read_only:
            return None
        why = f"this process is attached to '{self.name}', and may only read '{range_}'"
        if self.read_only[mapping] == "rw":
            if self.allows == "r":
                return why, f"start the holder without --access r: its plan has attached: rw for '{range_}'"
            return why, f"attach without access=\"r\": the plan has attached: rw for '{range_}'"
        restart = "" if self.allows == "rw" else "start the holder with --access rw, and "
        return why, f"write attached: rw at '{range_}' in the plan of '{self.name}'; or {restart}attach(access=\"rw\")"

    def detach(self) -> None:
        """Notifies the holder that this process has detached."""
        self._detached = True
        self._connection.close()


def attach(
    name: str | None = None,
    *,
    access: Right | None = None,
    addresses: AddressChoice = "same",
    runtime: str | os.PathLike[str] | None = None,
    machine: Machine | str | os.PathLike[str] | None = None,
    on_step: OnStep | None = None,
    verify: bool = True,
    record: str | os.PathLike[str] | None = None,
    answer: bool = False,
    timeout: float = 60.0,
) -> Layout:
    """Map a holder's memory in one transaction: the same names, tensors, addresses and bytes.

    name: of `hipplan up --name`, or the path of its socket; default: HIPPLAN_HOLDER, which `hipplan attach` sets.
    access: default: the plan's right for each object (attached: r or rw); or r, or rw if the holder allows it, for all
    objects. A sealed object is read-only until it is unsealed.
    addresses: same, or any: the driver chooses, for a process in which the holder's addresses are taken.
    runtime: default: HIPPLAN_RUNTIME, or else the kind of runtime that made the holder's memory.
    timeout: how many seconds to wait while the holder fills or wakes.
    machine, on_step, verify, record, answer: as of hipplan.apply.

    Raises HeldError: there is no such holder (HP452), it is asleep (HP441), it has ended or does not answer (HP455), it
    does not allow this, or this process does not see its devices (HP454); ApplyError (rolled back; HP404: an address is
    taken); MachineError (HP309: another release of HIP than the holder's cannot give the rights); RecordError,
    RuntimeUnavailable, ValueError, TypeError.
    """
    name = _holder_name(name)
    if access is not None:
        _require(access, Right, "access")
    _require(addresses, AddressChoice, "addresses")
    timeout_s = seconds(timeout, "timeout")
    with _attached(name, access or "plan", timeout_s) as (attachment, reply, descriptors):
        description = reply["made"]
        kind = description["family"]
        chosen = choose(runtime or os.environ.get("HIPPLAN_RUNTIME") or kind, _profile(machine))
        if chosen.kind != kind:
            raise HeldError(held.of_other_family(name, kind, chosen.kind))
        of_holder = written.read(description["program"])
        program = held.attaching_program(of_holder, discover(chosen, lambda _: ()), reply["access"], addresses)
        attachment.read_only = held.read_only(of_holder, reply["access"])
        attachment.allows = reply["allows"]
        allocations = held.imported_allocations(program)
        if len(allocations) != len(descriptors):
            raise no_answer(name, f"it sent {len(descriptors)} descriptors for {len(allocations)} allocations")
        bind = dict(zip(allocations, descriptors, strict=True))
        recorder = None if record is None else Recorder(record)
        try:
            options = Options(bind=bind, on_step=on_step, verify=verify, record=recorder).checked()
            layout = run(program, chosen.runtime, options, notice=chosen.notice, holder=attachment)
        except ApplyError as error:
            raise _with_hint(error) from None
    if answer:
        from hipplan.processes.answering import answer_in_thread  # with a thread that other processes do not need

        answer_in_thread(layout)
    return layout


def held_program(name: str) -> Program:
    """The program that a holder keeps, with its addresses. Maps nothing. Raises HeldError."""
    with _attached(name, "plan", ANSWER_S) as (attachment, reply, _):
        attachment.detach()
        return written.read(reply["made"]["program"])


def _profile(machine: Machine | str | os.PathLike[str] | None) -> Machine | None:
    if machine is None or isinstance(machine, Machine):
        return machine
    from hipplan.machines.profiles import load_machine  # reads YAML, which attaching to a GPU's memory does not need

    return load_machine(machine)


def _holder_name(name: str | None) -> str:
    if name is None:
        name = os.environ.get(names.VARIABLE, "")
        if not name:
            hint = f"hipplan.attach(NAME), or the environment variable {names.VARIABLE}, which `hipplan attach` sets"
            raise HeldError(Diagnostic("HP452", "no holder was named", hint=hint))
    if not isinstance(name, str):
        raise TypeError(f"the name of a holder must be text, not {called(name)}")
    return name


def _require(value: Any, literal: Any, parameter: str) -> None:
    if value not in get_args(literal):
        raise ValueError(f"{parameter} is {' or '.join(map(repr, get_args(literal)))}, not {value!r:.40}")


@contextmanager
def _attached(name: str, access: Limit, timeout_s: float) -> Iterator[tuple[Attachment, Message, list[int]]]:
    """The connection, the holder's answer, and the descriptors of its memory.

    On exit the descriptors are closed, and after an error the connection too.
    """
    connection = names.connect(name)
    try:
        until = time.monotonic() + timeout_s
        received = send_request(connection, name, {"want": "attach", "access": access}, timeout_s, until=until)
        try:
            reply = received.message
            made = reply.get("made")
            is_known = isinstance(made, dict) and all(isinstance(made.get(key), str) for key in ("program", "family"))
            if not is_known or reply.get("access") not in ("r", access) or reply.get("allows") not in get_args(Limit):
                raise no_answer(name, "the answer is from another version of hipplan")
            yield Attachment(name, connection), reply, received.descriptors
        finally:
            received.close()
    except BaseException:
        connection.close()
        raise


def _with_hint(error: ApplyError) -> ApplyError:
    """The same error with a hint for processes that attach, which cannot change the plan's addresses."""
    hint = 'free what is there, or use attach(addresses="any")'
    diagnostics = [
        replace(diagnostic, hint=hint) if diagnostic.code == "HP404" else diagnostic for diagnostic in error.diagnostics
    ]
    failed_apply = ApplyError(
        diagnostics,
        step=error.step,
        call=error.call,
        code=error.code,
        undone=error.undone,
        not_as_it_was=error.not_as_it_was,
    )
    failed_apply.__cause__ = error.__cause__
    return failed_apply
