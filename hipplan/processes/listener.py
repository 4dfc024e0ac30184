"""The listener of a process: it receives a message on each connection, has a handler act on it, and sends the answer.

It never waits for a caller. Holders, the ranks of a node and processes that answer `hipplan verify` are handlers.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import selectors
import socket
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from time import monotonic
from typing import Generic, TypeVar

from hipplan.processes.connections import LOOK_S, close_in_forks, is_same_user, peer
from hipplan.processes.packets import CLOSED, Exchange, Gone, Message

QUEUE = 1024
"""How many connections wait until a listener accepts them."""
REQUEST_BYTES = 4096
"""The longest message of a caller, unless its handler allows more."""
REQUEST_S, ANSWER_S = 5.0, 30.0
"""How long a caller may take to send its message, and to read the answer."""
CALLERS_MAX = 16
"""How many callers a listener has at once, unless its handler allows more."""
ACCEPT_PAUSE_S = 1.0
"""How long no connection is accepted after the process ran out of descriptors; callers wait meanwhile."""


class Caller:
    """A connection that another process made."""

    def __init__(self, link: socket.socket, *, text_max: int = REQUEST_BYTES, descriptors_max: int = 0) -> None:
        """text_max, descriptors_max: limits of its message."""
        self.link = link
        self.pid = peer(link)[0]
        self.began = monotonic()
        self.exchange: Exchange | None = Exchange(link, None, text_max=text_max, descriptors_max=descriptors_max)
        """The message that is being sent or received."""
        self.deadline: float | None = self.began + REQUEST_S
        """When the listener stops waiting for this caller; None: never."""
        self.message: Message | None = None
        """The message that it has sent; None until all of it is received."""
        self.descriptors: list[int] = []
        """Received with the message."""
        self.stays = False
        """Whether the connection stays when the answer is sent."""

    @property
    def has_left(self) -> bool:
        """Whether the other end is closed: nothing must be begun any more for this caller."""
        try:
            return not self.link.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    @property
    def is_sending_message(self) -> bool:
        return self.message is None

    @property
    def is_reading_last_answer(self) -> bool:
        """Whether the caller is reading an answer after which its connection is closed."""
        return self.exchange is not None and self.message is not None and not self.stays

    def answer(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Start to send an answer."""
        self.exchange = Exchange(self.link, message, descriptors, receives=False)
        self.deadline = monotonic() + ANSWER_S

    def notify(self, packet: bytes) -> None:
        """Send a packet that was not requested."""
        with contextlib.suppress(OSError):
            self.link.send(packet)

    def close(self) -> None:
        self.link.close()
        if self.exchange is not None:
            self.exchange.received.close()
        self.close_descriptors()

    def close_descriptors(self) -> None:
        """Close the descriptors that were received with the message."""
        while self.descriptors:
            os.close(self.descriptors.pop())


AnyCaller = TypeVar("AnyCaller", bound=Caller)


