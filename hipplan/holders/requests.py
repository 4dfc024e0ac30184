"""Requests to a holder: each is one message, with one answer."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import Any

from hipplan import __version__
from hipplan.errors import Diagnostic, HeldError, HipplanError, reason_of
from hipplan.holders import guard, names
from hipplan.holders.clients import BUG, diagnostic_of
from hipplan.holders.command_line import CommandLine
from hipplan.processes.connections import NEVER, Connection, Late, peer
from hipplan.processes.packets import Gone, Message, Received

ANSWER_S = 10.0
_numbers = itertools.count(1)


def send_request(
    connection: Connection,
    name: str,
    request: Message,
    timeout_s: float,
    descriptors: Sequence[int] = (),
    *,
    until: float = NEVER,
) -> Received:
    """Send a request, with a number, and return the answer.

    timeout_s: how many seconds the holder may give no sign of life. until: the deadline, by time.monotonic().
    descriptors: sent with the request.

    Raises HeldError: the holder refuses, or does not answer (HP455; guard.Silent: it gives no sign of life);
    HipplanError (HP457): a bug in the holder.
    """
    number = next(_numbers)
    message = {**request, "number": number, "timeout_s": timeout_s, "hipplan": __version__}
    try:
        received = connection.exchange(message, until, descriptors, silence_s=timeout_s)
    except Late as late:
        if late.silence_s < timeout_s:
            raise no_answer(name, "it did not answer in time") from None
        why = f"it gave no sign of life for {timeout_s:g} s, and will not begin request {number} any more"
        raise guard.Silent(name, why, peer(connection.link)[0]) from None
    except Gone as why:
        raise no_answer(name, str(why)) from None
    try:
        if "refused" in received.message:
            diagnostic = diagnostic_of(received.message["refused"])
            raise HipplanError(diagnostic) if diagnostic.code == BUG else HeldError(diagnostic)
        if received.message.get("number") != number:
            raise ValueError("it answered another request")
    except ValueError as error:
        received.close()
        raise no_answer(name, str(error)) from None
    except HipplanError:
        received.close()
        raise
    return received


def no_answer(name: str, why: str) -> HeldError:
    hint = "its log may have the reason: hipplan ps shows where it is"
    return HeldError(Diagnostic("HP455", f"the holder '{name}' does not answer", why=why, hint=hint))


def status(name: str, timeout_s: float = ANSWER_S) -> Message:
    """The status of a holder, as `hipplan ps --format json` shows it. timeout_s: as of send_request().

    Raises HeldError."""
    connection = names.connect(name)
    try:
        return checked_status(send_request(connection, name, {"want": "status"}, timeout_s).message, name)
    finally:
        connection.close()


def down(name: str, *, wait_s: float | None, force: bool, timeout_s: float) -> Message:
    """End a holder. Returns the bytes that it freed, the attached processes that keep their memory, and the number of
    its process if it had to be killed.

    wait_s: how long to wait until they detach; None: without limit. force: do not wait, and kill a holder that gives no
    sign of life. timeout_s: as of send_request().

    Raises HeldError: processes are attached (HP453), there is no such holder.
    """
    connection = None
    try:
        connection = names.find(name)
        if connection is None:
            if "/" not in name and names.remove_leftovers(names.check(name)):
                return {"given_back": {}, "attached": [], "waits_for_attached": False}
            connection = names.connect(name)
        request = {"want": "down", "wait_s": wait_s, "force": force}
        return send_request(connection, name, request, timeout_s).message
    except guard.Silent:
        if not force:
            raise
        return {"given_back": {}, "attached": [], "waits_for_attached": False, "killed": _kill(name, connection)}
    finally:
        if connection is not None:
            connection.close()


def _kill(name: str, connection: Connection | None) -> int:
    """Kill the process that owns a name, and remove its files. Returns its number. Raises HeldError."""
    with names.owner(name, connection) as process:
        try:
            process.kill()
        except OSError as error:
            raise guard.in_doubt(name, f"process {process.number} cannot be killed: {reason_of(error)}", "") from None
        if not process.has_ended(guard.KILLED_S):
            raise no_answer(name, f"process {process.number} was killed, and has not ended after {guard.KILLED_S:g} s")
    if "/" not in name:
        names.remove_leftovers(name)
    return process.number


def replace(
    name: str, arguments: Sequence[str], streams: Sequence[int], *, lose: Sequence[str], timeout_s: float
) -> tuple[int, Message]:
    """Have a holder fill another plan and switch to its memory. arguments: of `hipplan replace`. lose: names of
    what may be lost. Returns, streams, timeout_s: as _change()."""
    command_line = CommandLine(arguments, os.getcwd(), os.environ)  # noqa: PTH109
    return _change(name, {"want": "replace", "lose": [*lose], **command_line.message()}, streams, timeout_s)


def sleep(
    name: str, *, keep: str, wait_s: float | None, options: Sequence[str], streams: Sequence[int], timeout_s: float
) -> tuple[int, Message]:
    """Have a holder free its memory. keep: host or drop. wait_s: as of down(). options: for the filler's command line.
    Returns, streams, timeout_s: as _change(). Raises HeldError, also for keep "mapped" (HP440)."""
    if keep == "mapped":
        why = "while a holder sleeps no process has its memory mapped, so nothing could use it"
        hint = "--keep host keeps its bytes; a region with device: host lies on the host while it is attached, too"
        raise HeldError(Diagnostic("HP440", f"the holder '{name}' cannot sleep to 'mapped'", why=why, hint=hint))
    request = {"want": "sleep", "keep": keep, "wait_s": wait_s, "options": [*options]}
    return _change(name, request, streams, timeout_s)


def wake(name: str, *, options: Sequence[str], streams: Sequence[int], timeout_s: float) -> tuple[int, Message]:
    """Have a holder restore its memory after a sleep. As sleep()."""
    return _change(name, {"want": "wake", "options": [*options]}, streams, timeout_s)


def _change(name: str, request: Message, streams: Sequence[int], timeout_s: float) -> tuple[int, Message]:
    """Send a request for which the holder starts a filler. streams: standard input, output and error of the filler.
    timeout_s: as of send_request().

    Returns (0, the new status), or (exit code of the filler, its failure). Raises HeldError.
    """
    # First: a stopped holder would keep the streams in its socket, and who reads them would wait for their end.
    status(name, timeout_s)
    connection = names.connect(name)
    try:
        reply = send_request(connection, name, request, timeout_s, streams).message
        return (int(reply["failed"]), reply) if "failed" in reply else (0, checked_status(reply, name))
    finally:
        connection.close()


_STATUS: dict[str, Any] = {
    "name": str,
    "pid": int,
    "since": (int, float),
    "state": str,
    "asleep": (dict, type(None)),
    "access": str,
    "context_bytes": int,
    "log": str,
    "failed": str,
    "generations": list,
    "attached": list,
}


def checked_status(reply: Message, name: str) -> Message:
    """The status in an answer. Raises HeldError (HP455): it has none, as from another version of hipplan."""
    status = reply.get("status")
    if isinstance(status, dict) and all(isinstance(status.get(key), kind) for key, kind in _STATUS.items()):
        return status
    raise no_answer(name, "the answer is from another version of hipplan")
