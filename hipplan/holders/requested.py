"""A client's request as its holder reads it: all keys are checked before anything is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from hipplan.holders.command_line import CommandLine, require_arguments
from hipplan.processes.packets import Message
from hipplan.program.backups import DROP, HOST

Want = Literal["status", "family", "attach", "down", "replace", "sleep", "wake", "layouts", "verify"]
TASKS = ("replace", "sleep", "wake")
"""Requests for which a filler may be started. They come with three streams for it."""
WAIT_MAX_S = 86400.0
"""The longest wait that a request may ask for, if it has a limit."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request with valid keys. The defaults are for requests that have no such key."""

    want: Want
    number: int
    """Counted by the process that made it, from 1."""
    timeout_s: float
    """For how many seconds the client waits without a sign of life."""
    access: str = ""
    """For attach: plan, r or rw."""
    sees: Message | None = None
    """For attach by a process without Python: what it sees, as rows_for_c.py reads it."""
    wait_s: float | None = 0.0
    """For down and sleep: how many seconds to wait until other clients detach; None: without limit."""
    force: bool = False
    """For down: whether the end does not wait."""
    keep: str = HOST
    """For sleep: where the bytes are kept."""
    options: Sequence[str] = ()
    """For sleep and wake: options for the filler's command line."""
    command_line: CommandLine | None = None
    """For replace: the command line of the filler."""
    lose: Sequence[str] = ()
    """For replace: what the new plan may lose, as in layout.update()."""


def read(message: Message, descriptors: int) -> Request:
    """The request in a message. descriptors: how many came with it. Raises ValueError."""
    want = _choice(message, "want", get_args(Want))
    every: dict[str, Any] = {"want": want, "number": _number(message), "timeout_s": _seconds(message, "timeout_s")}
    if want in TASKS and descriptors != 3:
        raise ValueError("a request for a task comes with three streams")
    if want == "attach":
        sees = message.get("sees")
        if sees is not None and not isinstance(sees, dict):
            raise ValueError("'sees' is an object")
        return Request(**every, access=_choice(message, "access", ("plan", "r", "rw")), sees=sees)
    if want == "replace":
        return Request(**every, command_line=CommandLine.read(message), lose=_texts(message, "lose"))
    if want in ("down", "sleep"):
        every["wait_s"] = None if message.get("wait_s", "") is None else _seconds(message, "wait_s")
    if want == "down":
        return Request(**every, force=message.get("force") is True)
    if want == "sleep":
        every["keep"] = _choice(message, "keep", (HOST, DROP))
    return Request(**every, options=_texts(message, "options") if want in TASKS else ())


def _choice(message: Message, key: str, values: Sequence[str]) -> Any:
    value = message.get(key)
    if not isinstance(value, str) or value not in values:
        raise ValueError(f"'{key}' is one of {', '.join(values)}")
    return value


def _number(message: Message) -> int:
    number = message.get("number")
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ValueError("'number' is a whole number from 1 on")
    return number


def _seconds(message: Message, key: str) -> float:
    value = message.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= WAIT_MAX_S:
        raise ValueError(f"'{key}' is a number of seconds from 0 to {WAIT_MAX_S:g}")
    return float(value)


def _texts(message: Message, key: str) -> Sequence[str]:
    texts = message.get(key)
    require_arguments(texts)
    assert isinstance(texts, list)
    return texts
