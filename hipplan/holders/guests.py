"""Who talks to a holder: a request each, bounded in size and time, and its answer; those who attach stay."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hipplan.errors import Diagnostic
from hipplan.processes.messages import peer
from hipplan.processes.packets import Message, Talk

if TYPE_CHECKING:
    from hipplan.holders.generations import Generation

REQUEST_BYTES, REQUEST_DESCRIPTORS = 1 << 20, 3
REPLACED = b"replaced"
"""The packet for those who are attached to what the holder does not hold any more."""
PATIENCE_S, ANSWER_S = 5.0, 30.0
"""How long somebody may take to ask, and to read an answer."""
WAIT_MAX_S = 86400.0
"""How long it may ask to wait, if not for ever."""
_COMMAND_MAX = 200
_SHOWN = 5


class Guest:
    """One connection."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.pid = peer(link)[0]
        self.talk: Talk | None = Talk(link, None, text_max=REQUEST_BYTES, descriptors_max=REQUEST_DESCRIPTORS)
        self.until: float | None = time.monotonic() + PATIENCE_S
        """When it has had time enough; None: it may wait."""
        self.wants: Message = {}
        """Its request, once it is read."""
        self.descriptors: list[int] = []
        """That came with it."""
        self.generation: Generation | None = None
        """What it is attached to."""
        self.access = "r"
        """r, rw, or plan: what the plan of its generation allows for each object."""
        self.since = time.time()

    @property
    def listens(self) -> bool:
        """Whether its request is still to come."""
        return self.talk is not None and not self.wants

    @property
    def is_answered(self) -> bool:
        """Whether it is being sent an answer, and that is all that it wants."""
        return self.talk is not None and bool(self.wants) and self.generation is None

    def answer(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Begins an answer."""
        self.talk = Talk(self.link, message, descriptors, listens=False)
        self.until = time.monotonic() + ANSWER_S

    def tell(self, word: bytes) -> None:
        """A packet that was not requested."""
        with contextlib.suppress(OSError):
            self.link.send(word)

    def close(self) -> None:
        self.link.close()
        if self.talk is not None:
            self.talk.received.close()
        self.let_go()

    def let_go(self) -> None:
        """Closes what came with its request."""
        while self.descriptors:
            os.close(self.descriptors.pop())

    def described(self) -> dict[str, Any]:
        """For `ps`."""
        number = self.generation.number if self.generation is not None else 0
        return {
            "pid": self.pid,
            "command": command_of(self.pid),
            "since": self.since,
            "generation": number,
            "access": self.access,
        }


def command_of(process: int) -> str:
    """A description of a process; empty if unknown."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{process}/cmdline").read_bytes()[: 4 * _COMMAND_MAX].split(b"\0")
        return " ".join(b" ".join(words).decode(errors="replace").split())[:_COMMAND_MAX]
    return ""


def wait_of(request: Message) -> float | None:
    """How many seconds a request may wait for others; None: for ever. Raises ValueError, KeyError, TypeError."""
    wait_s = request["wait_s"]
    if wait_s is None:
        return None
    if not 0 <= wait_s <= WAIT_MAX_S:
        raise ValueError("no time to wait")
    return float(wait_s)


def in_use(name: str, attached: Sequence[Guest], want: str) -> Message:
    """The answer to who wants to end the holder, or have it sleep, while processes are attached."""
    processes = ", ".join(f"{guest.pid} ({guest.described()['command'] or '?'})" for guest in attached[:_SHOWN])
    more = f" and {len(attached) - _SHOWN} more" if len(attached) > _SHOWN else ""
    hint = "--wait waits until they detach"
    if want == "down":
        hint += "; --force ends it now, and they keep the memory that they map"
    return refused("HP453", f"processes are attached to the holder '{name}'", f"process {processes}{more}", hint)


def refused(code: str, summary: str, why: str = "", hint: str = "") -> Message:
    """An answer to an invalid request."""
    return {"refused": {"code": code, "summary": summary, "why": why, "hint": hint}}


def diagnostic_of(said: Any) -> Diagnostic:
    """The error that a holder answers. Raises ValueError if it is none."""
    keys = ("code", "summary", "why", "hint")
    if not isinstance(said, dict) or not all(isinstance(said.get(key), str) for key in keys):
        raise ValueError("the answer is from another version of hipplan")
    return Diagnostic(said["code"], said["summary"], why=said["why"], hint=said["hint"])
