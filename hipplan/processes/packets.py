"""Messages with descriptors between processes of one user on one machine: packets over UNIX sockets, all bounded.

A message is a packet with its sizes, JSON in packets of 64 KiB, then descriptors, 253 a packet. Each packet of
descriptors is acknowledged before the next is sent, so that few are in flight to a slow receiver. Signs of life may
come before a message. For C programs cpp/c/exchange.cpp does the same.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import struct
import time
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hipplan.files import strict_json
from hipplan.files.open_files import make_room
from hipplan.processes.messages import peer

Message = dict[str, Any]

TEXT_MAX = 64 << 20
DESCRIPTORS_MAX = 1 << 20
CLOSED = b"closed"
"""The last packet of a process that ends on purpose."""
SIGN = b"L"
"""The packet of a process that is still at work on what another one waits for."""
_PACKET, _BATCH = 1 << 16, 253
_AT_ONCE = 1024
"""How many packets are received before the process looks at its other work: more than a socket holds."""
_HEAD, _INT = struct.Struct(">II"), struct.Struct("i")
_OVERFLOW_UID = 65534
"""The id that the kernel reports for users of other namespaces without an id in this one."""
_ANSWER = b"A"


LOOK_S = 0.05
NEVER = float("inf")


class Gone(Exception):
    """The other end is closed, or broke the protocol."""


class TooLong(Exception):
    """A message that this process wants to send is longer than any process accepts. Nothing of it was sent."""


@dataclass
class Received:
    """A received message. Its owner closes the descriptors."""

    message: Message
    descriptors: list[int] = field(default_factory=list)

    def close(self) -> None:
        while self.descriptors:
            os.close(self.descriptors.pop())


class Exchange:
    """Sends a message to the other end and receives one, packet by packet, without blocking."""

    def __init__(
        self,
        link: socket.socket,
        message: Message | None,
        descriptors: Sequence[int] = (),
        *,
        receives: bool = True,
        text_max: int = TEXT_MAX,
        descriptors_max: int = DESCRIPTORS_MAX,
    ) -> None:
        """message: None sends nothing. receives: whether to receive a message, of at most text_max bytes and with at
        most descriptors_max descriptors. Raises TooLong."""
        self.link = link
        self.received = Received({})
        self.stalled = False
        """The kernel accepts no descriptors now: too many of this user's are in flight."""
        self.packets = 0
        """How many were received, signs of life included."""
        self._bounds = text_max, descriptors_max
        self._out: deque[tuple[bytes, Sequence[int]]] = deque()
        self._unanswered = 0
        """Packets with descriptors that are not acknowledged yet."""
        self._text = bytearray()
        self._expected: tuple[int, int] | None = None
        self._complete = not receives
        if message is not None:
            self._enqueue(strict_json.dumps(message).encode(), descriptors)

    def _enqueue(self, text: bytes, descriptors: Sequence[int]) -> None:
        if len(text) > TEXT_MAX:
            raise TooLong(f"the message has {len(text):,} bytes, and at most {TEXT_MAX:,} can be sent")
        self._out.append((b"H" + _HEAD.pack(len(text), len(descriptors)), ()))
        self._out.extend((b"J" + text[at : at + _PACKET], ()) for at in range(0, len(text), _PACKET))
        batches = (descriptors[at : at + _BATCH] for at in range(0, len(descriptors), _BATCH))
        self._out.extend((b"F", batch) for batch in batches)

    @property
    def done(self) -> bool:
        return self._complete and not self._out and not self._unanswered

    @property
    def events(self) -> int:
        """The selector events to wait for; 0 if it is done. A stalled one continues after a moment without an event."""
        if self.done:
            return 0
        waits = not self._out or self.stalled or (self._out[0][0] == b"F" and self._unanswered > 0)
        return selectors.EVENT_READ | (0 if waits else selectors.EVENT_WRITE)

    def go_on(self) -> None:
        """Sends and receives what is possible without waiting. Raises Gone."""
        self.stalled = False
        try:
            self._send_all()
            with contextlib.suppress(BlockingIOError):
                for _ in range(_AT_ONCE):
                    if self.done:
                        break
                    self._receive()
            self._send_all()
        except Gone:
            raise
        except (OSError, ValueError, RecursionError, struct.error) as error:
            raise Gone(str(error)[:200]) from None

    def _send_all(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._out and not (self._out[0][0] == b"F" and self._unanswered):
                self._send(*self._out[0])
                self._out.popleft()

    def _send(self, packet: bytes, descriptors: Sequence[int]) -> None:
        if not descriptors:
            self.link.send(packet)
            return
        try:
            socket.send_fds(self.link, [packet], list(descriptors))
        except OSError as error:
            if error.errno == errno.ETOOMANYREFS:
                self.stalled = True
                raise BlockingIOError from None
            raise
        self._unanswered += 1

    def _receive(self) -> None:
        room = socket.CMSG_LEN(_BATCH * _INT.size)
        packet, beside, flags, _ = self.link.recvmsg(
            _PACKET + 1, room, socket.MSG_CMSG_CLOEXEC
        )  # recv_fds has no flags
        for level, kind_of_data, data in beside:
            if (level, kind_of_data) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                whole = data[: len(data) // _INT.size * _INT.size]
                self.received.descriptors += (number for (number,) in _INT.iter_unpack(whole))
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise ValueError("a packet was truncated: this process may be out of file descriptors (ulimit -n)")
        self.packets += 1
        kind, rest = packet[:1], packet[1:]
        if not packet or packet == CLOSED:
            raise Gone("it has ended")
        if packet == SIGN:
            return
        if kind == _ANSWER and self._unanswered:
            self._unanswered -= 1
        elif kind == b"H" and self._expected is None and not self._complete:
            length, count = _HEAD.unpack(rest)
            if length > self._bounds[0] or count > self._bounds[1]:
                raise ValueError("the message is too long")
            self._expected = length, count
            if count:
                make_room(len(os.listdir("/proc/self/fd")) + count)  # noqa: PTH208
        elif kind == b"J" and self._expected is not None:
            self._text += rest
        elif kind == b"F" and self._expected is not None:
            self._out.appendleft((_ANSWER, ()))
        else:
            raise ValueError("it sent an unexpected message")
        self._end()

    def _end(self) -> None:
        if self._expected is None or self._complete:
            return
        length, count = self._expected
        if len(self._text) > length or len(self.received.descriptors) > count:
            raise ValueError("it sent more than it announced")
        if (len(self._text), len(self.received.descriptors)) == (length, count):
            message = strict_json.loads(bytes(self._text))
            if not isinstance(message, dict):
                raise ValueError("a message is a JSON object")
            self.received.message = message
            self._complete = True


class Late(Exception):
    """The other end did not send everything before the deadline."""

    def __init__(self, silence_s: float) -> None:
        super().__init__(f"nothing came for {silence_s:.3g} s")
        self.silence_s = silence_s
        """For how many seconds nothing has come."""


_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


class Connection:
    """A connection to one process. A forked child closes it."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self._last_packet: bytes | None = b""
        _connections.add(self)

    def exchange(
        self,
        message: Message | None,
        until: float = NEVER,
        descriptors: Sequence[int] = (),
        *,
        receives: bool = True,
        silence_s: float = NEVER,
    ) -> Received:
        """Sends a message and returns the received one, as Exchange does.

        until: the deadline, by time.monotonic(). silence_s: how many seconds may pass without a packet, which may be a
        sign of life. Raises TooLong; Late, Gone, after closing all received descriptors.
        """
        exchange = Exchange(self.link, message, descriptors, receives=receives)
        packets, heard = 0, time.monotonic()
        try:
            with selectors.DefaultSelector() as ready:
                ready.register(self.link, exchange.events or selectors.EVENT_READ)
                while True:
                    exchange.go_on()
                    if exchange.done:
                        return exchange.received
                    now = time.monotonic()
                    if exchange.packets > packets:
                        packets, heard = exchange.packets, now
                    if now >= min(until, heard + silence_s):
                        raise Late(now - heard)
                    ready.modify(self.link, exchange.events)
                    ready.select(LOOK_S)
        except BaseException:
            exchange.received.close()
            raise

    def last_packet(self) -> bytes | None:
        """The last packet that the other end sent without a request, b"" if none; None once it ended without one."""
        while self._last_packet is not None and self._last_packet != CLOSED:
            try:
                packet = self.link.recv(64)
            except BlockingIOError:
                break
            except OSError:
                packet = b""
            self._last_packet = packet or None
        return self._last_packet

    def close(self) -> None:
        self.link.close()


def _close_in_child() -> None:
    """A forked child would keep its parent's connection open and hide the parent's end."""
    for connection in _connections:
        connection.close()


os.register_at_fork(after_in_child=_close_in_child)


def new_socket() -> socket.socket:
    """Raises OSError."""
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)


def is_same_user(link: socket.socket) -> bool:
    """Whether the process at the other end belongs to this user, by the kernel."""
    user = peer(link)[1]
    return user == os.geteuid() and user != _OVERFLOW_UID
