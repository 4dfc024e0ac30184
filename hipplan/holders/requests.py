"""Requests to a holder: each is one message, with one answer."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from hipplan import __version__
from hipplan.errors import Diagnostic, HeldError, HipplanError
from hipplan.holders import names
from hipplan.holders.clients import BUG, diagnostic_of
from hipplan.holders.command_line import CommandLine
from hipplan.processes.packets import Connection, Gone, Late, Message, Received

ANSWER_S = 10.0
NO_DEADLINE = float("inf")


def send_request(
    connection: Connection,
    name: str,
    request: Message,
    deadline: float,
    look: Callable[[], bool] = lambda: False,
    descriptors: Sequence[int] = (),
) -> Received:
    """Send a request and return the answer.

    Raises HeldError: the holder refuses, or does not answer (HP455); HipplanError (HP457): a bug in the holder.

    look: called every 50 ms; true ends the wait. descriptors: sent with the request.
    """
    try:
        received = connection.exchange({**request, "hipplan": __version__}, deadline, look, descriptors)
    except Late:
        raise no_answer(name, "it did not answer in time") from None
    except Gone as why:
        raise no_answer(name, str(why)) from None
    if "refused" in received.message:
        received.close()
        try:
            diagnostic = diagnostic_of(received.message["refused"])
        except ValueError as error:
            raise no_answer(name, str(error)) from None
        raise HipplanError(diagnostic) if diagnostic.code == BUG else HeldError(diagnostic)
    return received


def no_answer(name: str, why: str) -> HeldError:
    hint = "its log may have the reason: hipplan ps shows where it is"
    return HeldError(Diagnostic("HP455", f"the holder '{name}' does not answer", why=why, hint=hint))


def status(name: str) -> Message:
    """The status of a holder, as `hipplan ps --format json` shows it. Raises HeldError."""
    connection = names.connect(name)
    try:
        return checked_status(
            send_request(connection, name, {"want": "status"}, time.monotonic() + ANSWER_S).message, name
        )
    finally:
        connection.close()


def down(name: str, *, wait_s: float | None, force: bool, look: Callable[[], bool]) -> Message:
    """End a holder. Returns the bytes that it freed, and the attached processes that keep their memory.

    wait_s: how long to wait until they detach; None: without limit. force: do not wait. look: as of send_request().

    Raises HeldError: processes are attached (HP453), there is no such holder.
    """
    connection = names.find(name)
    if connection is None:
        if "/" not in name and names.remove_leftovers(names.check(name)):
            return {"given_back": {}, "attached": []}
        connection = names.connect(name)
    try:
        return send_request(
            connection, name, {"want": "down", "wait_s": wait_s, "force": force}, NO_DEADLINE, look
        ).message
    finally:
        connection.close()


def replace(
    name: str, arguments: Sequence[str], streams: Sequence[int], look: Callable[[], bool]
) -> tuple[int, Message]:
    """Have a holder fill another plan and switch to its memory. arguments: of `hipplan replace`. Returns, streams: as
    _change()."""
    command_line = CommandLine(arguments, os.getcwd(), os.environ)  # noqa: PTH109
    return _change(name, {"want": "replace", **command_line.message()}, streams, look)


def sleep(
    name: str, *, keep: str, wait_s: float | None, options: Sequence[str], streams: Sequence[int]
) -> tuple[int, Message]:
    """Have a holder free its memory. keep: host or drop. wait_s: as of down(). options: for the filler's command line.
    Returns, streams: as _change()."""
    request = {"want": "sleep", "keep": keep, "wait_s": wait_s, "options": [*options]}
    return _change(name, request, streams, lambda: False)


def wake(name: str, *, options: Sequence[str], streams: Sequence[int]) -> tuple[int, Message]:
    """Have a holder restore its memory after a sleep. As sleep()."""
    return _change(name, {"want": "wake", "options": [*options]}, streams, lambda: False)


def _change(name: str, request: Message, streams: Sequence[int], look: Callable[[], bool]) -> tuple[int, Message]:
    """Send a request for which the holder starts a filler. streams: standard input, output and error of the filler.

    Returns (0, the new status), or (exit code of the filler, its failure). Raises HeldError.
    """
    connection = names.connect(name)
    try:
        reply = send_request(connection, name, request, NO_DEADLINE, look, streams).message
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
