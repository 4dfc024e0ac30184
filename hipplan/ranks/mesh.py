"""Connections between the ranks of one node, over which they send descriptors of memory.

Each rank listens on an abstract socket (without a file) with a random name, and publishes the name and a nonce through
the group. Of two ranks the higher one connects. Both ends ask the kernel for the user at the other end (SO_PEERCRED),
and accept only the same user. All waits have a deadline, and all messages a limit.
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

from hipplan.processes.packets import CLOSED, Exchange, Gone, Message, Received, is_same_user, new_socket

Look = Callable[[], bool]
"""Called every 50 ms during a wait, which ends if it returns true or raises."""

_LOOK_S = 0.05
_NONE: Mapping[int, Sequence[int]] = {}


class PeerGone(Exception):
    """A rank has closed its end, or broke the protocol."""

    def __init__(self, rank: int, why: str) -> None:
        super().__init__(f"rank {rank}: {why}")
        self.rank = rank


class Late(Exception):
    """Ranks did not connect, or not send everything, before the deadline; or look() ended the wait."""

    def __init__(self, ranks: Iterable[int]) -> None:
        self.ranks = sorted(ranks)
        super().__init__(f"ranks {self.ranks}")


class Listener:
    """The socket to which other ranks of the node connect, until close()."""

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
                    self._connect_to(links[other], other, name, until, look, set(others) - set(links))
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

    def _connect_to(
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


def _go_on(rank: int, exchange: Exchange, ready: selectors.BaseSelector) -> None:
    """Raises PeerGone."""
    try:
        exchange.go_on()
    except Gone as gone:
        raise PeerGone(rank, str(gone)) from None
    if exchange.events:
        ready.modify(exchange.link, exchange.events, rank)
    else:
        ready.unregister(exchange.link)


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

        Raises TooLong; Late, PeerGone, OSError, with all descriptors that came closed.
        """
        exchanges = {
            rank: Exchange(link, messages[rank], descriptors.get(rank, ())) for rank, link in self._links.items()
        }
        try:
            with selectors.DefaultSelector() as ready:
                for rank, exchange in exchanges.items():
                    ready.register(exchange.link, exchange.events, rank)
                looked = 0.0
                while not all(exchange.done for exchange in exchanges.values()):
                    now = time.monotonic()
                    ended = now >= until
                    if not ended and now - looked >= _LOOK_S:
                        looked, ended = now, look()
                    # Also reads at the end, what a rank sent before it failed: it may be complete.
                    able = {key.data for key, _ in ready.select(0 if ended else _LOOK_S)}
                    for rank in able.union(rank for rank, exchange in exchanges.items() if exchange.stalled):
                        _go_on(rank, exchanges[rank], ready)
                    if ended and (awaited := [rank for rank, exchange in exchanges.items() if not exchange.done]):
                        raise Late(awaited)
        except BaseException:
            for exchange in exchanges.values():
                exchange.received.close()
            raise
        return {rank: exchange.received for rank, exchange in exchanges.items()}

    def lost(self) -> dict[int, str]:
        """Rank -> "closed" or "ended", for ranks whose layout no longer exists."""
        for rank, link in self._links.items():
            if rank in self._gone:
                continue  # the connection stays: that rank may wait for the end of this one
            try:
                packet = link.recv(64)
            except BlockingIOError:
                continue
            except OSError:
                packet = b""
            self._gone[rank] = "closed" if packet == CLOSED else "ended"
        return dict(self._gone)

    def wait(self, until: float) -> list[int]:
        """Waits for the other ranks; returns those that have neither closed nor ended by then."""
        while True:
            held = self._links.keys() - self.lost().keys()
            if not held or time.monotonic() >= until:
                return sorted(held)
            time.sleep(_LOOK_S)

    def send_closed(self) -> None:
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


def _wait(link: socket.socket, event: int) -> None:
    with selectors.DefaultSelector() as ready:
        ready.register(link, event)
        ready.select(_LOOK_S)


def _moments(until: float, look: Look, awaited: Iterable[int], *, quietly: bool = False) -> Iterator[None]:
    """Iterates until a monotonic time. Raises Late then, or returns if `quietly`."""
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
