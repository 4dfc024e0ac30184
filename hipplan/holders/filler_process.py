"""A filler as its holder sees it: a process that uses the devices, sends its result, and ends."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence

from hipplan.errors import ExitCode
from hipplan.holders.tasks import Task
from hipplan.processes.packets import Exchange, Gone, Message, Received

Command = Callable[[int, Sequence[str]], list[str]]
"""Returns the command that starts a filler: of its connection's descriptor and the arguments of a command line."""


class FillerProcess:
    """A running filler."""

    def __init__(self, command: Command, task: Task, streams: Sequence[int]) -> None:
        """streams: its standard input, output and error. Raises OSError, ValueError."""
        own_end, other_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with other_end:
                self._process = subprocess.Popen(
                    command(other_end.fileno(), task.command_line.arguments),
                    stdin=streams[0],
                    stdout=streams[1],
                    stderr=streams[2],
                    pass_fds=(other_end.fileno(),),
                    cwd=task.command_line.folder,
                    env=task.command_line.environment(os.environ),
                    start_new_session=True,
                )
            own_end.setblocking(False)
            try:
                self.exit_descriptor = os.pidfd_open(self._process.pid)
                """Readable when the process has ended."""
            except OSError:
                self._process.kill()
                self._process.wait()
                raise
        except BaseException:
            own_end.close()
            raise
        self.task = task
        self.link = own_end
        self.exchange: Exchange | None = Exchange(own_end, task.request, task.descriptors)
        """The message that is being sent or received; None after the result, or an invalid message."""
        self.done, self.total = 0, 0
        """Bytes of contents."""
        self.result: Received | None = None
        self.was_stopped = False

    def go_on(self) -> None:
        """Send and receive what is possible without waiting."""
        while (exchange := self.exchange) is not None:
            try:
                exchange.go_on()
                if not exchange.done:
                    return
                self._handle(exchange.received)
                self.exchange = Exchange(self.link, None) if self.result is None else None
            except (Gone, ValueError):
                exchange.received.close()
                self.exchange = None

    def _handle(self, received: Received) -> None:
        """Raises ValueError: it is not a message of a filler."""
        if "done" not in received.message:
            self.task.check(received)
            self.result = received
            return
        received.close()
        self.done, self.total = _progress(received.message)

    def stop(self, number: signal.Signals) -> None:
        """SIGTERM: have it roll back and end. SIGKILL: end it, also where it does not run."""
        self._process.send_signal(number)
        self.was_stopped = True

    def wait(self) -> int:
        """The exit code, negative if a signal ended the process. Unless it is 0, the result is closed.

        It does not block once exit_descriptor is readable.
        """
        self.go_on()
        code = self._process.wait()
        self.link.close()
        os.close(self.exit_descriptor)
        if self.exchange is not None:
            self.exchange.received.close()
        if code != 0 and self.result is not None:
            self.result.close()
        return code


def _progress(message: Message) -> tuple[int, int]:
    """(bytes done, bytes in all). Raises ValueError."""
    done, total = message.get("done"), message.get("total")
    if not isinstance(done, int) or not isinstance(total, int):
        raise ValueError("a progress message has numbers of bytes")
    return done, total


class FillerRunner:
    """Runs the fillers of a holder, one at a time."""

    def __init__(
        self,
        command: Command,
        selector: selectors.BaseSelector,
        is_wanted: Callable[[], bool],
        on_end: Callable[[Task, int, str], None],
    ) -> None:
        """is_wanted: whether the result of the task under way may be used. on_end: called with the task, 0 or the exit
        code of a failure, and what to log."""
        self._command = command
        self._selector = selector
        self._is_wanted = is_wanted
        self._on_end = on_end
        self._current: FillerProcess | None = None

    def start(self, task: Task, streams: Sequence[int]) -> None:
        """Raises OSError, ValueError."""
        assert self._current is None
        try:
            self._current = filler = FillerProcess(self._command, task, streams)
        except BaseException:
            task.abandon()
            raise
        self._selector.register(filler.link, selectors.EVENT_READ | selectors.EVENT_WRITE, self._continue)
        self._selector.register(filler.exit_descriptor, selectors.EVENT_READ, self._finish)

    @property
    def state(self) -> str:
        """The state that the task under way puts the holder in; empty without a task."""
        return "" if self._current is None else self._current.task.state

    @property
    def progress(self) -> list[int] | None:
        """Bytes done and bytes in all of the task under way."""
        return None if self._current is None else [self._current.done, self._current.total]

    def stop(self) -> None:
        """Have the filler roll back and end, if it was not told to before."""
        if self._current is not None and not self._current.was_stopped:
            self._current.stop(signal.SIGTERM)

    def kill(self) -> None:
        """End the filler without a roll back."""
        if self._current is not None:
            self._current.stop(signal.SIGKILL)

    def _continue(self) -> None:
        filler = self._current
        assert filler is not None
        filler.go_on()
        if filler.exchange is None:
            self._selector.unregister(filler.link)
        else:
            self._selector.modify(filler.link, filler.exchange.events, self._continue)

    def _finish(self) -> None:
        """The filler has ended: use its result, or abandon its task."""
        filler, self._current = self._current, None
        assert filler is not None
        for descriptor in (filler.link, filler.exit_descriptor):
            if descriptor in self._selector.get_map():
                self._selector.unregister(descriptor)
        code = filler.wait()
        task, why = filler.task, f"the filler ended with code {code}"
        if code == 0 and filler.result is not None and (filler.was_stopped or not self._is_wanted()):
            filler.result.close()
            why = "what the filler has made is not wanted any more"
        elif code == 0 and filler.result is not None:
            try:
                self._on_end(task, 0, task.finish(filler.result))
                return
            except OSError as error:
                filler.result.close()
                why = f"its result cannot be used: {error}"
        elif code < 0:
            why = f"the filler was ended by signal {-code}"
        task.abandon()
        self._on_end(task, code or int(ExitCode.ROLLED_BACK), why)
