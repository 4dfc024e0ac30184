"""The process that keeps a layout: descriptors of its memory, no device context, and the processes that attach.

One thread, one selector. A filler makes what is to be held; a new one makes what replaces it, beside the old. Guests
ask for its status, attach, or end it.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

from hipplan.errors import ExitCode
from hipplan.holders.fillings import Command, Filling, Order
from hipplan.holders.generations import Generation, Kept, sums
from hipplan.holders.guests import REPLACED, Guest, refused
from hipplan.holders.names import Name
from hipplan.holders.verifying import answer
from hipplan.processes.messages import ACCEPT_PAUSE_S, Server
from hipplan.processes.packets import CLOSED, LOOK_S, Gone, Message, is_same_user

GUESTS, ASKING = 4096, 64
"""So many at once; and so many whose request is still to come: one more takes the place of the first."""
_ENDING_S = 2.0
"""How long notified processes may take."""


class Holder:
    """One of a name, until run() returns."""

    def __init__(
        self, name: Name, command: Command, access: str, ready: Callable[[], None], waiting: int | None = None
    ) -> None:
        """access: what attached processes may do at most: r, or rw for all; plan: what the plan says for each object,
        and what they ask for where that is less. ready: called once all is there. waiting: where
        a process that waits for it gets the failure."""
        self._name = name
        self._command = command
        self._access = access
        self._ready = ready
        self._waiting = waiting
        self._since = time.time()
        self._guests: set[Guest] = set()
        self._kept = Kept()
        self._filling: Filling | None = None
        self._replacing: Guest | None = None
        """Who has asked for what is being filled."""
        self._failed = ""
        """Why the last replacement came to nothing."""
        self._ending: list[Guest] = []
        """Those who wait for its end."""
        self._signal = 0
        self._code: int | None = None
        self._paused_until: float | None = None
        self._open = contextlib.ExitStack()
        self._server: Server | None = None
        """For `hipplan verify`."""
        self._selector = selectors.DefaultSelector()
        self._selector.register(name.door, selectors.EVENT_READ, self._accept)

    def run(self, order: Order, streams: Sequence[int]) -> int:
        """Fills, then serves until somebody ends it. The exit code."""
        with self._signals():
            try:
                self._answer_verify()
                self._first(order, streams)
                while self._code is None:
                    for key, _ in self._selector.select(self._patience()):
                        if key.fd in self._selector.get_map():  # else an earlier one has ended it
                            key.data()
                    self._tick()
                return self._code
            finally:
                self._close()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        heard, tells = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        before = {one: signal.signal(one, self._note) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        wakes = signal.set_wakeup_fd(tells, warn_on_full_buffer=False)
        self._selector.register(heard, selectors.EVENT_READ, lambda: os.read(heard, 4096))
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakes)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(heard)
            os.close(tells)

    def _answer_verify(self) -> None:
        with contextlib.suppress(OSError):  # a sandbox without sockets of that kind: it holds all the same
            self._server = self._open.enter_context(Server(lambda request: answer(request, self._kept.current)))
            self._selector.register(self._server.fileno(), selectors.EVENT_READ, self._server.serve)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._signal and self._filling is not None:
            self._filling.stop()  # and now it does not roll back any more
        self._signal = self._signal or number

    def _patience(self) -> float | None:
        times = [guest.until for guest in self._guests if guest.until is not None]
        if self._paused_until is not None:
            times.append(self._paused_until)
        if self._server is not None and (limit_s := self._server.wait_s()) is not None:
            times.append(time.monotonic() + limit_s)
        if any(guest.talk is not None and guest.talk.stalled for guest in self._guests):
            times.append(time.monotonic() + LOOK_S)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _tick(self) -> None:
        """What is to be done without anybody having said anything."""
        now = time.monotonic()
        if self._server is not None:
            self._server.serve()
        if self._paused_until is not None and self._paused_until <= now:
            self._paused_until = None
            self._selector.register(self._name.door, selectors.EVENT_READ, self._accept)
        for guest in list(self._guests):
            if guest.until is not None and guest.until <= now:
                self._drop(guest)
            elif guest.talk is not None and guest.talk.stalled:
                self._go_on(guest)
        self._kept.close_olds({guest.generation for guest in self._guests if guest.talk is not None})
        over = any(guest.wants.get("force") for guest in self._ending) or not self._attached()
        if self._code is None and (self._signal or (self._ending and over)):
            if self._filling is None:
                self._code = 128 + self._signal if self._signal else ExitCode.OK
            elif not self._filling.stopped:
                self._filling.stop()

    # What is held

    def _fill(self, order: Order, streams: Sequence[int]) -> None:
        """Raises OSError, ValueError."""
        self._filling = filling = Filling(self._command, order, streams, sums(self._generations()))
        self._selector.register(filling.link, selectors.EVENT_READ | selectors.EVENT_WRITE, self._filler_said)
        self._selector.register(filling.ended, selectors.EVENT_READ, self._filler_ended)

    def _first(self, order: Order, streams: Sequence[int]) -> None:
        try:
            self._fill(order, streams)
        except (OSError, ValueError) as error:
            self._failed, self._code = f"the filler cannot be started: {error}", int(ExitCode.ROLLED_BACK)
            self._tell_failure()

    def _tell_failure(self) -> None:
        """Where somebody waits for the first filling, and nobody else says so."""
        self._log(self._failed)
        if self._waiting is not None:
            with contextlib.suppress(OSError):
                os.write(self._waiting, f"{self._name.name}: {self._failed}\n".encode())

    def _filler_said(self) -> None:
        assert self._filling is not None
        filling = self._filling
        filling.go_on()
        if filling.talk is None:
            self._selector.unregister(filling.link)
        else:
            self._selector.modify(filling.link, filling.talk.events, self._filler_said)

    def _filler_ended(self) -> None:
        assert self._filling is not None
        filling, self._filling = self._filling, None
        for one in (filling.link, filling.ended):
            if one in self._selector.get_map():
                self._selector.unregister(one)
        code = filling.result()
        guest, self._replacing = self._replacing, None
        if code == 0 and filling.made is not None:
            self._switch(filling.made.message, filling.made.descriptors)
            if guest is not None:
                self._answer(guest, {"status": self.status()})
            return
        self._failed = f"the filler was ended by signal {-code}" if code < 0 else f"the filler ended with code {code}"
        if code < 0:  # else it has said what was wrong
            self._tell_failure()
        else:
            self._log(self._failed)
        code = code if code > 0 else int(ExitCode.ROLLED_BACK)
        if guest is not None:
            self._answer(guest, {"failed": code, "why": self._failed})
        elif self._kept.current is None:
            self._code = 128 + self._signal if self._signal else code

    def _switch(self, made: Message, descriptors: list[int]) -> None:
        """What was made counts from here on."""
        generation, self._failed = self._kept.switch(made, descriptors), ""
        self._log(f"{made['plan']}: filled, generation {generation.number}")
        if generation.number == 1:
            self._waiting = None
            self._ready()
        for guest in list(self._guests):
            if guest.generation is not None:
                self._tell_replaced(guest)
            elif guest.talk is None and guest.wants.get("want") == "attach":
                self._attach(guest)

    def _tell_replaced(self, guest: Guest) -> None:
        if guest.talk is None and guest.generation is not self._kept.current:
            guest.tell(REPLACED)

    def _generations(self) -> list[Generation]:
        """Those that somebody holds, in their order."""
        found = {guest.generation for guest in self._guests} | {self._kept.current}
        return sorted((one for one in found if one is not None), key=lambda one: one.number)

    def _attached(self) -> list[Guest]:
        return sorted((guest for guest in self._guests if guest.generation is not None), key=lambda one: one.since)

    def status(self) -> Message:
        """For `ps`."""
        state = "ready" if self._filling is None else "filling" if self._kept.current is None else "replacing"
        kept = ("plan", "digest", "machine", "runtime", "bytes", "writable")
        generations = [
            {"generation": generation.number, "since": generation.since, **{key: generation.made[key] for key in kept}}
            for generation in self._generations()
        ]
        return {
            "name": self._name.name,
            "pid": os.getpid(),
            "since": self._since,
            "state": "ending" if self._ending or self._signal else state,
            "filled": None if self._filling is None else [self._filling.done, self._filling.total],
            "access": self._access,
            "context_bytes": 0,  # descriptors take none of a device's memory
            "log": self._name.log,
            "failed": self._failed,
            "generations": generations,
            "attached": [guest.described() for guest in self._attached()],
        }

    # Guests

    def _accept(self) -> None:
        try:
            link, _ = self._name.door.accept()
        except OSError as error:  # it has ended already
            if error.errno in (errno.EMFILE, errno.ENFILE):  # or stays, and would be reported for ever
                self._selector.unregister(self._name.door)
                self._paused_until = time.monotonic() + ACCEPT_PAUSE_S
            return
        link.setblocking(False)
        if not is_same_user(link) or len(self._guests) >= GUESTS:
            link.close()
            return
        asking = [guest for guest in self._guests if guest.listens]
        if len(asking) >= ASKING:
            self._drop(min(asking, key=lambda one: one.since))
        guest = Guest(link)
        self._guests.add(guest)
        self._selector.register(link, selectors.EVENT_READ, lambda: self._go_on(guest))

    def _drop(self, guest: Guest) -> None:
        self._selector.unregister(guest.link)
        self._guests.remove(guest)
        guest.close()
        if guest in self._ending:
            self._ending.remove(guest)
        if guest is self._replacing:  # nobody wants it any more
            self._replacing = None
            if self._filling is not None and not self._filling.stopped:
                self._filling.stop()

    def _go_on(self, guest: Guest) -> None:
        """Does what can be done without waiting."""
        if guest.talk is None:  # it has no more to say
            with contextlib.suppress(BlockingIOError):
                with contextlib.suppress(ConnectionError):
                    guest.link.recv(64)
                self._drop(guest)
            return
        try:
            guest.talk.go_on()
        except Gone:
            self._drop(guest)
            return
        if guest.talk.done:
            talk, guest.talk = guest.talk, None
            if guest.wants and guest.generation is None:  # it has its answer
                self._drop(guest)
                return
            guest.until = None
            if not guest.wants:
                self._asked(guest, talk.received.message, talk.received.descriptors)
            else:
                self._tell_replaced(guest)
        self._watch(guest)

    def _watch(self, guest: Guest) -> None:
        if guest in self._guests:
            events = selectors.EVENT_READ if guest.talk is None else guest.talk.events
            self._selector.modify(guest.link, events, lambda: self._go_on(guest))

    def _answer(self, guest: Guest, message: Message, descriptors: Sequence[int] = ()) -> None:
        guest.answer(message, descriptors)
        self._watch(guest)

    def _asked(self, guest: Guest, message: Message, descriptors: list[int]) -> None:
        guest.wants, guest.descriptors = message or {"want": ""}, descriptors
        does = {"status": self._tell, "attach": self._join, "down": self._end, "replace": self._replace}
        try:
            does[message["want"]](guest)
        except (LookupError, TypeError, ValueError):
            self._answer(guest, refused("HP452", "the holder does not understand this request"))
        guest.let_go()

    def _tell(self, guest: Guest) -> None:
        self._answer(guest, {"status": self.status()})

    def _join(self, guest: Guest) -> None:
        if guest.wants["access"] not in ("plan", "r", "rw"):
            raise ValueError("no access")
        if guest.wants["access"] == "rw" and self._access != "rw":
            what = f"the holder '{self._name.name}' does not allow write access to all of its memory"
            hint = "leave access out and write attached: rw in the plan where you write, or: hipplan up --access rw"
            self._answer(guest, refused("HP454", what, hint=hint))
        elif self._ending:
            self._answer(guest, refused("HP453", f"the holder '{self._name.name}' is ending"))
        elif self._kept.current is not None:
            self._attach(guest)

    def _attach(self, guest: Guest) -> None:
        assert self._kept.current is not None
        guest.generation, guest.since = self._kept.current, time.time()
        guest.access = "r" if self._access == "r" else guest.wants["access"]
        if guest.access == "plan" and not guest.generation.made["writable"]:
            guest.access = "r"
        about = {"name": self._name.name, "generation": guest.generation.number, "pid": os.getpid()}
        about |= {"access": guest.access, "allows": self._access}
        self._answer(guest, {"made": self._kept.current.made, **about}, self._kept.current.descriptors)

    def _end(self, guest: Guest) -> None:
        attached = self._attached()
        if attached and not (guest.wants.get("wait") or guest.wants.get("force")):
            who = ", ".join(f"{one.pid} ({one.described()['command'] or '?'})" for one in attached[:5])
            more = f" and {len(attached) - 5} more" if len(attached) > 5 else ""
            hint = "--wait waits until they detach; --force ends it now, and they keep the memory that they map"
            what = f"processes are attached to the holder '{self._name.name}'"
            self._answer(guest, refused("HP453", what, f"process {who}{more}", hint))
        else:
            self._ending.append(guest)

    def _replace(self, guest: Guest) -> None:
        order, name = Order.read(guest.wants), self._name.name
        if len(guest.descriptors) != 3:
            raise ValueError("no streams")
        if self._filling is not None or self._ending:
            state = self.status()["state"]
            self._answer(guest, refused("HP453", f"the holder '{name}' is {state}", hint="try again when it is ready"))
            return
        try:
            self._fill(order, guest.descriptors)
            self._replacing = guest
        except OSError as error:
            self._answer(guest, refused("HP455", "no filler can be started", str(error)))

    # The end

    def _close(self) -> None:
        """Releases everything and logs that."""
        code = ExitCode.BUG if self._code is None else self._code
        if self._filling is not None:  # of an error of ours
            self._filling.stop()
        given = [generation.made["bytes"] for generation in self._generations()]
        kept = [guest.described() for guest in self._attached()]
        self._kept.close()
        self._selector.close()
        self._open.close()
        self._log(f"ended with code {int(code)}")
        self._name.close(keep_log=code != ExitCode.OK and self._waiting is None)
        for guest in self._guests - {*self._ending}:
            guest.tell(CLOSED)
            guest.close()
        for guest in self._ending:
            guest.answer({"given_back": given[-1] if given else {}, "attached": kept})
        self._last_words(time.monotonic() + _ENDING_S)

    def _last_words(self, until: float) -> None:
        for guest in self._ending:
            with contextlib.suppress(Gone):
                while guest.talk is not None and not guest.talk.done and time.monotonic() < until:
                    guest.talk.go_on()
                    time.sleep(0 if guest.talk.done else LOOK_S)
            guest.close()

    def _log(self, text: str) -> None:
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        with contextlib.suppress(OSError):
            print(f"{now} {self._name.name}: {text}", file=sys.stderr, flush=True)
