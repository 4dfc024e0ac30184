"""The process that keeps a layout: descriptors of its memory, no device context, and the processes that attach.

One thread, one selector. Whatever needs a device is done by a filler, one at a time: it makes what is to be held, or
what replaces it, saves the bytes of what is to sleep, and restores them. Guests ask for the status, attach, change what
is held, or end it.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType

from hipplan.errors import ExitCode
from hipplan.holders.fillings import Command, Fillings
from hipplan.holders.generations import Backup, Generation, Kept, bytes_by_uuid
from hipplan.holders.guests import REPLACED, Guest, in_use, refused, wait_of
from hipplan.holders.names import Name
from hipplan.holders.orders import Order, require_texts
from hipplan.holders.reception import Reception
from hipplan.holders.tasks import Fill, Save, Task, waking
from hipplan.holders.verifying import answer
from hipplan.processes.messages import Server
from hipplan.processes.packets import Message
from hipplan.program.backups import DROP, HOST


class Holder:
    """One of a name, until run() returns."""

    def __init__(
        self, name: Name, command: Command, access: str, ready: Callable[[], None], waiting: int | None = None
    ) -> None:
        """access: what attached processes may do at most: r, or rw for all; plan: what the plan says for each object,
        and what they ask for where that is less. ready: called once all is there. waiting: where
        a process that waits for it gets the failure."""
        self._name = name
        self._access = access
        self._ready = ready
        self._waiting = waiting
        self._since = time.time()
        self._kept = Kept()
        self._asker: Guest | None = None
        """Who has asked for the task under way."""
        self._failed = ""
        """Why the last task failed."""
        self._sleeper: Guest | None = None
        """Who has asked for a sleep, which begins when no process is attached."""
        self._ending: list[Guest] = []
        """Those who wait for its end."""
        self._signal = 0
        self._code: int | None = None
        self._open = contextlib.ExitStack()
        self._server: Server | None = None
        """For `hipplan verify`."""
        self._selector = selectors.DefaultSelector()
        self._fillings = Fillings(command, self._selector, self._task_ended)
        self._guests = Reception(
            name.door,
            self._selector,
            asked=self._asked,
            answered=self._tell_replaced,
            late=self._give_up,
            left=self._left,
        )

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
        caught = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.signal(number, self._note) for number in caught}
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
        if self._signal:
            self._fillings.stop(again=True)  # and now it does not roll back any more
        self._signal = self._signal or number

    def _patience(self) -> float | None:
        times = [*self._guests.deadlines()]
        if self._server is not None and (limit_s := self._server.wait_s()) is not None:
            times.append(time.monotonic() + limit_s)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _tick(self) -> None:
        """What is to be done without a message."""
        if self._server is not None:
            self._server.serve()
        self._guests.tick()
        self._kept.close_olds({guest.generation for guest in self._guests if guest.talk is not None})
        if self._sleeper is not None and not self._blockers(self._sleeper):
            guest, self._sleeper = self._sleeper, None
            self._fall_asleep(guest)
        over = any(guest.wants.get("force") for guest in self._ending) or not self._attached()
        if self._code is None and (self._signal or (self._ending and over)):
            if self._fillings.state:
                self._fillings.stop()
            else:
                self._code = 128 + self._signal if self._signal else ExitCode.OK

    # What is held

    def _first(self, order: Order, streams: Sequence[int]) -> None:
        try:
            self._fillings.begin(Fill(self._kept, order, {}), streams)
        except (OSError, ValueError) as error:
            self._failed, self._code = f"the filler cannot be started: {error}", int(ExitCode.ROLLED_BACK)
            self._tell_failure()

    def _begin(self, guest: Guest, make: Callable[[], Task]) -> None:
        """Does what a guest asks for; it has its answer when that has ended."""
        try:
            self._fillings.begin(make(), guest.descriptors)
            self._asker = guest
        except OSError as error:
            self._guests.answer(guest, refused("HP455", "no filler can be started", str(error)))

    def _task_ended(self, task: Task, code: int, report: str) -> None:
        """code: 0, or of a failure, which changes nothing; negative for a signal."""
        guest, self._asker = self._asker, None
        self._failed = f"{task.state} failed: {report}" if code else ""
        if code < 0:  # else the filler has said what was wrong
            self._tell_failure()
        else:
            self._log(self._failed or report)
        if code == 0 and task.state == "filling":
            self._waiting = None
            self._ready()
        code = code if code >= 0 else int(ExitCode.ROLLED_BACK)
        if guest is not None:
            self._guests.answer(guest, {"failed": code, "why": report} if code else {"status": self.status()})
        elif self._kept.current is None:
            self._code = 128 + self._signal if self._signal else code
        for other in self._guests:
            if other.generation is not None:
                self._tell_replaced(other)
            elif other.talk is None and other.wants.get("want") == "attach":  # it had to wait
                self._join(other)

    def _tell_failure(self) -> None:
        """To the process that waits for the first filling, where the filler cannot."""
        self._log(self._failed)
        if self._waiting is not None:
            with contextlib.suppress(OSError):
                os.write(self._waiting, f"{self._name.name}: {self._failed}\n".encode())

    def _tell_replaced(self, guest: Guest) -> None:
        if guest.talk is None and guest.generation is not self._kept.current:
            guest.tell(REPLACED)

    def _generations(self) -> list[Generation]:
        """The one that counts and those that processes are attached to, in their order."""
        used = {guest.generation for guest in self._guests} | {self._kept.current}
        return sorted((some for some in used if some is not None), key=lambda generation: generation.number)

    def _beside(self) -> Mapping[str, int]:
        """UUID of a device -> bytes that stay in use while a filler works."""
        return bytes_by_uuid(self._generations())

    def _attached(self) -> list[Guest]:
        return sorted((guest for guest in self._guests if guest.generation is not None), key=lambda guest: guest.since)

    @property
    def _state(self) -> str:
        if self._ending or self._signal:
            return "ending"
        if self._sleeper is not None:
            return Save.state
        return self._fillings.state or ("ready" if self._kept.asleep is None else "asleep")

    def status(self) -> Message:
        """For `ps`."""
        return {
            "name": self._name.name,
            "pid": os.getpid(),
            "since": self._since,
            "state": self._state,
            "filled": self._fillings.progress,
            "asleep": None if self._kept.asleep is None else self._kept.asleep.described(),
            "access": self._access,
            "context_bytes": 0,  # descriptors take none of a device's memory
            "log": self._name.log,
            "failed": self._failed,
            "generations": [generation.described() for generation in self._generations()],
            "attached": [guest.described() for guest in self._attached()],
        }

    # Guests

    def _asked(self, guest: Guest) -> None:
        does = {
            "status": self._tell,
            "attach": self._join,
            "down": self._end,
            "replace": self._replace,
            "sleep": self._sleep,
            "wake": self._wake,
        }
        try:
            does[guest.wants["want"]](guest)
        except (LookupError, TypeError, ValueError):
            self._guests.answer(guest, refused("HP452", "the holder does not understand this request"))
        if guest is not self._sleeper:
            guest.let_go()

    def _left(self, guest: Guest) -> None:
        """What it has waited for is not wanted any more."""
        if guest in self._ending:
            self._ending.remove(guest)
        if guest is self._sleeper:
            self._sleeper = None
        if guest is self._asker:
            self._asker = None
            self._fillings.stop()

    def _give_up(self, guest: Guest) -> None:
        """Its time is over."""
        if guest is not self._sleeper and guest not in self._ending:
            self._guests.drop(guest)
        elif not self._blockers(guest):
            guest.until = None
        else:
            self._left(guest)
            self._refuse_in_use(guest)
            guest.let_go()

    def _tell(self, guest: Guest) -> None:
        self._guests.answer(guest, {"status": self.status()})

    def _refuse(self, guest: Guest, code: str, about: str, why: str = "", hint: str = "") -> None:
        self._guests.answer(guest, refused(code, f"the holder '{self._name.name}' {about}", why, hint))

    def _join(self, guest: Guest) -> None:
        current = self._kept.current
        if guest.wants["access"] not in ("plan", "r", "rw"):
            raise ValueError("no access")
        if guest.wants["access"] == "rw" and self._access != "rw":
            hint = "leave access out and write attached: rw in the plan where you write, or: hipplan up --access rw"
            self._refuse(guest, "HP454", "does not allow write access to all of its memory", hint=hint)
        elif self._ending:
            self._refuse(guest, "HP453", "is ending")
        elif self._state in ("sleeping", "asleep"):
            about = "is asleep" if self._state == "asleep" else "is going to sleep"
            self._refuse(guest, "HP441", about, hint=f"hipplan wake {self._name.name}")
        elif current is not None and current.backup is None:
            self._attach(guest, current)

    def _attach(self, guest: Guest, current: Generation) -> None:
        guest.generation, guest.since = current, time.time()
        guest.access = "r" if self._access == "r" else guest.wants["access"]
        if guest.access == "plan" and not current.made["writable"]:
            guest.access = "r"
        about = {"name": self._name.name, "generation": current.number, "pid": os.getpid()}
        about |= {"access": guest.access, "allows": self._access}
        self._guests.answer(guest, {"made": current.made, **about}, current.descriptors)

    def _end(self, guest: Guest) -> None:
        wait_s = wait_of(guest.wants)
        if self._attached() and wait_s == 0 and not guest.wants.get("force"):
            self._refuse_in_use(guest)
        else:
            guest.until = None if wait_s is None else time.monotonic() + wait_s
            self._ending.append(guest)

    def _blockers(self, guest: Guest) -> list[Guest]:
        """Those who have to detach before a guest has what it wants."""
        if guest.wants["want"] == "down":
            return [] if guest.wants.get("force") else self._attached()
        return [other for other in self._attached() if other.generation is self._kept.current]

    def _refuse_in_use(self, guest: Guest) -> None:
        self._guests.answer(guest, in_use(self._name.name, self._blockers(guest), guest.wants["want"]))

    def _is_free(self, guest: Guest) -> bool:
        """Whether what is held may be changed now; if not, the guest has its answer. Raises ValueError."""
        if len(guest.descriptors) != 3:
            raise ValueError("no streams")
        if self._state in ("ready", "asleep"):
            return True
        self._refuse(guest, "HP453", f"is {self._state}", hint="try again when it is ready")
        return False

    def _replace(self, guest: Guest) -> None:
        order = Order.read(guest.wants)
        if self._is_free(guest):
            self._begin(guest, lambda: Fill(self._kept, order, self._beside()))

    def _sleep(self, guest: Guest) -> None:
        keep, wait_s, current = guest.wants["keep"], wait_of(guest.wants), self._kept.current
        if keep not in (HOST, DROP):
            raise ValueError("no place for the bytes")
        require_texts(guest.wants["options"])
        if not self._is_free(guest) or current is None:
            return
        if current.backup is not None and current.backup.kept == keep:
            self._tell(guest)
        elif current.backup is not None:
            where = "in host memory" if keep == DROP else "dropped"
            self._refuse(guest, "HP441", "is asleep", f"its bytes are {where}", f"hipplan wake {self._name.name}")
        elif keep == DROP and (why := current.why_not_dropped(self._access)):
            self._refuse(guest, "HP440", "cannot sleep without its bytes", why, "--keep host keeps them")
        elif self._blockers(guest) and wait_s == 0:
            self._refuse_in_use(guest)
        else:
            guest.until = None if wait_s is None else time.monotonic() + wait_s
            self._sleeper = guest

    def _fall_asleep(self, guest: Guest) -> None:
        current = self._kept.current
        assert current is not None
        guest.until = None
        if guest.wants["keep"] == DROP:
            current.fall_asleep(Backup(DROP))
            self._log(f"{current.made['plan']}: asleep, without its bytes")
            self._tell(guest)
        else:
            self._begin(guest, lambda: Save(current, guest.wants["options"]))
        guest.let_go()

    def _wake(self, guest: Guest) -> None:
        require_texts(guest.wants["options"])
        if not self._is_free(guest):
            return
        if self._kept.asleep is None:
            self._tell(guest)
        else:
            self._begin(guest, lambda: waking(self._kept, self._beside(), guest.wants["options"]))

    # The end

    def _close(self) -> None:
        """Releases everything and logs that."""
        code = ExitCode.BUG if self._code is None else self._code
        self._fillings.stop(again=True)  # of a bug: none is at work else
        given_back = [generation.given_back for generation in self._generations()]
        attached = [guest.described() for guest in self._attached()]
        self._kept.close()
        self._selector.close()
        self._open.close()
        self._log(f"ended with code {int(code)}")
        self._name.close(keep_log=code != ExitCode.OK and self._waiting is None)
        self._guests.close(self._ending, {"given_back": given_back[-1] if given_back else {}, "attached": attached})

    def _log(self, text: str) -> None:
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        with contextlib.suppress(OSError):
            print(f"{now} {self._name.name}: {text}", file=sys.stderr, flush=True)
