"""A client's request as its holder reads it: all keys are checked before anything is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from hipplan.holders.command_line import CommandLine, require_arguments
from hipplan.processes.packets import Message
from hipplan.program.backups import DROP, HOST

Want = Literal["status", "attach", "down", "replace", "sleep", "wake"]
TASKS = ("replace", "sleep", "wake")
"""Requests for which a filler may be started. They come with three streams for it."""
WAIT_MAX_S = 86400.0
"""The longest wait that a request may ask for, if it has a limit."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request with valid keys. The defaults are for requests that have no such key."""

    want: Want
    access: str = ""
    """Of attach: plan, r or rw."""
    wait_s: float | None = 0.0
    """Of down and sleep: how many seconds to wait until other clients detach; None: without limit."""
    force: bool = False
    """Of down: do not wait."""
    keep: str = HOST
    """Of sleep: where the bytes are kept."""
    options: Sequence[str] = ()
    """Of sleep and wake: for the filler's command line."""
    command_line: CommandLine | None = None
    """Of replace: of the filler."""


def read(message: Message, descriptors: int) -> Request:
    """The request in a message. descriptors: how many came with it. Raises ValueError."""
    want = _choice(message, "want", get_args(Want))
    if want in TASKS and descriptors != 3:
        raise ValueError("a request for a task comes with three streams")
    if want == "attach":
        return Request(want="attach", access=_choice(message, "access", ("plan", "r", "rw")))
    if want == "down":
        return Request(want="down", wait_s=_seconds_to_wait(message), force=message.get("force") is True)
    if want == "replace":
        return Request(want="replace", command_line=CommandLine.read(message))
    if want == "sleep":
        keep = _choice(message, "keep", (HOST, DROP))
        return Request(want="sleep", keep=keep, wait_s=_seconds_to_wait(message), options=_options(message))
    return Request(want="wake", options=_options(message)) if want == "wake" else Request(want="status")


def _choice(message: Message, key: str, values: Sequence[str]) -> Any:
    value = message.get(key)
    if not isinstance(value, str) or value not in values:
        raise ValueError(f"'{key}' is one of {', '.join(values)}")
    return value


def _seconds_to_wait(message: Message) -> float | None:
    wait_s = message.get("wait_s", "")
    if wait_s is None:
        return None
    if isinstance(wait_s, bool) or not isinstance(wait_s, (int, float)) or not 0 <= wait_s <= WAIT_MAX_S:
        raise ValueError(f"'wait_s' is a number of seconds from 0 to {WAIT_MAX_S:g}, or null")
    return float(wait_s)


def _options(message: Message) -> Sequence[str]:
    options = message.get("options")
    require_arguments(options)
    assert isinstance(options, list)
    return options