class Listener(Generic[AnyCaller]):
    """All callers of a process, until close(). fileno() is readable whenever serve() has something to do."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        new_caller: Callable[[socket.socket], AnyCaller],
        on_message: Callable[[AnyCaller], None],
        *,
        on_answered: Callable[[AnyCaller], None] | None = None,
        on_deadline: Callable[[AnyCaller], None] | None = None,
        on_disconnect: Callable[[AnyCaller], None] | None = None,
        callers_max: int = CALLERS_MAX,
        pending_max: int = CALLERS_MAX,
    ) -> None:
        """sockets: to which callers connect. pending_max: how many may be without a message; one more replaces the
        oldest of these.

        Called with a caller: on_message, when its message is received: it answers, disconnects or releases it, then or
        later; on_answered, when one that stays has received its answer; on_deadline, when its deadline has passed, in
        place of its disconnection; on_disconnect, when its connection is closed. Raises OSError.
        """
        self._callers: set[AnyCaller] = set()
        self._sockets = sockets
        self._new_caller, self._on_message = new_caller, on_message
        self._on_answered, self._on_deadline, self._on_disconnect = on_answered, on_deadline, on_disconnect
        self._callers_max, self._pending_max = callers_max, pending_max
        self._paused_until: float | None = None
        """When to accept connections again, after this process ran out of descriptors."""
        self._ready = selectors.EpollSelector()
        self._accept_connections()
        close_in_forks(self)

    def __iter__(self) -> Iterator[AnyCaller]:
        """Iterates over a copy, because callers may disconnect during the iteration."""
        return iter([*self._callers])

    def fileno(self) -> int:
        return self._ready.fileno()

    def wait_s(self) -> float | None:
        """After how many seconds serve() must be called even if nothing is readable; None: never."""
        times = [caller.deadline for caller in self._callers if caller.deadline is not None]
        if self._paused_until is not None:
            times.append(self._paused_until)
        if any(caller.exchange is not None and caller.exchange.stalled for caller in self._callers):
            times.append(monotonic() + LOOK_S)
        return max(0.0, min(times) - monotonic()) if times else None

    def serve(self) -> None:
        """Do what is possible without waiting, and what is due by now."""
        if self._paused_until is not None and self._paused_until <= monotonic():
            self._paused_until = None
            self._accept_connections()
        for event, _ in self._ready.select(0):
            known = self._ready.get_map().get(event.fd)
            if known is not None and known.fileobj is event.fileobj:  # an earlier event may have disconnected it
                event.data()
        now = monotonic()
        for caller in self:
            if caller not in self._callers:
                continue
            if caller.deadline is not None and caller.deadline <= now:
                (self._on_deadline or self.disconnect)(caller)
            elif caller.exchange is not None and caller.exchange.stalled:
                self._continue(caller)

    def answer(self, caller: AnyCaller, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Start to send an answer."""
        caller.answer(message, descriptors)
        self._watch(caller)

    def disconnect(self, caller: AnyCaller) -> None:
        self._forget(caller)
        caller.close()
        if self._on_disconnect is not None:
            self._on_disconnect(caller)

    def release(self, caller: AnyCaller) -> socket.socket:
        """Returns the connection of a caller, which belongs to the handler from now on."""
        self._forget(caller)
        return caller.link

    def close(self, waiting: Collection[AnyCaller] = (), answer: Message | None = None, send_s: float = 0.0) -> None:
        """Answer the waiting callers, notify all others of the end, and disconnect all. send_s: how long answers are
        sent. The sockets stay open."""
        self._ready.close()
        for caller in waiting:
            caller.answer(answer or {})
        deadline = time.monotonic() + send_s
        leaving = {caller for caller in self._callers if caller.is_reading_last_answer}
        for caller in self._callers - leaving:
            caller.notify(CLOSED)
            caller.close()
        for caller in leaving:
            with contextlib.suppress(Gone):
                while caller.exchange is not None and not caller.exchange.done and time.monotonic() < deadline:
                    caller.exchange.go_on()
                    time.sleep(0 if caller.exchange.done else LOOK_S)
            caller.close()
        self._callers.clear()

    def close_in_child(self) -> None:
        for caller in self._callers:
            caller.close()
        for listening in self._sockets:
            listening.close()
        self._ready.close()

    def _forget(self, caller: AnyCaller) -> None:
        self._ready.unregister(caller.link)
        self._callers.remove(caller)

    def _accept_connections(self) -> None:
        for listening in self._sockets:
            self._ready.register(listening, selectors.EVENT_READ, partial(self._accept, listening))

    def _accept(self, listening: socket.socket) -> None:
        try:
            link, _ = listening.accept()
        except OSError as error:  # the caller has disconnected already
            if error.errno in (errno.EMFILE, errno.ENFILE):  # the connection stays, and the selector reports it again
                for paused in self._sockets:
                    self._ready.unregister(paused)
                self._paused_until = monotonic() + ACCEPT_PAUSE_S
            return
        link.setblocking(False)
        if not is_same_user(link) or not self._has_room():
            link.close()
            return
        caller = self._new_caller(link)
        self._callers.add(caller)
        self._ready.register(link, selectors.EVENT_READ, lambda: self._continue(caller))

    def _has_room(self) -> bool:
        """Whether one more caller may come; the oldest one that sends or reads its last message makes room for it."""
        pending = [caller for caller in self._callers if caller.is_sending_message]
        if len(pending) < self._pending_max:
            if len(self._callers) < self._callers_max:
                return True
            pending += [caller for caller in self._callers if caller.is_reading_last_answer]
        if pending:
            self.disconnect(min(pending, key=lambda caller: caller.began))
        return bool(pending)

    def _continue(self, caller: AnyCaller) -> None:
        """Send and receive what is possible without waiting."""
        if caller.exchange is None:  # after its message a caller sends nothing: data, or the end, ends its connection
            with contextlib.suppress(BlockingIOError):
                with contextlib.suppress(ConnectionError):
                    caller.link.recv(64)
                self.disconnect(caller)
            return
        try:
            caller.exchange.go_on()
        except Gone:
            self.disconnect(caller)
            return
        if caller.exchange.done:
            self._end_exchange(caller, caller.exchange)
        self._watch(caller)

    def _end_exchange(self, caller: AnyCaller, exchange: Exchange) -> None:
        caller.exchange, caller.deadline = None, None
        if caller.message is None:
            caller.message, caller.descriptors = exchange.received.message, exchange.received.descriptors
            self._on_message(caller)
        elif not caller.stays:  # this was its answer
            self.disconnect(caller)
        elif self._on_answered is not None:
            self._on_answered(caller)

    def _watch(self, caller: AnyCaller) -> None:
        if caller in self._callers:
            events = selectors.EVENT_READ if caller.exchange is None else caller.exchange.events
            self._ready.modify(caller.link, events, lambda: self._continue(caller))


def serve_until(stop: int, listener: Listener[AnyCaller] | None, pipe: int | None = None) -> None:
    """Sleeps until the descriptor `stop` can be read, or a pipe has no reader, and serves callers meanwhile."""
    ready = select.poll()  # not select(): descriptors beyond 1023 are usual where each allocation costs one
    if pipe is not None:
        ready.register(pipe, 0)  # an error is reported unasked
    for descriptor in (stop, *([listener.fileno()] if listener else [])):
        ready.register(descriptor, select.POLLIN)
    while True:
        limit_s = listener.wait_s() if listener else None
        if any(descriptor in (stop, pipe) for descriptor, _ in ready.poll(None if limit_s is None else 1000 * limit_s)):
            return
        if listener is not None:
            listener.serve()
