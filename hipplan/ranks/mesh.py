"""Connections between the ranks of one node, for what only travels there: descriptors of memory.

Each rank listens on a socket with a random name that the kernel keeps (nothing lies on disk), and says the name and a
nonce through the group. Of two ranks the higher one connects. Both ends ask the kernel who the other is (SO_PEERCRED):
only the same user is believed. All waits end at a deadline, and all messages are bounded.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import socket
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from hipplan.processes.packets import CLOSED, Gone, Message, Received, Talk, is_same_user, new_socket

Look = Callable[[], bool]
"""Called now and then during a wait; true ends it, and what it raises does."""

_LOOK_S = 0.05
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


class Door:
    """Where other ranks of the node knock, until close()."""

    def __init__(self) -> None:
        """Raises OSError: no descriptor, or a sandbox without sockets."""
        self.nonce = secrets.token_hex(16)
        self.name = f"hipplan-{secrets.token_hex(16)}"
        self._socket = new_socket()
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
                    links[other] = undo.enter_context(new_socket())
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
        if not is_same_user(link):
            raise PeerGone(other, "its socket belongs to another user")

    def _accepted(self, until: float, look: Look, awaited: Iterable[int]) -> socket.socket:
        for _ in _moments(until, look, awaited):
            with contextlib.suppress(BlockingIOError):
                caller, _ = self._socket.accept()
                caller.setblocking(False)
                return caller
            _wait(self._socket, selectors.EVENT_READ)
        raise Late(awaited)

    def _who(self, caller: socket.socket, until: float, look: Look, awaited: Iterable[int]) -> int:
        """The rank that connects; -1 for a process that is not a rank of this node."""
        if not is_same_user(caller):
            return -1
        for _ in _moments(min(until, time.monotonic() + 1.0), look, awaited, quietly=True):
            with contextlib.suppress(BlockingIOError):
                nonce, _, number = caller.recv(256).partition(b" ")
                known = secrets.compare_digest(nonce, self.nonce.encode()) and number.isdigit()
                return int(number[:9]) if known else -1
            _wait(caller, selectors.EVENT_READ)
        return -1


def _go_on(rank: int, talk: Talk, ready: selectors.BaseSelector) -> None:
    """Raises PeerGone."""
    try:
        talk.go_on()
    except Gone as gone:
        raise PeerGone(rank, str(gone)) from None
    if talk.events:
        ready.modify(talk.link, talk.events, rank)
    else:
        ready.unregister(talk.link)


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
        talks = {rank: Talk(link, messages[rank], descriptors.get(rank, ())) for rank, link in self._links.items()}
        try:
            with selectors.DefaultSelector() as ready:
                for rank, talk in talks.items():
                    ready.register(talk.link, talk.events, rank)
                looked = 0.0
                while not all(talk.done for talk in talks.values()):
                    now = time.monotonic()
                    ended = now >= until
                    if not ended and now - looked >= _LOOK_S:
                        looked, ended = now, look()
                    # What a rank sent before it failed is read also at the end: it may be all that was to come.
                    able = {key.data for key, _ in ready.select(0 if ended else _LOOK_S)}
                    for rank in able.union(rank for rank, talk in talks.items() if talk.stalled):
                        _go_on(rank, talks[rank], ready)
                    if ended and (awaited := [rank for rank, talk in talks.items() if not talk.done]):
                        raise Late(awaited)
        except BaseException:
            for talk in talks.values():
                talk.received.close()
            raise
        return {rank: talk.received for rank, talk in talks.items()}

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
            self._gone[rank] = "closed" if said == CLOSED else "ended"
        return dict(self._gone)

    def wait(self, until: float) -> list[int]:
        """Ranks that have neither closed nor ended by then."""
        while True:
            held = self._links.keys() - self.lost().keys()
            if not held or time.monotonic() >= until:
                return sorted(held)
            time.sleep(_LOOK_S)

    def say_closed(self) -> None:
        """Notifies the others that this rank has closed its layout, and not just ended."""
        for link in self._links.values():
            with contextlib.suppress(OSError):
                link.send(CLOSED)

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()


def _close_in_child() -> None:
    """A forked child would keep its parent's connection open and hide the parent's end."""
    for mesh in _meshes:
        mesh.close()


os.register_at_fork(after_in_child=_close_in_child)


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
