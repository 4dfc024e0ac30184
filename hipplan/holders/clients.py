"""Clients of a holder: each connection sends one request, of limited size and in limited time, and gets one answer.

An attached client keeps its connection until it detaches.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hipplan.errors import Diagnostic
from hipplan.processes.messages import peer
from hipplan.processes.packets import SIGN, Exchange, Message

if TYPE_CHECKING:
    from hipplan.holders.generations import Generation
    from hipplan.holders.requested import Request

REQUEST_BYTES, REQUEST_DESCRIPTORS = 1 << 20, 3
REPLACED = b"replaced"
"""The packet for clients that are attached to a generation which was replaced."""
REQUEST_S, ANSWER_S = 5.0, 30.0
"""How long a client may take to send its request, and to read the answer."""
_SIGN_MIN_S, _SIGN_MAX_S = 0.02, 5.0
BUG = "HP457"
"""The code of a refusal that reports a bug in the holder."""
_COMMAND_MAX = 200
_SHOWN = 5


class Client:
    """One connection to a holder."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.pid = peer(link)[0]
        self.exchange: Exchange | None = Exchange(
            link, None, text_max=REQUEST_BYTES, descriptors_max=REQUEST_DESCRIPTORS
        )
        """The message that is being sent or received."""
        self.deadline: float | None = time.monotonic() + REQUEST_S
        """When the holder stops waiting for this client; None: never."""
        self.message: Message | None = None
        """The request as it came; None until it is received."""
        self.requested: Request | None = None
        """The request as it was read; None until then, and if it is invalid."""
        self.next_sign = 0.0
        """When the client gets the next sign of life, while it waits."""
        self.descriptors: list[int] = []
        """Received with the request."""
        self.generation: Generation | None = None
        """The generation to which the client is attached."""
        self.access = "r"
        """r, rw, or plan: what the plan of its generation allows for each object."""
        self.begin()

    def begin(self) -> None:
        """Note that it has just connected, or attached."""
        self.since = time.time()
        self.began = time.monotonic()
        """The same for comparisons: this clock never jumps."""

    @property
    def is_waiting(self) -> bool:
        """Whether the holder has read the request and not begun to answer."""
        return self.requested is not None and self.exchange is None and self.generation is None

    @property
    def has_left(self) -> bool:
        """Whether the other end is closed: nothing must be begun any more for this client."""
        try:
            return not self.link.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    @property
    def request(self) -> Request:
        """The request, which was read."""
        assert self.requested is not None
        return self.requested

    @property
    def is_sending_request(self) -> bool:
        return self.message is None

    @property
    def is_reading_last_answer(self) -> bool:
        """Whether the client is reading an answer after which its connection is closed."""
        return self.exchange is not None and self.message is not None and self.generation is None

    def answer(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Start to send an answer."""
        number = {} if self.requested is None else {"number": self.requested.number}
        self.exchange = Exchange(self.link, message | number, descriptors, receives=False)
        self.deadline = time.monotonic() + ANSWER_S

    def attach(self, generation: Generation, access: str) -> None:
        """Note what the client is attached to."""
        generation.give(access)
        self.generation, self.access = generation, access
        self.begin()

    def give_sign(self) -> None:
        """Let the client know that the holder is at work, several times within the time for which it waits."""
        self.notify(SIGN)
        self.next_sign = time.monotonic() + min(max(self.request.timeout_s / 4, _SIGN_MIN_S), _SIGN_MAX_S)

    def notify(self, packet: bytes) -> None:
        """Send a packet that was not requested."""
        with contextlib.suppress(OSError):
            self.link.send(packet)

    def close(self) -> None:
        self.link.close()
        if self.exchange is not None:
            self.exchange.received.close()
        self.close_descriptors()

    def close_descriptors(self) -> None:
        """Close the descriptors that were received with the request."""
        while self.descriptors:
            os.close(self.descriptors.pop())

    def status(self) -> dict[str, Any]:
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
    """The command line of a process, for people; empty if unknown."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{process}/cmdline").read_bytes()[: 4 * _COMMAND_MAX].split(b"\0")
        return " ".join(b" ".join(words).decode(errors="replace").split())[:_COMMAND_MAX]
    return ""


def in_use(name: str, attached: Sequence[Client], want: str) -> Message:
    """The refusal of `down` or `sleep` while processes are attached."""
    processes = ", ".join(f"{client.pid} ({client.status()['command'] or '?'})" for client in attached[:_SHOWN])
    more = f" and {len(attached) - _SHOWN} more" if len(attached) > _SHOWN else ""
    hint = "--wait waits until they detach"
    if want == "down":
        hint += "; --force ends it now, and they keep the memory that they map"
    return refusal("HP453", f"processes are attached to the holder '{name}'", f"process {processes}{more}", hint)


def refusal(code: str, summary: str, why: str = "", hint: str = "") -> Message:
    """The answer to a request that the holder refuses."""
    return {"refused": {"code": code, "summary": summary, "why": why, "hint": hint}}


def refused(why: Diagnostic) -> Message:
    """The same with an error."""
    return refusal(why.code, why.summary, why.why, why.hint)


def bug(holder: str, error: Exception) -> Message:
    """The answer to a request at which the holder failed."""
    summary = f"the holder '{holder}' failed at this request: this is a bug in hipplan"
    why = "".join(traceback.format_exception_only(error)).strip()
    return refusal(BUG, summary, why, "report the traceback in its log: hipplan ps")


def diagnostic_of(answer: Any) -> Diagnostic:
    """The error in a refusal. Raises ValueError if it is not one."""
    keys = ("code", "summary", "why", "hint")
    if not isinstance(answer, dict) or not all(isinstance(answer.get(key), str) for key in keys):
        raise ValueError("the answer is from another version of hipplan")
    return Diagnostic(answer["code"], answer["summary"], why=answer["why"], hint=answer["hint"])
