"""Processes that attach and vanish: each has a simulator of its own, and ends where it is told to."""

from __future__ import annotations

import multiprocessing
import os
import signal
from dataclasses import dataclass
from typing import Any

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["hipplan.holders.attaching", "hipplan.api", "tests.holders.clients"])


@dataclass
class Task:
    """One attach."""

    holder: str
    packet: int = 0
    """Before sending or receiving which packet the process is killed, from 1; 0: not there."""
    then: str = "close"
    """close, kill or leave (an exit without close)."""


@dataclass
class Found:
    """What came of it."""

    packets: int
    """Sent and received."""
    address: int = 0
    ok: bool = False
    """Whether all bytes and all that was read back are right."""
    error: str = ""


class _Counted:
    def __init__(self, at: int) -> None:
        from hipplan.processes import packets

        self.count, self._at = 0, at
        for name in ("_send", "_receive"):
            setattr(packets.Talk, name, self._counting(getattr(packets.Talk, name)))

    def _counting(self, method: Any) -> Any:
        def counted(talk: Any, *arguments: Any) -> None:
            if self.count + 1 == self._at:
                os.kill(os.getpid(), signal.SIGKILL)
            method(talk, *arguments)  # or nothing is there to receive yet
            self.count += 1

        return counted


def _done(task: Task, pipe: Any) -> None:
    import hipplan

    counted = _Counted(task.packet)
    try:
        layout = hipplan.attach(task.holder, answer=False)
        values = {float(one) for one in layout.read("model.b").ravel()[::97]}
        pipe.send(Found(counted.count, layout["model"].address, values == {2.5} and not layout.drift()))
    except hipplan.HipplanError as error:
        pipe.send(Found(counted.count, error=error.diagnostics[0].code))
        return
    if task.then == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if task.then == "leave":
        os._exit(0)
    layout.close()


def start(task: Task, environment: dict[str, str]) -> tuple[Any, Any]:
    """(process, pipe) of a client; its Found comes over the pipe, or EOFError where it was killed before."""
    ours, theirs = _context.Pipe(duplex=False)
    process = _context.Process(target=_begin, args=(task, theirs, environment), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _begin(task: Task, pipe: Any, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    _done(task, pipe)


def result(process: Any, pipe: Any) -> Found | None:
    """None of one that was killed before it had attached."""
    try:
        if not pipe.poll(120):
            process.kill()
            raise AssertionError("a client hangs")
        found: Found = pipe.recv()
        return found
    except EOFError:
        return None
    finally:
        process.join()
        pipe.close()
