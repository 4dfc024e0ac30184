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
    """Ends a holder; what it gave back, and who keeps some of it. wait_s: for those attached; None: it does not wait.

    Raises HeldError: somebody is attached (HP453), there is no such holder.
    """
    line = names.find(name)
    if line is None:
        if "/" not in name and names.forget(names.check(name)):
            return {"given_back": {}, "attached": []}
        line = names.door_of(name)
    try:
        until = FOR_EVER if wait_s is None else time.monotonic() + wait_s
        request = {"want": "down", "wait": wait_s is not None, "force": force}
        try:
            said = asked(line, name, request, until, look).message
        except HeldError:
            if wait_s is not None and time.monotonic() >= until:
                line.close()
                return down(name, wait_s=None, force=False, look=look)  # which says who is attached
            raise
        return said
    finally:
        line.close()


def replace(
    name: str, arguments: Sequence[str], streams: Sequence[int], look: Callable[[], bool]
) -> tuple[int, Message]:
    """Has a holder fill something else and switch to it. (exit code of the filler, what the holder says of itself, or
    why it failed). streams: standard input, output and error of the filler. Raises HeldError."""
    line = names.door_of(name)
    try:
        settings = {key: value for key, value in os.environ.items() if key.startswith("HIPPLAN_")}
        order = {"want": "replace", "arguments": [*arguments], "folder": os.getcwd(), "settings": settings}  # noqa: PTH109
        said = asked(line, name, order, FOR_EVER, look, streams).message
        if "failed" in said:
            return int(said["failed"]), said
        return 0, checked(said, name)
    finally:
        line.close()


_STATUS: dict[str, Any] = {
    "name": str,
    "pid": int,
    "since": (int, float),
    "state": str,
    "access": str,
    "context_bytes": int,
    "log": str,
    "failed": str,
    "generations": list,
    "attached": list,
}


def checked(said: Message, name: str) -> Message:
    """A status. Raises HeldError (HP455): the other end may be another version of hipplan."""
    found = said.get("status")
    if isinstance(found, dict) and all(isinstance(found.get(key), kind) for key, kind in _STATUS.items()):
        return found
    raise gone(name, "the answer is from another version of hipplan")
