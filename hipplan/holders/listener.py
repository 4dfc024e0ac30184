"""A holder's listener: it accepts connections, reads requests and sends answers, and never waits for a client."""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from hipplan.holders.clients import Client
from hipplan.processes.messages import ACCEPT_PAUSE_S
from hipplan.processes.packets import CLOSED, LOOK_S, Gone, Message, is_same_user

CLIENTS_MAX, PENDING_MAX = 4096, 64
"""The most connections, and the most of them without a request yet: one more replaces the oldest of these."""
_CLOSE_S = 2.0
"""How long close() sends answers."""


class Listener:
    """All clients of a holder."""

    def __init__(
        self,
        listening: Sequence[socket.socket],
        selector: selectors.BaseSelector,
        *,
        on_request: Callable[[Client], None],
        on_attached: Callable[[Client], None],
        on_deadline: Callable[[Client], None],
        on_disconnect: Callable[[Client], None],
    ) -> None:
        """listening: the sockets that clients connect to.

        Called with a client: on_request, when its request is received; on_attached, when it has received all
        descriptors; on_deadline, when its deadline has passed; on_disconnect, when its connection is closed.
        """
        self._clients: set[Client] = set()
        self._listening = listening
        self._selector = selector
        self._on_request, self._on_attached = on_request, on_attached
        self._on_deadline, self._on_disconnect = on_deadline, on_disconnect
        self._paused_until: float | None = None
        """When to accept connections again, after this process ran out of descriptors."""
        self._listen()

    def __iter__(self) -> Iterator[Client]:
        """Iterates over a copy, because clients may disconnect during the iteration."""
        return iter([*self._clients])

    def deadlines(self) -> Iterator[float]:
        """The times at which tick() has work to do."""
        yield from (client.deadline for client in self._clients if client.deadline is not None)
        yield from (client.next_sign for client in self._clients if client.is_waiting)
        if self._paused_until is not None:
            yield self._paused_until
        if any(client.exchange is not None and client.exchange.stalled for client in self._clients):
            yield time.monotonic() + LOOK_S

    def tick(self) -> None:
        """Do what is due by now."""
        now = time.monotonic()
        if self._paused_until is not None and self._paused_until <= now:
            self._paused_until = None
            self._listen()
        for client in self:
            if client.deadline is not None and client.deadline <= now:
                self._on_deadline(client)
            elif client.exchange is not None and client.exchange.stalled:
                self._continue(client)
            if client.is_waiting and client.next_sign <= now:
                client.give_sign()

    def answer(self, client: Client, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Start to send an answer."""
        client.answer(message, descriptors)
        self._watch(client)

    def disconnect(self, client: Client) -> None:
        self._selector.unregister(client.link)
        self._clients.remove(client)
        client.close()
        self._on_disconnect(client)

    def close(self, waiting: Collection[Client], answer: Message) -> None:
        """Answer the waiting clients, notify all others and disconnect them. The selector must be closed."""
        for client in waiting:
            client.answer(answer)
        answered = {client for client in self._clients if client.is_reading_last_answer}
        for client in self._clients - answered:
            client.notify(CLOSED)
            client.close()
        deadline = time.monotonic() + _CLOSE_S
        for client in answered:
            with contextlib.suppress(Gone):
                while client.exchange is not None and not client.exchange.done and time.monotonic() < deadline:
                    client.exchange.go_on()
                    time.sleep(0 if client.exchange.done else LOOK_S)
            client.close()

    def _listen(self) -> None:
        for listening in self._listening:
            self._selector.register(listening, selectors.EVENT_READ, partial(self._accept, listening))

    def _accept(self, listening: socket.socket) -> None:
        try:
            link, _ = listening.accept()
        except OSError as error:  # the client has disconnected already
            if error.errno in (errno.EMFILE, errno.ENFILE):  # the connection stays, and the selector reports it again
                for paused in self._listening:
                    self._selector.unregister(paused)
                self._paused_until = time.monotonic() + ACCEPT_PAUSE_S
            return
        link.setblocking(False)
        if not is_same_user(link) or len(self._clients) >= CLIENTS_MAX:
            link.close()
            return
        pending = [client for client in self._clients if client.is_sending_request]
        if len(pending) >= PENDING_MAX:
            self.disconnect(min(pending, key=lambda client: client.began))
        client = Client(link)
        self._clients.add(client)
        self._selector.register(link, selectors.EVENT_READ, lambda: self._continue(client))

    def _continue(self, client: Client) -> None:
        """Send and receive what is possible without waiting."""
        if client.exchange is None:  # after its request a client sends nothing: data, or the end, ends its connection
            with contextlib.suppress(BlockingIOError):
                with contextlib.suppress(ConnectionError):
                    client.link.recv(64)
                self.disconnect(client)
            return
        try:
            client.exchange.go_on()
        except Gone:
            self.disconnect(client)
            return
        if client.exchange.done:
            exchange, client.exchange = client.exchange, None
            if client.message is not None and client.generation is None:  # this was its answer
                self.disconnect(client)
                return
            client.deadline = None
            if client.message is not None:
                self._on_attached(client)
            else:
                client.message, client.descriptors = exchange.received.message, exchange.received.descriptors
                self._on_request(client)
        self._watch(client)

    def _watch(self, client: Client) -> None:
        if client in self._clients:
            events = selectors.EVENT_READ if client.exchange is None else client.exchange.events
            self._selector.modify(client.link, events, lambda: self._continue(client))
