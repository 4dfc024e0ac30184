"""Client processes for tests: each attaches to a holder, and is killed or exits at a point that the test chooses."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Any

from tests.processes import CONTEXT


@dataclass
class Task:
    """What a client does."""

    holder: str
    packet: int = 0
    """The packet, sent or received, before which the process is killed, counted from 1; 0: it is not killed there."""
    then: str = "close"
    """After it has attached: close, kill, or leave (an exit without close)."""


@dataclass
class Outcome:
    """The result of a client that attached, or the error code."""

    packets: int
    """Sent and received."""
    address: int = 0
    ok: bool = False
    """Whether all bytes are right and the read-back shows no difference."""
    error: str = ""


class _PacketCounter:
    """Counts packets, and kills this process before the one with number kill_at."""

    def __init__(self, kill_at: int) -> None:
        from hipplan.processes import packets

        self.count, self._kill_at = 0, kill_at
        for name in ("_send", "_receive"):
            setattr(packets.Exchange, name, self._counting(getattr(packets.Exchange, name)))

    def _counting(self, method: Any) -> Any:
        def counted(exchange: Any, *arguments: Any) -> None:
            if self.count + 1 == self._kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            method(exchange, *arguments)  # raises if there is no packet to receive yet
            self.count += 1

        return counted


def _attach(task: Task, pipe: Any) -> None:
    import hipplan

    counter = _PacketCounter(task.packet)
    try:
        layout = hipplan.attach(task.holder)
        values = {float(value) for value in layout.read("model.b").ravel()[::97]}
        pipe.send(Outcome(counter.count, layout["model"].address, values == {2.5} and not layout.drift()))
    except hipplan.HipplanError as error:
        pipe.send(Outcome(counter.count, error=error.diagnostics[0].code))
        return
    if task.then == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if task.then == "leave":
        os._exit(0)
    layout.close()


def start(task: Task, environment: dict[str, str]) -> tuple[Any, Any]:
    """Start a client: (process, pipe), for result()."""
    read_end, write_end = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=_run, args=(task, write_end, environment), daemon=True)
    process.start()
    write_end.close()
    return process, read_end


def _run(task: Task, pipe: Any, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    _attach(task, pipe)


def result(process: Any, pipe: Any) -> Outcome | None:
    """The outcome of a client; None if it was killed before it had attached."""
    try:
        if not pipe.poll(120):
            process.kill()
            raise AssertionError("a client hangs")
        outcome: Outcome = pipe.recv()
        return outcome
    except EOFError:
        return None
    finally:
        process.join()
        pipe.close()
