"""Connections between the ranks of one node, for what only travels there: descriptors of memory.

Each rank listens on a socket with a random name that the kernel keeps (nothing lies on disk), and says the name and a
nonce through the group. Of two ranks the higher one connects. Both ends ask the kernel who the other is (SO_PEERCRED):
only the same user is believed. All waits end at a deadline, and all messages are bounded.

A message is a packet with its sizes, JSON in packets of 64 KiB, then descriptors, 253 a packet; each of those is
answered before the next is sent, so that a slow receiver has few of them under way.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import socket
import struct
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hipplan.files import strict_json
from hipplan.processes.messages import peer

Message = dict[str, Any]
Look = Callable[[], bool]
"""Called now and then during a wait; true ends it, and what it raises does."""

TEXT_MAX = 64 << 20
DESCRIPTORS_MAX = 1 << 20
_PACKET, _BATCH = 1 << 16, 253
_HEAD = struct.Struct(">II")
_LOOK_S = 0.05
_OVERFLOW_UID = 65534
"""What the kernel calls users of other namespaces that have no number here."""
_CLOSED, _ANSWER = b"closed", b"A"
_NONE: Mapping[int, Sequence[int]] = {}


class PeerGone(Exception):
    """A rank has closed its end, or cannot be believed."""

    def __init__(self, rank: int, why: str) -> None:
        super().__init__(f"rank {rank}: {why}")
        self.rank = rank


class Late(Exception):
    """Ranks that have not come, or not sent all, by the deadline; or a look has ended the wait."""

    def __init__(self, ranks: Iterable[int]) -> None:
        self.ranks = sorted(ranks)
        super().__init__(f"ranks {self.ranks}")


@dataclass
class Received:
    """What one rank has sent. Whoever has it closes the descriptors."""

    message: Message
    descriptors: list[int] = field(default_factory=list)

    def close(self) -> None:
        while self.descriptors:
            os.close(self.descriptors.pop())


class Door:
    """Where other ranks of the node knock, until close()."""

    def __init__(self) -> None:
        """Raises OSError: no descriptor, or a sandbox without sockets."""
        self.nonce = secrets.token_hex(16)
        self.name = f"hipplan-{secrets.token_hex(16)}"
        self._socket = _socket()
        self._socket.bind(f"\0{self.name}")
        self._socket.listen(1024)

    def close(self) -> None:
        self._socket.close()

    def meet(self, rank: int, others: Mapping[int, tuple[str, str]], until: float, look: Look) -> Mesh:
        """Connects to each of the others. others: rank -> name and nonce of its door.

        Raises Late, PeerGone, OSError.
        """
        with contextlib.ExitStack() as undo:
            links: dict[int, socket.socket] = {}
            for other, (name, nonce) in others.items():
                if other < rank:
                    links[other] = undo.enter_context(_socket())
                    self._knock(links[other], other, name, until, look, set(others) - set(links))
                    links[other].send(f"{nonce} {rank}".encode())
            while awaited := set(others) - set(links):
                caller = self._accepted(until, look, awaited)
                undo.enter_context(caller)
                who = self._who(caller, until, look, awaited)
                if who in awaited:
                    links[who] = caller
                else:
                    caller.close()
            undo.pop_all()
        return Mesh(links)

    def _knock(
        self, link: socket.socket, other: int, name: str, until: float, look: Look, awaited: Iterable[int]
    ) -> None:
        for _ in _moments(until, look, {other, *awaited}):
            try:
                link.connect(f"\0{name}")
                break
            except BlockingIOError:  # its queue is full
                time.sleep(0.001)
            except OSError as error:
                raise PeerGone(other, f"its socket cannot be reached: {error.strerror}") from None
        if not _is_same_user(link):
            raise PeerGone(other, "its socket is another user's")

    def _accepted(self, until: float, look: Look, awaited: Iterable[int]) -> socket.socket:
        for _ in _moments(until, look, awaited):
            with contextlib.suppress(BlockingIOError):
                caller, _ = self._socket.accept()
                caller.setblocking(False)
                return caller
            _wait(self._socket, selectors.EVENT_READ)
        raise Late(awaited)

    def _who(self, caller: socket.socket, until: float, look: Look, awaited: Iterable[int]) -> int:
        """The rank that knocks; -1 for somebody who has no business here."""
        if not _is_same_user(caller):
            return -1
        for _ in _moments(min(until, time.monotonic() + 1.0), look, awaited, quietly=True):
            with contextlib.suppress(BlockingIOError):
                nonce, _, number = caller.recv(256).partition(b" ")
                known = secrets.compare_digest(nonce, self.nonce.encode()) and number.isdigit()
                return int(number[:9]) if known else -1
            _wait(caller, selectors.EVENT_READ)
        return -1


_meshes: weakref.WeakSet[Mesh] = weakref.WeakSet()


class Mesh:
    """A connection to each other rank of the node."""

    def __init__(self, links: Mapping[int, socket.socket]) -> None:
        self._links = dict(links)
        self._gone: dict[int, str] = {}
        _meshes.add(self)

    def __del__(self) -> None:
        self.close()

    @property
    def ranks(self) -> list[int]:
        return sorted(self._links)

    def exchange(
        self,
        messages: Mapping[int, Message],
        until: float,
        look: Look,
        descriptors: Mapping[int, Sequence[int]] = _NONE,
    ) -> dict[int, Received]:
        """Sends each rank its message and descriptors; returns what each has sent.

        Raises Late, PeerGone, OSError, with all descriptors that came closed.
        """
        talks = [_Talk(rank, link, messages[rank], descriptors.get(rank, ())) for rank, link in self._links.items()]
        try:
            with selectors.DefaultSelector() as ready:
                for talk in talks:
                    ready.register(talk.link, talk.events, talk)
                looked = 0.0
                while not all(talk.done for talk in talks):
                    now = time.monotonic()
                    ended = now >= until
                    if not ended and now - looked >= _LOOK_S:
                        looked, ended = now, look()
                    # What a rank sent before it failed is read also at the end: it may be all that was to come.
                    for key, _ in ready.select(0 if ended else _LOOK_S):
                        talk = key.data
                        talk.go_on()
                        if talk.events:
                            ready.modify(talk.link, talk.events, talk)
                        else:
                            ready.unregister(talk.link)
                    if ended and (awaited := [talk.rank for talk in talks if not talk.done]):
                        raise Late(awaited)
        except BaseException:
            for talk in talks:
                talk.received.close()
            raise
        return {talk.rank: talk.received for talk in talks}

    def lost(self) -> dict[int, str]:
        """Rank -> "closed" or "ended", of those whose layout is no more."""
        for rank, link in self._links.items():
            if rank in self._gone:
                continue  # the connection stays: that rank may wait for the end of this one
            try:
                said = link.recv(64)
            except BlockingIOError:
                continue
            except OSError:
                said = b""
            self._gone[rank] = "closed" if said == _CLOSED else "ended"
        return dict(self._gone)

    def wait(self, until: float) -> list[int]:
        """Ranks that have neither closed nor ended by then."""
        while True:
            held = self._links.keys() - self.lost().keys()
            if not held or time.monotonic() >= until:
                return sorted(held)
            time.sleep(_LOOK_S)

    def say_closed(self) -> None:
        """The others hear that this rank has closed its layout, and not just ended."""
        for link in self._links.values():
            with contextlib.suppress(OSError):
                link.send(_CLOSED)

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()


def _close_in_child() -> None:
    """A forked child would keep a connection of its parent's open, and nobody would hear of the parent's end."""
    for mesh in _meshes:
        mesh.close()


os.register_at_fork(after_in_child=_close_in_child)


class _Talk:
    """A message to one rank, and the one from it, packet by packet."""

    def __init__(self, rank: int, link: socket.socket, message: Message, descriptors: Sequence[int]) -> None:
        self.rank = rank
        self.link = link
        self.received = Received({})
        text = strict_json.dumps(message).encode()
        if len(text) > TEXT_MAX:
            raise ValueError("too long a message")
        parts = [b"J" + text[at : at + _PACKET] for at in range(0, len(text), _PACKET)]
        self._out: deque[tuple[bytes, Sequence[int]]] = deque([(b"H" + _HEAD.pack(len(text), len(descriptors)), ())])
        self._out.extend((part, ()) for part in parts)
        batches = (descriptors[at : at + _BATCH] for at in range(0, len(descriptors), _BATCH))
        self._out.extend((b"F", batch) for batch in batches)
        self._unanswered = 0
        """Packets with descriptors whose answer has not come."""
        self._text = bytearray()
        self._expected: tuple[int, int] | None = None
        self._complete = False

    @property
    def done(self) -> bool:
        return self._complete and not self._out and not self._unanswered

    @property
    def events(self) -> int:
        """What to wait for; 0 if nothing."""
        if self.done:
            return 0
        waits = not self._out or (self._out[0][0] == b"F" and self._unanswered > 0)
        return selectors.EVENT_READ | (0 if waits else selectors.EVENT_WRITE)

    def go_on(self) -> None:
        """Does what can be done without waiting. Raises PeerGone."""
        try:
            self._send_all()
            with contextlib.suppress(BlockingIOError):
                while not self.done:
                    self._receive()
            self._send_all()
        except PeerGone:
            raise
        except (OSError, ValueError, RecursionError, struct.error) as error:
            raise PeerGone(self.rank, str(error)[:200]) from None

    def _send_all(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._out and not (self._out[0][0] == b"F" and self._unanswered):
                self._send(*self._out[0])
                self._out.popleft()

    def _send(self, packet: bytes, descriptors: Sequence[int]) -> None:
        if descriptors:
            socket.send_fds(self.link, [packet], list(descriptors))
            self._unanswered += 1
        else:
            self.link.send(packet)

    def _receive(self) -> None:
        packet, descriptors, flags, _ = socket.recv_fds(self.link, _PACKET + 1, _BATCH)
        self.received.descriptors += descriptors
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise ValueError("a packet is cut: this process may have too few descriptors left (ulimit -n)")
        kind, rest = packet[:1], packet[1:]
        if not packet or packet == _CLOSED:
            raise PeerGone(self.rank, "it has gone")
        if kind == _ANSWER and self._unanswered:
            self._unanswered -= 1
        elif kind == b"H" and self._expected is None:
            length, count = _HEAD.unpack(rest)
            if length > TEXT_MAX or count > DESCRIPTORS_MAX:
                raise ValueError("too long a message")
            self._expected = length, count
        elif kind == b"J" and self._expected is not None:
            self._text += rest
        elif kind == b"F" and self._expected is not None:
            self._out.appendleft((_ANSWER, ()))
        else:
            raise ValueError("it says something else than was to come")
        self._end()

    def _end(self) -> None:
        if self._expected is None or self._complete:
            return
        length, count = self._expected
        if len(self._text) > length or len(self.received.descriptors) > count:
            raise ValueError("it sends more than it has said")
        if (len(self._text), len(self.received.descriptors)) == (length, count):
            message = strict_json.loads(bytes(self._text))
            if not isinstance(message, dict):
                raise ValueError("a message is a JSON object")
            self.received.message = message
            self._complete = True


def _socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)


def _is_same_user(link: socket.socket) -> bool:
    user = peer(link)[1]
    return user == os.geteuid() and user != _OVERFLOW_UID


def _wait(one: socket.socket, event: int) -> None:
    with selectors.DefaultSelector() as ready:
        ready.register(one, event)
        ready.select(_LOOK_S)


def _moments(until: float, look: Look, awaited: Iterable[int], *, quietly: bool = False) -> Iterator[None]:
    """Again and again until a monotonic time. Raises Late then, or returns if `quietly`."""
    looked = 0.0
    while True:
        yield
        now = time.monotonic()
        if now - looked >= _LOOK_S:
            looked = now
            if look():
                raise Late(awaited)
        if now >= until:
            if quietly:
                return
            raise Late(awaited)
