"""A filler as its holder sees it: a process that makes memory, fills it, sends descriptors of it and ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hipplan.processes.packets import Gone, Message, Received, Talk

Command = Callable[[int, Sequence[str]], list[str]]
"""The command of a filler: of the descriptor that it talks over, and of the arguments that say what to make."""
_SETTINGS = "HIPPLAN_"


class Order:
    """What is to be made, as somebody said it on a command line."""

    def __init__(self, arguments: Sequence[str], folder: str, settings: Mapping[str, str]) -> None:
        """settings: those environment variables that hipplan itself reads."""
        self.arguments = list(arguments)
        self.folder = folder
        self.settings = {name: value for name, value in settings.items() if name.startswith(_SETTINGS)}

    def message(self) -> Message:
        return {"arguments": self.arguments, "folder": self.folder, "settings": self.settings}

    @classmethod
    def read(cls, said: Message) -> Order:
        """Raises ValueError: it is none."""
        arguments, folder, settings = said.get("arguments"), said.get("folder"), said.get("settings")
        if not isinstance(arguments, list) or not isinstance(folder, str) or not isinstance(settings, dict):
            raise ValueError("an order has arguments, a folder and settings")
        for argument in (*arguments, folder, *settings, *settings.values()):
            if not isinstance(argument, str) or "\0" in argument:
                raise ValueError("an order is text")
        return cls(arguments, folder, settings)


class Filling:
    """A filler at work."""

    def __init__(self, command: Command, order: Order, streams: Sequence[int], held: Mapping[str, int]) -> None:
        """streams: its standard input, output and error. held: bytes by UUID of device that are to stay beside.

        Raises OSError, ValueError.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                others = {name: value for name, value in os.environ.items() if not name.startswith(_SETTINGS)}
                self._process = subprocess.Popen(
                    command(theirs.fileno(), order.arguments),
                    stdin=streams[0],
                    stdout=streams[1],
                    stderr=streams[2],
                    pass_fds=(theirs.fileno(),),
                    cwd=order.folder,
                    env=others | order.settings,
                    start_new_session=True,
                )
            ours.setblocking(False)
            self.ended = os.pidfd_open(self._process.pid)
        except BaseException:
            ours.close()
            raise
        self.link = ours
        self.talk: Talk | None = Talk(ours, {"held": dict(held)})
        self.done, self.total = 0, 0
        """Bytes of contents."""
        self.made: Received | None = None
        """What it has made, once it says so."""
        self.stopped = False

    def go_on(self) -> None:
        """Reads what it has said."""
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
        """Raises ValueError: it says nonsense."""
        said = received.message
        if "made" in said:
            self.made = Received(_checked(said["made"], len(received.descriptors)), received.descriptors)
            return
        received.close()
        done, total = said.get("done"), said.get("total")
        if not isinstance(done, int) or not isinstance(total, int):
            raise ValueError("no progress")
        self.done, self.total = done, total

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

    def share(self) -> float:
        """Of the bytes of contents, those that are there."""
        return self.done / self.total if self.total else 0.0


_MADE: dict[str, type] = {
    "program": str,
    "plan": str,
    "digest": str,
    "machine": str,
    "runtime": str,
    "family": str,
    "allocations": int,
    "bytes": dict,
    "bytes_by_uuid": dict,
    "writable": list,
}


def _checked(made: Any, descriptors: int) -> Message:
    if not isinstance(made, dict) or not all(isinstance(made.get(key), kind) for key, kind in _MADE.items()):
        raise ValueError("not what a filler makes")
    if made["allocations"] != descriptors:
        raise ValueError("descriptors are missing")
    return made
