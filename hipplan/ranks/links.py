"""Links between the ranks of one node, over which they send descriptors of memory.

Each rank listens on an abstract socket (without a file) with a random name, and publishes the name and a nonce through
the group. Of two ranks the higher one connects, and sends the other's nonce with its number.
"""

from __future__ import annotations

import contextlib
import secrets
import selectors
import socket
import time
from collections.abc import Mapping, Sequence

from hipplan.processes.connections import (
    LOOK_S,
    Late,
    Look,
    OtherUser,
    Wait,
    close_in_forks,
    connect,
    exchange_with_all,
    new_socket,
)
from hipplan.processes.listener import QUEUE, Caller, Listener
from hipplan.processes.packets import CLOSED, Exchange, Gone, Message, Received

_STRANGERS = 64
"""How many other processes may connect at once, beside the ranks."""
_NONE: Mapping[int, Sequence[int]] = {}


class LinkMaker:
    """A socket to which other ranks of the node connect, until close()."""

    def __init__(self) -> None:
        """Raises OSError: no descriptor, or a sandbox without sockets."""
        self.nonce = secrets.token_hex(16)
        self.name = f"hipplan-{secrets.token_hex(16)}"
        self._socket = new_socket()
        self._socket.bind(f"\0{self.name}")
        self._socket.listen(QUEUE)

    def close(self) -> None:
        self._socket.close()

    def links(self, rank: int, others: Mapping[int, tuple[str, str]], until: float, look: Look) -> Links:
        """Connects to each of the others. others: rank -> name and nonce of its socket.

        Raises Late, Gone, both with ranks; OSError.
        """
        with contextlib.ExitStack() as undo:
            links: dict[int, socket.socket] = {}
            for other in sorted(number for number in others if number < rank):
                links[other] = undo.enter_context(_connected(other, others[other], rank, until, look))
            self._accept(links, set(others) - set(links), until, look, undo)
            undo.pop_all()
        return Links(links)

    def _accept(
        self, links: dict[int, socket.socket], ranks: set[int], until: float, look: Look, undo: contextlib.ExitStack
    ) -> None:
        """Waits for connections of these ranks, and adds them to `links`."""
        if not ranks:
            return

        def on_message(caller: Caller) -> None:
            number = self._sender(caller.message or {})
            if number in ranks - set(links):
                links[number] = undo.enter_context(listener.release(caller))
            else:
                listener.disconnect(caller)

        callers_max = len(ranks) + _STRANGERS
        listener = Listener([self._socket], Caller, on_message, callers_max=callers_max, pending_max=callers_max)
        wait = Wait(until, look)
        try:
            with selectors.DefaultSelector() as ready:
                ready.register(listener, selectors.EVENT_READ)
                while missing := ranks - set(links):
                    is_over = wait.is_over()
                    ready.select(0 if is_over else LOOK_S)
                    listener.serve()
                    if is_over and (missing := ranks - set(links)):
                        raise Late(missing)
        finally:
            listener.close()

    def _sender(self, message: Message) -> int:
        """The rank that sent a message; -1 for a process that is not a rank of this node."""
        nonce, number = message.get("nonce"), message.get("rank")
        if not isinstance(nonce, str) or type(number) is not int:
            return -1
        is_known = secrets.compare_digest(nonce.encode(errors="replace"), self.nonce.encode())
        return number if is_known else -1


def _connected(other: int, where: tuple[str, str], rank: int, until: float, look: Look) -> socket.socket:
    """A connection to another rank, which knows by a message whose it is. where: name and nonce of its socket.

    Raises Late, Gone.
    """
    name, nonce = where
    try:
        link = connect(f"\0{name}", until, look)
    except Late:
        raise Late([other]) from None
    except OtherUser as error:
        raise Gone(str(error.strerror), other) from None
    except OSError as error:
        raise Gone(f"its socket cannot be reached: {error.strerror}", other) from None
    try:
        first = Exchange(link, {"nonce": nonce, "rank": rank}, receives=False)
        exchange_with_all({other: first}, until, look)
    except BaseException:
        link.close()
        raise
    return link


class Links:
    """A connection to each other rank of the node."""

    def __init__(self, links: Mapping[int, socket.socket]) -> None:
        self._links = dict(links)
        self._gone: dict[int, str] = {}
        close_in_forks(self)

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

        Raises TooLong; Late, Gone, with ranks, OSError, with all descriptors that came closed.
        """
        exchanges = {
            rank: Exchange(link, messages[rank], descriptors.get(rank, ())) for rank, link in self._links.items()
        }
        exchange_with_all(exchanges, until, look)
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
            open_ranks = self._links.keys() - self.lost().keys()
            if not open_ranks or time.monotonic() >= until:
                return sorted(open_ranks)
            time.sleep(LOOK_S)

    def send_closed(self) -> None:
        """Notifies the others that this rank has closed its layout, and not just ended."""
        for link in self._links.values():
            with contextlib.suppress(OSError):
                link.send(CLOSED)

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()

    def close_in_child(self) -> None:
        self.close()
