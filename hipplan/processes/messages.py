"""Messages between processes of one user on one machine: JSON over UNIX sockets, bounded in size, time and number.

A message is its length (4 bytes, big-endian) and a JSON object in UTF-8. Sockets are in a folder that only their user
can enter: no other user can take their names or connect. Both ends also ask the kernel for the user at the other end
(SO_PEERCRED), and accept only the same user.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import selectors
import socket
import stat
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from typing_extensions import Self

from hipplan.files import strict_json
from hipplan.processes.folders import folders, new_folder, opened, within

Message = dict[str, Any]

_LENGTH = struct.Struct(">I")

MESSAGE_BYTES = 4 << 20
"""The size of a reply, at most."""
REQUEST_BYTES = 4096
PATIENCE_S = 5.0
"""How long a client may take to send its request, and to read the reply."""
CLIENTS = 16
"""How many clients are served at once; the next one replaces the one that has had the most time."""
ACCEPT_PAUSE_S = 1.0
"""How long no connection is accepted after the process ran out of descriptors; clients wait meanwhile."""
STALE_S = 60.0
"""A socket without a listening process is removed when it is older; for a younger one, listen() may follow."""


@dataclass(slots=True)
class _Client:
    connection: socket.socket
    until: float
    asked: bytearray = field(default_factory=bytearray)
    wanted: int = _LENGTH.size
    answer: memoryview | None = None


class Server:
    """Answers requests while it is entered, in the thread that calls serve() whenever fileno() is readable.

    answer: returns the reply to a request. Its exceptions are not caught.
    """

    def __init__(self, answer: Callable[[Message], Message]) -> None:
        self._answer = answer
        self._clients: dict[int, _Client] = {}
        self._paused_until: float | None = None

    def __enter__(self) -> Self:
        """Raises OSError: no folder, no descriptor, or a sandbox without sockets."""
        with contextlib.ExitStack() as undo:
            self._ready = undo.enter_context(selectors.EpollSelector())
            self._listener = undo.enter_context(
                socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            )
            self._folder = new_folder()
            undo.callback(os.close, self._folder)
            self.name = f"{os.getpid()}-{os.urandom(8).hex()}"
            self._listener.bind(within(self._folder, self.name))
            undo.callback(self._unlink)
            self._listener.listen(CLIENTS)
            self._ready.register(self._listener, selectors.EVENT_READ)
            self._open = undo.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        for client in list(self._clients.values()):
            self._drop(client)
        self._open.close()

    def forget(self) -> None:
        """Called in a forked child: closes its copies of the descriptors, without an effect on the parent."""
        for client in self._clients.values():
            client.connection.close()
        self._listener.close()
        self._ready.close()
        os.close(self._folder)

    def _unlink(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self.name, dir_fd=self._folder)

    def fileno(self) -> int:
        """Readable when serve() has something to do."""
        return self._ready.fileno()

    def wait_s(self) -> float | None:
        """After how many seconds serve() must be called even if nothing is readable; None: never."""
        times = [client.until for client in self._clients.values()]
        if self._paused_until is not None:
            times.append(self._paused_until)
        return max(0.0, min(times) - monotonic()) if times else None

    def serve(self) -> None:
        """Does what can be done without waiting."""
        if self._paused_until is not None and self._paused_until <= monotonic():
            self._paused_until = None
            self._ready.register(self._listener, selectors.EVENT_READ)
        for key, _ in self._ready.select(0):
            if key.fileobj is self._listener:
                self._accept()
            elif (client := self._clients.get(key.fd)) is not None:  # None: it was dropped for a newer one
                self._talk(client)
        for client in [client for client in self._clients.values() if client.until <= monotonic()]:
            self._drop(client)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:  # the client has ended already, or
            if error.errno in (errno.EMFILE, errno.ENFILE):  # it stays in the queue, which would stay readable
                self._ready.unregister(self._listener)
                self._paused_until = monotonic() + ACCEPT_PAUSE_S
            return
        connection.setblocking(False)
        if peer(connection)[1] != os.geteuid():
            connection.close()
            return
        if len(self._clients) == CLIENTS:
            self._drop(min(self._clients.values(), key=lambda client: client.until))
        self._clients[connection.fileno()] = _Client(connection, monotonic() + PATIENCE_S)
        self._ready.register(connection, selectors.EVENT_READ)

    def _talk(self, client: _Client) -> None:
        try:
            if client.answer is None:
                self._listen(client)
            else:
                client.answer = client.answer[client.connection.send(client.answer) :]
        except BlockingIOError:
            return
        except (OSError, ValueError, RecursionError):  # it has ended, or its request is invalid
            self._drop(client)
            return
        if client.answer is not None and not client.answer:
            self._drop(client)

    def _listen(self, client: _Client) -> None:
        got = client.connection.recv(client.wanted - len(client.asked))
        if not got:
            raise ConnectionError("it has ended")
        client.asked += got
        if len(client.asked) == client.wanted == _LENGTH.size:
            client.wanted += _length(client.asked, REQUEST_BYTES)
        if len(client.asked) < client.wanted:
            return
        client.answer = memoryview(packed(self._answer(_unpacked(client.asked[_LENGTH.size :]))))
        client.until = monotonic() + PATIENCE_S
        self._ready.modify(client.connection, selectors.EVENT_WRITE)

    def _drop(self, client: _Client) -> None:
        self._ready.unregister(client.connection)
        del self._clients[client.connection.fileno()]
        client.connection.close()


def serve_until(stop: int, server: Server | None) -> None:
    """Sleeps until the descriptor `stop` can be read, and answers requests to the server meanwhile."""
    ready = select.poll()  # not select(): descriptors beyond 1023 are usual where each allocation costs one
    for descriptor in (stop, *([server.fileno()] if server else [])):
        ready.register(descriptor, select.POLLIN)
    while True:
        limit_s = server.wait_s() if server else None
        if any(descriptor == stop for descriptor, _ in ready.poll(None if limit_s is None else 1000 * limit_s)):
            return
        if server is not None:
            server.serve()


def packed(message: Message) -> bytes:
    """The bytes for a socket. Raises ValueError if they are longer than a reader accepts."""
    text = strict_json.dumps(message).encode()
    if len(text) > MESSAGE_BYTES:
        raise ValueError("the message is too long")
    return _LENGTH.pack(len(text)) + text


def _length(begin: bytes | bytearray, most: int) -> int:
    (length,) = _LENGTH.unpack_from(begin)
    if not 0 < length <= most:
        raise ValueError("the message is too long")
    return int(length)


def _unpacked(text: bytes | bytearray) -> Message:
    message = strict_json.loads(bytes(text))
    if not isinstance(message, dict):
        raise ValueError("a message is a JSON object")
    return message


class Caller:
    """A connection to a server of this user. Raises OSError if no process listens, or none accepts in time.

    until: by time.monotonic(); every wait ends then, with TimeoutError.
    """

    def __init__(self, folder: int, name: str, until: float) -> None:
        self._until = until
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._connect(within(folder, name))
            if peer(self._connection)[1] != os.geteuid():
                raise PermissionError(errno.EPERM, "it belongs to another user")
        except BaseException:
            self._connection.close()
            raise

    def _connect(self, address: str) -> None:
        self._connection.setblocking(False)
        while True:
            try:
                self._connection.connect(address)
                return
            except BlockingIOError:  # its queue is full
                if monotonic() >= self._until:
                    raise TimeoutError from None
                time.sleep(0.02)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._connection.close()

    def send(self, request: Message) -> None:
        """Sends a request, which always fits into the kernel's buffer. Raises OSError."""
        self._connection.sendall(packed(request))

    def receive(self) -> Message:
        """Returns the reply. Raises OSError; ValueError or RecursionError for an invalid one."""
        begin = self._read(_LENGTH.size)
        return _unpacked(self._read(_length(begin, MESSAGE_BYTES)))

    def _read(self, length: int) -> bytearray:
        text = bytearray()
        while len(text) < length:
            self._connection.settimeout(max(0.001, self._until - monotonic()))
            if not (got := self._connection.recv(min(65536, length - len(text)))):
                raise ConnectionError(errno.ECONNRESET, "it has ended")
            text += got
        return text


def servers() -> Iterator[tuple[int, str]]:
    """The sockets of this user, also of dead processes: (folder, name). A folder is open until the next iteration."""
    for path in folders():
        with contextlib.suppress(OSError), opened(path) as folder:
            for name in sorted(os.listdir(folder)):  # noqa: PTH208  # of the checked folder
                yield folder, name


def remove_stale(folder: int, name: str) -> None:
    """Removes an old socket on which no process listens."""
    with contextlib.suppress(OSError):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISSOCK(status.st_mode) and time.time() - status.st_mtime > STALE_S:
            os.unlink(name, dir_fd=folder)


def peer(connection: socket.socket) -> tuple[int, int, int]:
    """(process, user, group) at the other end, as the kernel knows them."""
    size = struct.calcsize("3i")
    process, user, group = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return process, user, group
