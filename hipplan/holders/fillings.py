"""A filler as its holder sees it: a process that uses the devices for it, sends what it has made, and ends."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence

from hipplan.errors import ExitCode
from hipplan.holders.tasks import Task
from hipplan.processes.packets import Gone, Message, Received, Talk

Command = Callable[[int, Sequence[str]], list[str]]
"""The command of a filler: of the descriptor that it talks over, and of the arguments of an order."""


class Filling:
    """A filler at work."""

    def __init__(self, command: Command, task: Task, streams: Sequence[int]) -> None:
        """streams: its standard input, output and error. Raises OSError, ValueError."""
        own_end, other_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with other_end:
                self._process = subprocess.Popen(
                    command(other_end.fileno(), task.order.arguments),
                    stdin=streams[0],
                    stdout=streams[1],
                    stderr=streams[2],
                    pass_fds=(other_end.fileno(),),
                    cwd=task.order.folder,
                    env=task.order.environment(os.environ),
                    start_new_session=True,
                )
            own_end.setblocking(False)
            self.ended = os.pidfd_open(self._process.pid)
        except BaseException:
            own_end.close()
            raise
        self.task = task
        self.link = own_end
        self.talk: Talk | None = Talk(own_end, task.request, task.descriptors)
        self.done, self.total = 0, 0
        """Bytes of contents."""
        self.made: Received | None = None
        """The result, once it is there."""
        self.stopped = False

    def go_on(self) -> None:
        """Sends and receives what can be without waiting."""
        while (talk := self.talk) is not None:
            try:
                talk.go_on()
                if not talk.done:
                    return
                self._heard(talk.received)
                self.talk = Talk(self.link, None) if self.made is None else None
            except (Gone, ValueError):
                talk.received.close()
                self.talk = None

    def _heard(self, received: Received) -> None:
        """Raises ValueError: it is no message of a filler."""
        if "done" not in received.message:
            self.task.check(received)
            self.made = received
            return
        received.close()
        self.done, self.total = _progress(received.message)

    def stop(self) -> None:
        """It is to roll back and end; the second time, it ends."""
        self._process.send_signal(signal.SIGKILL if self.stopped else signal.SIGTERM)
        self.stopped = True

    def result(self) -> int:
        """Its exit code, once `ended` can be read: negative of one that a signal ended. What it made is the caller's
        if that is 0."""
        self.go_on()
        code = self._process.wait()
        self.link.close()
        os.close(self.ended)
        if self.talk is not None:
            self.talk.received.close()
        if code != 0 and self.made is not None:
            self.made.close()
        return code


def _progress(message: Message) -> tuple[int, int]:
    """(bytes done, bytes in all). Raises ValueError."""
    done, total = message.get("done"), message.get("total")
    if not isinstance(done, int) or not isinstance(total, int):
        raise ValueError("no progress")
    return done, total


class Fillings:
    """The fillings of a holder, one at a time."""

    def __init__(
        self, command: Command, selector: selectors.BaseSelector, ended: Callable[[Task, int, str], None]
    ) -> None:
        """ended: called with the task, 0 or the exit code of a failure, and what to log."""
        self._command = command
        self._selector = selector
        self._ended = ended
        self._current: Filling | None = None

    def begin(self, task: Task, streams: Sequence[int]) -> None:
        """Raises OSError, ValueError."""
        assert self._current is None
        try:
            self._current = filling = Filling(self._command, task, streams)
        except BaseException:
            task.abandon()
            raise
        self._selector.register(filling.link, selectors.EVENT_READ | selectors.EVENT_WRITE, self._heard)
        self._selector.register(filling.ended, selectors.EVENT_READ, self._has_ended)

    @property
    def state(self) -> str:
        """Of the task under way; empty if none is."""
        return "" if self._current is None else self._current.task.state

    @property
    def progress(self) -> list[int] | None:
        """Bytes done and bytes in all of the task under way."""
        return None if self._current is None else [self._current.done, self._current.total]

    def stop(self, *, again: bool = False) -> None:
        """The filler is to roll back. again: if it was told so before, it is killed."""
        if self._current is not None and (again or not self._current.stopped):
            self._current.stop()

    def _heard(self) -> None:
        filling = self._current
        assert filling is not None
        filling.go_on()
        if filling.talk is None:
            self._selector.unregister(filling.link)
        else:
            self._selector.modify(filling.link, filling.talk.events, self._heard)

    def _has_ended(self) -> None:
        filling, self._current = self._current, None
        assert filling is not None
        for descriptor in (filling.link, filling.ended):
            if descriptor in self._selector.get_map():
                self._selector.unregister(descriptor)
        code = filling.result()
        task, why = filling.task, f"the filler ended with code {code}"
        if code == 0 and filling.made is not None:
            try:
                self._ended(task, 0, task.finish(filling.made))
                return
            except OSError as error:
                filling.made.close()
                why = f"its result cannot be used: {error}"
        elif code < 0:
            why = f"the filler was ended by signal {-code}"
        task.abandon()
        self._ended(task, code or int(ExitCode.ROLLED_BACK), why)
