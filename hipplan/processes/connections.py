"""Connections to other processes of this user on this machine, and waits for their messages, which all have an end."""

from __future__ import annotations

import os
import selectors
import socket
import struct
import time
import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from hipplan.processes.packets import CLOSED, Exchange, Gone, Message, Received

LOOK_S = 0.05
NEVER = float("inf")
_CONNECT_PAUSE_S = 0.01
_OVERFLOW_UID = 65534
"""The id that the kernel reports for users of other namespaces without an id in this one."""
_CREDENTIALS = struct.Struct("3i")

Look = Callable[[], bool]
"""Called every 50 ms during a wait, which ends if it returns true or raises."""
_Key = TypeVar("_Key", bound=Hashable)


class Late(Exception):
    """Processes did not accept a connection, or not send everything, before the deadline; or a look ended the wait."""

    def __init__(self, missing: Iterable[Any], silence_s: float = 0.0) -> None:
        super().__init__(f"nothing came for {silence_s:.3g} s")
        self.missing = sorted(missing)
        """The keys of these processes."""
        self.silence_s = silence_s
        """For how many seconds nothing has come."""


class OtherUser(PermissionError):
    """The socket of a process of another user."""

    def __init__(self, process: int, user: int) -> None:
        super().__init__(1, "its socket belongs to another user")
        self.process, self.user = process, user


def never() -> bool:
    """A look that ends no wait."""
    return False


class Wait:
    """A wait until a monotonic time, or until look() ends it."""

    def __init__(self, until: float, look: Look = never) -> None:
        self.now = 0.0
        """The time of the last call of is_over()."""
        self._until, self._look, self._looked = until, look, 0.0

    def is_over(self, until: float = NEVER) -> bool:
        """Whether the wait ends now. until: an earlier end. Raises what look() raises."""
        self.now = time.monotonic()
        if self.now >= min(until, self._until):
            return True
        if self.now - self._looked < LOOK_S:
            return False
        self._looked = self.now
        return self._look()


def new_socket() -> socket.socket:
    """Raises OSError."""
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)


def peer(link: socket.socket) -> tuple[int, int]:
    """(process, user) at the other end, as the kernel knows them."""
    credentials = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(credentials)
    return process, user


def is_same_user(link: socket.socket) -> bool:
    """Whether the process at the other end belongs to this user, by the kernel."""
    user = peer(link)[1]
    return user == os.geteuid() and user != _OVERFLOW_UID


def connect(address: str, until: float, look: Look = never) -> socket.socket:
    """Returns a connection to the socket at an address, on which a process of this user listens.

    Raises Late: it accepts none in time; OtherUser; OSError: no process listens there.
    """
    link, wait = new_socket(), Wait(until, look)
    try:
        while True:
            try:
                link.connect(address)
                break
            except BlockingIOError:  # its queue is full
                if wait.is_over():
                    raise Late([0]) from None
                time.sleep(_CONNECT_PAUSE_S)
        if not is_same_user(link):
            raise OtherUser(*peer(link))
    except BaseException:
        link.close()
        raise
    return link


def exchange_with_all(
    exchanges: Mapping[_Key, Exchange], until: float, look: Look = never, *, silence_s: float = NEVER
) -> None:
    """Sends and receives until all exchanges are done.

    until: the deadline, by time.monotonic(). silence_s: how many seconds may pass without a packet, which may be a sign
    of life. Raises Late and Gone, with the keys of these processes, and OSError, after closing all received
    descriptors.
    """
    try:
        _exchange_with_all(exchanges, Wait(until, look), silence_s)
    except BaseException:
        for exchange in exchanges.values():
            exchange.received.close()
        raise


def _exchange_with_all(exchanges: Mapping[_Key, Exchange], wait: Wait, silence_s: float) -> None:
    heard, packets = time.monotonic(), 0
    with selectors.DefaultSelector() as ready:
        for key, exchange in exchanges.items():
            if not exchange.done:
                ready.register(exchange.link, exchange.events, key)
        while missing := _missing(exchanges):
            is_over = wait.is_over(heard + silence_s)
            # Also reads at the end what a process has sent before it: it may be complete.
            able = {event.data for event, _ in ready.select(0 if is_over else LOOK_S)}
            for key in able.union(key for key in missing if exchanges[key].stalled):
                _go_on(key, exchanges[key], ready)
            if is_over and (missing := _missing(exchanges)):
                raise Late(missing, wait.now - heard)
            if (count := sum(exchange.packets for exchange in exchanges.values())) > packets:
                packets, heard = count, wait.now


def _missing(exchanges: Mapping[_Key, Exchange]) -> list[_Key]:
    return [key for key, exchange in exchanges.items() if not exchange.done]


def _go_on(key: Hashable, exchange: Exchange, ready: selectors.BaseSelector) -> None:
    """Raises Gone."""
    try:
        exchange.go_on()
    except Gone as gone:
        raise Gone(str(gone), key) from None
    if exchange.events:
        ready.modify(exchange.link, exchange.events, key)
    else:
        ready.unregister(exchange.link)


class Connection:
    """A connection to one process. A forked child closes it."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self._last_packet: bytes | None = b""
        close_in_forks(self)

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

        until, silence_s: as of exchange_with_all(). Raises TooLong; Late, Gone, after closing all received descriptors.
        """
        exchange = Exchange(self.link, message, descriptors, receives=receives)
        exchange_with_all({0: exchange}, until, silence_s=silence_s)
        return exchange.received

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

    def close_in_child(self) -> None:
        self.close()


class ClosedInForks(Protocol):
    """A forked child would keep its parent's connections open and hide the parent's end."""

    def close_in_child(self) -> None:
        """Close this process's copies of all descriptors, without an effect on the parent."""


_closed_in_forks: weakref.WeakSet[ClosedInForks] = weakref.WeakSet()


def close_in_forks(owner: ClosedInForks) -> None:
    """A forked child closes this first from now on."""
    _closed_in_forks.add(owner)


def _close_in_child() -> None:
    for owner in _closed_in_forks:
        owner.close_in_child()


os.register_at_fork(after_in_child=_close_in_child)
