"""Messages with descriptors between processes of one user on one machine: packets over UNIX sockets, all bounded.

docs/peers.md describes the packets. For C programs cpp/c/exchange.cpp sends and receives the same.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hipplan.files import strict_json
from hipplan.files.open_files import make_room

Message = dict[str, Any]

TEXT_MAX = 64 << 20
DESCRIPTORS_MAX = 1 << 20
CLOSED = b"closed"
"""The last packet of a process that ends on purpose."""
SIGN = b"L"
"""The packet of a process that is still at work on what another one waits for."""
_PACKET, _BATCH = 1 << 16, 253
_AT_ONCE = 1024
"""How many packets are received before the process looks at its other work: more than fits into a socket."""
_HEAD, _INT = struct.Struct(">II"), struct.Struct("i")
_ACKNOWLEDGED = b"A"


class Gone(Exception):
    """The other end is closed, or broke the protocol."""

    def __init__(self, why: str, peer: Any = None) -> None:
        """peer: the key of the process that it is, where there are several."""
        super().__init__(why)
        self.peer = peer


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
        self._unacknowledged = 0
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
        return self._complete and not self._out and not self._unacknowledged

    @property
    def events(self) -> int:
        """The selector events to wait for; 0 if it is done. A stalled one continues after a moment without an event."""
        if self.done:
            return 0
        waits = not self._out or self.stalled or (self._out[0][0] == b"F" and self._unacknowledged > 0)
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
        except ConnectionError:  # it had not read everything
            raise Gone("it has ended") from None
        except (OSError, ValueError, RecursionError, struct.error) as error:
            raise Gone(str(error)[:200]) from None

    def _send_all(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._out and not (self._out[0][0] == b"F" and self._unacknowledged):
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
        self._unacknowledged += 1

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
        if kind == _ACKNOWLEDGED and self._unacknowledged:
            self._unacknowledged -= 1
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
            self._out.appendleft((_ACKNOWLEDGED, ()))
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
