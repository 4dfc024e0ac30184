"""Clients of a holder: callers with a request, and what the holder answers where it refuses one.

An attached client keeps its connection until it detaches.
"""

from __future__ import annotations

import contextlib
import socket
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hipplan.errors import Diagnostic
from hipplan.processes.listener import Caller, Listener
from hipplan.processes.packets import SIGN, Message

if TYPE_CHECKING:
    from hipplan.holders.generations import Generation
    from hipplan.holders.requested import Request

REQUEST_BYTES, REQUEST_DESCRIPTORS = 1 << 20, 3
CLIENTS_MAX, PENDING_MAX = 4096, 64
"""The most connections, and the most of them without a request yet."""
REPLACED = b"replaced"
"""The packet for clients that are attached to a generation which was replaced."""
_SIGN_MIN_S, _SIGN_MAX_S = 0.02, 5.0
FILLER_LIMITS = "a holder has the limits of the `hipplan up` that started it: see `ulimit -a`"
"""What to do if a holder can start no filler, or make no file for one."""
BUG = "HP457"
"""The code of a refusal that reports a bug in the holder."""
_COMMAND_MAX = 200
_SHOWN = 5


class Client(Caller):
    """One connection to a holder."""

    def __init__(self, link: socket.socket) -> None:
        super().__init__(link, text_max=REQUEST_BYTES, descriptors_max=REQUEST_DESCRIPTORS)
        self.requested: Request | None = None
        """The request as it was read; None until then, and if it is invalid."""
        self.next_sign = 0.0
        """When the client gets the next sign of life, while it waits."""
        self.generation: Generation | None = None
        """The generation to which the client is attached."""
        self.access = "r"
        """r, rw, or plan: what the plan of its generation allows for each object."""
        self.since = time.time()
        """When it connected, or attached. Comparisons use `began`, of a clock that never jumps."""

    @property
    def is_waiting(self) -> bool:
        """Whether the holder has read the request and not begun to answer."""
        return self.requested is not None and self.exchange is None and self.generation is None

    @property
    def request(self) -> Request:
        """The request, which was read."""
        assert self.requested is not None
        return self.requested

    def answer(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Start to send an answer, with the number of the request."""
        number = {} if self.requested is None else {"number": self.requested.number}
        super().answer(message | number, descriptors)

    def attach(self, generation: Generation, access: str) -> None:
        """Note what the client is attached to."""
        generation.give(access)
        self.generation, self.access, self.stays = generation, access, True
        self.since, self.began = time.time(), time.monotonic()

    def detach(self) -> None:
        """Note that the client is not attached after all: its request failed."""
        self.generation, self.stays = None, False

    def give_sign(self) -> None:
        """Let the client know that the holder is at work, several times within the time for which it waits."""
        self.notify(SIGN)
        self.next_sign = time.monotonic() + min(max(self.request.timeout_s / 4, _SIGN_MIN_S), _SIGN_MAX_S)

    def status(self) -> dict[str, Any]:
        """Returns what `ps` shows of it."""
        number = self.generation.number if self.generation is not None else 0
        return {
            "pid": self.pid,
            "command": command_of(self.pid),
            "since": self.since,
            "generation": number,
            "access": self.access,
        }


class Clients(Listener[Client]):
    """All clients of a holder."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        *,
        on_request: Callable[[Client], None],
        on_attached: Callable[[Client], None],
        on_deadline: Callable[[Client], None],
        on_disconnect: Callable[[Client], None],
    ) -> None:
        """sockets: to which clients connect. Called with a client: on_attached, when it has received all descriptors;
        the others as a listener calls them. Raises OSError."""
        super().__init__(
            sockets,
            Client,
            on_request,
            on_answered=on_attached,
            on_deadline=on_deadline,
            on_disconnect=on_disconnect,
            callers_max=CLIENTS_MAX,
            pending_max=PENDING_MAX,
        )

    def attached(self) -> list[Client]:
        """Attached clients, by the time at which they attached."""
        return sorted((client for client in self if client.generation is not None), key=lambda client: client.began)

    def wait_s(self) -> float | None:
        waits = [client.next_sign - time.monotonic() for client in self if client.is_waiting]
        if (wait_s := super().wait_s()) is not None:
            waits.append(wait_s)
        return max(0.0, min(waits)) if waits else None

    def serve(self) -> None:
        super().serve()
        for client in self:
            if client.is_waiting and client.next_sign <= time.monotonic():
                client.give_sign()


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
