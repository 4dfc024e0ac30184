"""What others ask a holder, each with one message and one answer."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from hipplan import __version__
from hipplan.errors import Diagnostic, HeldError
from hipplan.holders import names
from hipplan.holders.guests import diagnostic_of
from hipplan.holders.orders import Order
from hipplan.processes.packets import Gone, Late, Line, Message, Received

ANSWER_S = 10.0
FOR_EVER = float("inf")


def asked(
    line: Line,
    name: str,
    request: Message,
    until: float,
    look: Callable[[], bool] = lambda: False,
    descriptors: Sequence[int] = (),
) -> Received:
    """The answer. Raises HeldError: the holder refuses, or does not answer (HP455)."""
    try:
        received = line.exchange({**request, "hipplan": __version__}, until, look, descriptors)
    except Late:
        raise gone(name, "it did not answer in time") from None
    except Gone as why:
        raise gone(name, str(why)) from None
    if "refused" in received.message:
        received.close()
        try:
            raise HeldError(diagnostic_of(received.message["refused"]))
        except ValueError as error:
            raise gone(name, str(error)) from None
    return received


def gone(name: str, why: str) -> HeldError:
    hint = "its log may say more: hipplan ps"
    return HeldError(Diagnostic("HP455", f"the holder '{name}' does not answer", why=why, hint=hint))


def status(name: str) -> Message:
    """What a holder says of itself. Raises HeldError."""
    line = names.door_of(name)
    try:
        return checked(asked(line, name, {"want": "status"}, time.monotonic() + ANSWER_S).message, name)
    finally:
        line.close()


def down(name: str, *, wait_s: float | None, force: bool, look: Callable[[], bool]) -> Message:
    """Ends a holder; what it gave back, and who keeps some of it. wait_s: for those attached; None: for ever.

    Raises HeldError: processes are attached (HP453), there is no such holder.
    """
    line = names.find(name)
    if line is None:
        if "/" not in name and names.forget(names.check(name)):
            return {"given_back": {}, "attached": []}
        line = names.door_of(name)
    try:
        return asked(line, name, {"want": "down", "wait_s": wait_s, "force": force}, FOR_EVER, look).message
    finally:
        line.close()


def replace(
    name: str, arguments: Sequence[str], streams: Sequence[int], look: Callable[[], bool]
) -> tuple[int, Message]:
    """Has a holder fill something else and switch to it. As _changed()."""
    order = Order(arguments, os.getcwd(), os.environ)  # noqa: PTH109
    return _changed(name, {"want": "replace", **order.message()}, streams, look)


def sleep(
    name: str, *, keep: str, wait_s: float | None, options: Sequence[str], streams: Sequence[int]
) -> tuple[int, Message]:
    """Has a holder free its memory. keep: host or drop. wait_s: as of down(). options: of the filler's command line. As
    _changed()."""
    request = {"want": "sleep", "keep": keep, "wait_s": wait_s, "options": [*options]}
    return _changed(name, request, streams, lambda: False)


def wake(name: str, *, options: Sequence[str], streams: Sequence[int]) -> tuple[int, Message]:
    """Has a holder make its memory again, with the bytes that it had. As sleep()."""
    return _changed(name, {"want": "wake", "options": [*options]}, streams, lambda: False)


def _changed(name: str, request: Message, streams: Sequence[int], look: Callable[[], bool]) -> tuple[int, Message]:
    """(0 or the exit code of the filler, the status or why it failed). streams: standard input, output and error of
    the filler. Raises HeldError."""
    line = names.door_of(name)
    try:
        reply = asked(line, name, request, FOR_EVER, look, streams).message
        return (int(reply["failed"]), reply) if "failed" in reply else (0, checked(reply, name))
    finally:
        line.close()


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


def checked(reply: Message, name: str) -> Message:
    """A status. Raises HeldError (HP455): the other end may be another version of hipplan."""
    status = reply.get("status")
    if isinstance(status, dict) and all(isinstance(status.get(key), kind) for key, kind in _STATUS.items()):
        return status
    raise gone(name, "the answer is from another version of hipplan")
