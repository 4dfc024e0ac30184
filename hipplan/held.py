"""A held layout answers other processes of the same user: `hipplan verify` asks it what it reads back now.

Over a UNIX socket of the abstract namespace: nothing is on disk, and it goes with the process. Both ends ask the kernel
who the other is (SO_PEERCRED). Every message is bounded in size and in time, so neither can make the other wait.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import secrets
import selectors
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any

from typing_extensions import Self

from hipplan import _core, strict_json
from hipplan.errors import Diagnostic, HeldError
from hipplan.layout import Layout

log = logging.getLogger("hipplan")

REQUEST = b"hipplan 1 verify\n"
PATIENCE_S = 5.0
"""How long a client may take to ask and to read."""
ANSWER_S = 30.0
"""How long an answer may take; reading back waits for the driver."""
ANSWER_BYTES = 4 << 20
DEAF_S = 1.0
"""How long nobody is let in after there was no descriptor for somebody: he waits at the door."""
_CLIENTS = 16

DIFFERENCES = 1000
"""At most so many are told one by one."""

Answer = dict[str, Any]


def report(layout: Layout) -> Answer:
    """What a layout reads back now. `checks`: how many; `differ`: how many of them differ from the plan."""
    program = layout.program
    out: Answer = {
        "format_version": strict_json.FORMAT_VERSION,
        "process": os.getpid(),
        "plan": program.name,
        "digest": program.digest,
        "machine": program.machine,
        "runtime": layout.runtime.path,
    }
    try:
        checks = layout.verify()
    except _core.HipError as error:
        return out | {"error": str(error)}
    wrong = checks.mismatches()
    told = [{"name": c.name, "what": c.what, "desired": c.desired, "current": c.current} for c in wrong[:DIFFERENCES]]
    return out | {"checks": len(checks), "differ": len(wrong), "differences": told}


@dataclass(slots=True)
class _Client:
    connection: socket.socket
    until: float
    asked: bytes = b""
    answer: memoryview = field(default_factory=lambda: memoryview(b""))


class Answers:
    """Answers as long as it is entered, in the thread that calls serve() whenever one of files() can be read.

    answer: makes the answer. What it raises is not caught.
    """

    def __init__(self, answer: Callable[[], Answer]) -> None:
        self._answer = answer
        self._clients: dict[int, _Client] = {}
        self._open: contextlib.ExitStack | None = None
        self._deaf_until: float | None = None

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as undo:
            try:
                self._ready = undo.enter_context(selectors.EpollSelector())
                self._door = undo.enter_context(
                    socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
                )
                # Random, because containers that share a network may have the same process ids.
                self._door.bind(f"{_prefix()}{os.getpid()}-{secrets.token_hex(4)}")
                self._door.listen(_CLIENTS)
                self._ready.register(self._door, selectors.EVENT_READ)
            except OSError as error:  # no descriptor left, or a sandbox without sockets: no reason not to hold
                log.warning("`hipplan verify` cannot ask this process: %s", error.strerror)
                return self
            self._open = undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in list(self._clients.values()):
            self._drop(client)
        if self._open is not None:
            self._open.close()

    def files(self) -> list[int]:
        """Readable when serve() has something to do."""
        return [] if self._open is None else [self._ready.fileno()]

    def wait_s(self) -> float | None:
        """After how many seconds serve() has something to do even so; None if never."""
        times = [one.until for one in self._clients.values()]
        if self._deaf_until is not None:
            times.append(self._deaf_until)
        return max(0.0, min(times) - monotonic()) if times else None

    def serve(self) -> None:
        """Does what can be done without waiting."""
        if self._open is None:
            return
        if self._deaf_until is not None and self._deaf_until <= monotonic():
            self._deaf_until = None
            self._ready.register(self._door, selectors.EVENT_READ)
        for key, _ in self._ready.select(0):
            if key.fileobj is self._door:
                self._let_in()
            else:
                self._talk(self._clients[key.fd])
        for client in [one for one in self._clients.values() if one.until <= monotonic()]:
            self._drop(client)

    def _let_in(self) -> None:
        try:
            connection, _ = self._door.accept()
        except OSError as error:  # it has gone again
            if error.errno in (errno.EMFILE, errno.ENFILE):  # or stays, and would be told of for ever
                self._ready.unregister(self._door)
                self._deaf_until = monotonic() + DEAF_S
            return
        connection.setblocking(False)
        if len(self._clients) == _CLIENTS or _peer(connection)[1] != os.getuid():
            connection.close()
            return
        client = _Client(connection, monotonic() + PATIENCE_S)
        self._clients[connection.fileno()] = client
        self._ready.register(connection, selectors.EVENT_READ)

    def _talk(self, client: _Client) -> None:
        try:
            if client.answer:
                client.answer = client.answer[client.connection.send(client.answer) :]
            else:
                self._listen(client)
        except BlockingIOError:
            return
        except OSError:  # it has gone
            self._drop(client)
            return
        if client.asked == REQUEST and not client.answer:
            self._drop(client)

    def _listen(self, client: _Client) -> None:
        got = client.connection.recv(len(REQUEST) - len(client.asked))
        client.asked += got
        if not got or not REQUEST.startswith(client.asked):
            raise ConnectionError("not a question")
        if client.asked == REQUEST:
            client.answer = memoryview(strict_json.dumps(self._answer()).encode())
            client.until = monotonic() + PATIENCE_S
            self._ready.modify(client.connection, selectors.EVENT_WRITE)

    def _drop(self, client: _Client) -> None:
        self._ready.unregister(client.connection)
        del self._clients[client.connection.fileno()]
        client.connection.close()


def processes() -> list[int]:
    """The processes of this user that hold a layout and can be asked."""
    found = []
    for name in _doors():
        with contextlib.suppress(OSError), _knock(name) as connection:
            process, user, _ = _peer(connection)
            if user == os.getuid():
                found.append(process)
    return sorted(found)


def ask(process: int | None = None) -> Answer:
    """What a held layout reads back now. process: its id; None: the only one there is.

    Raises HeldError (HP412): none holds one, there are several, or it does not answer.
    """
    holding = processes()
    if process is None:
        if len(holding) != 1:
            raise HeldError(_none_or_many(holding))
        (process,) = holding
    for name in _doors():
        with contextlib.suppress(OSError):
            connection = _knock(name)
            with connection:
                if _peer(connection)[:2] == (process, os.getuid()):
                    return _answer_of(connection, process)
    told = f"processes that hold one: {', '.join(map(str, holding)) or 'none'}"
    raise HeldError(Diagnostic("HP412", f"process {process} holds no layout of this user", hint=told))


def _none_or_many(holding: list[int]) -> Diagnostic:
    if not holding:
        hint = "`hipplan apply plan.yaml` holds one until ^C"
        return Diagnostic("HP412", "no process of this user holds a layout", hint=hint)
    which = ", ".join(map(str, holding))
    return Diagnostic("HP412", f"{len(holding)} processes hold a layout", why=which, hint="name one of them")


def _answer_of(connection: socket.socket, process: int) -> Answer:
    until = monotonic() + ANSWER_S
    text = bytearray()
    try:
        connection.sendall(REQUEST)
        while True:
            connection.settimeout(max(0.001, until - monotonic()))
            if not (got := connection.recv(65536)):
                break
            text += got
            if len(text) > ANSWER_BYTES:
                raise ValueError("too long an answer")
        answer = _read(bytes(text))
    except (OSError, ValueError, RecursionError) as error:
        why = f"it did not answer within {ANSWER_S:g} s" if isinstance(error, TimeoutError) else str(error)
        raise HeldError(Diagnostic("HP412", f"process {process} cannot be asked", why=why)) from None
    if "error" in answer:
        summary = f"process {process} cannot read its layout back"
        raise HeldError(Diagnostic("HP412", summary, why=str(answer["error"])))
    return answer


def _read(text: bytes) -> Answer:
    """Raises ValueError if it is no answer: whoever is there need not be hipplan."""
    answer = strict_json.loads(text)
    wanted: dict[str, type] = {"plan": str, "process": int, "checks": int, "differ": int, "differences": list}
    if isinstance(answer, dict) and answer.get("format_version") == strict_json.FORMAT_VERSION:
        if isinstance(answer.get("error"), str):
            return answer
        if all(isinstance(answer.get(key), kind) for key, kind in wanted.items()) and all(
            isinstance(one, dict) and {"name", "what", "desired", "current"} <= one.keys()
            for one in answer["differences"]
        ):
            return answer
    raise ValueError("not an answer of this version of hipplan")


def _prefix() -> str:
    return f"\0hipplan-{os.getuid()}-"


def _doors() -> list[str]:
    """Names of sockets that may be those of held layouts; who is behind them is not known yet."""
    wanted = _prefix().replace("\0", "@")
    names = (line.rpartition(" ")[2] for line in Path("/proc/net/unix").read_text(errors="replace").splitlines())
    return sorted({"\0" + name[1:] for name in names if name.startswith(wanted)})[:1000]


def _knock(name: str) -> socket.socket:
    """A connection. OSError if nobody is there, or nobody takes the time."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(PATIENCE_S / 5)
        connection.connect(name)
    except OSError:
        connection.close()
        raise
    return connection


def _peer(connection: socket.socket) -> tuple[int, int, int]:
    """(process, user, group) at the other end, as the kernel knows them."""
    size = struct.calcsize("3i")
    process, user, group = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return process, user, group
