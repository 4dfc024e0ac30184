"""Takes in those who talk to a holder: accepts connections, reads requests, sends answers, and never waits for any."""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import time
from collections.abc import Callable, Collection, Iterator, Sequence

from hipplan.holders.guests import Guest
from hipplan.processes.messages import ACCEPT_PAUSE_S
from hipplan.processes.packets import CLOSED, LOOK_S, Gone, Message, is_same_user

GUESTS, ASKING = 4096, 64
"""So many at once; and so many whose request is still to come: one more takes the place of the first."""
_ENDING_S = 2.0
"""How long notified processes may take."""


class Reception:
    """All guests."""

    def __init__(
        self,
        door: socket.socket,
        selector: selectors.BaseSelector,
        *,
        asked: Callable[[Guest], None],
        answered: Callable[[Guest], None],
        late: Callable[[Guest], None],
        left: Callable[[Guest], None],
    ) -> None:
        """door: where they come in. Called with a guest: asked, when its request is read; answered, when it is attached
        and has its answer; late, when its time is over; left, when it is gone."""
        self._guests: set[Guest] = set()
        self._door = door
        self._selector = selector
        self._asked, self._answered, self._late, self._left = asked, answered, late, left
        self._paused_until: float | None = None
        selector.register(door, selectors.EVENT_READ, self._accept)

    def __iter__(self) -> Iterator[Guest]:
        """A copy: guests may leave meanwhile."""
        return iter([*self._guests])

    def deadlines(self) -> Iterator[float]:
        """When tick() has something to do."""
        yield from (guest.until for guest in self._guests if guest.until is not None)
        if self._paused_until is not None:
            yield self._paused_until
        if any(guest.talk is not None and guest.talk.stalled for guest in self._guests):
            yield time.monotonic() + LOOK_S

    def tick(self) -> None:
        """Does what is due."""
        now = time.monotonic()
        if self._paused_until is not None and self._paused_until <= now:
            self._paused_until = None
            self._selector.register(self._door, selectors.EVENT_READ, self._accept)
        for guest in self:
            if guest.until is not None and guest.until <= now:
                self._late(guest)
            elif guest.talk is not None and guest.talk.stalled:
                self._go_on(guest)

    def answer(self, guest: Guest, message: Message, descriptors: Sequence[int] = ()) -> None:
        guest.answer(message, descriptors)
        self._watch(guest)

    def drop(self, guest: Guest) -> None:
        self._selector.unregister(guest.link)
        self._guests.remove(guest)
        guest.close()
        self._left(guest)

    def close(self, waiting: Collection[Guest], answer: Message) -> None:
        """Notifies all. waiting: those who get this answer to their request; the selector is closed."""
        for guest in waiting:
            guest.answer(answer)
        answered = {guest for guest in self._guests if guest.is_answered}
        for guest in self._guests - answered:
            guest.tell(CLOSED)
            guest.close()
        until = time.monotonic() + _ENDING_S
        for guest in answered:
            with contextlib.suppress(Gone):
                while guest.talk is not None and not guest.talk.done and time.monotonic() < until:
                    guest.talk.go_on()
                    time.sleep(0 if guest.talk.done else LOOK_S)
            guest.close()

    def _accept(self) -> None:
        try:
            link, _ = self._door.accept()
        except OSError as error:  # it has ended already
            if error.errno in (errno.EMFILE, errno.ENFILE):  # or stays, and would be reported for ever
                self._selector.unregister(self._door)
                self._paused_until = time.monotonic() + ACCEPT_PAUSE_S
            return
        link.setblocking(False)
        if not is_same_user(link) or len(self._guests) >= GUESTS:
            link.close()
            return
        asking = [guest for guest in self._guests if guest.listens]
        if len(asking) >= ASKING:
            self.drop(min(asking, key=lambda guest: guest.since))
        guest = Guest(link)
        self._guests.add(guest)
        self._selector.register(link, selectors.EVENT_READ, lambda: self._go_on(guest))

    def _go_on(self, guest: Guest) -> None:
        """Does what can be done without waiting."""
        if guest.talk is None:  # it has no more to say
            with contextlib.suppress(BlockingIOError):
                with contextlib.suppress(ConnectionError):
                    guest.link.recv(64)
                self.drop(guest)
            return
        try:
            guest.talk.go_on()
        except Gone:
            self.drop(guest)
            return
        if guest.talk.done:
            talk, guest.talk = guest.talk, None
            if guest.wants and guest.generation is None:  # it has its answer
                self.drop(guest)
                return
            guest.until = None
            if guest.wants:
                self._answered(guest)
            else:
                guest.wants, guest.descriptors = talk.received.message or {"want": ""}, talk.received.descriptors
                self._asked(guest)
        self._watch(guest)

    def _watch(self, guest: Guest) -> None:
        if guest in self._guests:
            events = selectors.EVENT_READ if guest.talk is None else guest.talk.events
            self._selector.modify(guest.link, events, lambda: self._go_on(guest))
