"""Ranks as processes that are used again: each has a simulator of its own, and applies plans when told to."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.clocks import jumping_clock
from tests.descriptors import descriptors
from tests.faults.harness import as_release, points
from tests.processes import CONTEXT

_WORDS = {
    "kill": "are killed",
    "stop": "stop",
    "lose": "lose the store",
    "miss": "miss the store",
    "fill": "fill the store",
}
RESUME_S = 0.02
SIMULATED = "hipsim"
"""Memory of the simulator, which it keeps for the next allocation."""
SHORT_S = 0.3
"""How long ranks wait for one that does not come."""
PATIENCE_S = (SHORT_S, 1.2, 5.0)
WAIT_S = 120.0
"""For a worker that is stuck; nothing waits so long where all is well."""


@dataclass
class Task:
    """One apply of one rank."""

    plan: Any
    folder: str
    rank: int
    size: int
    timeout: float = WAIT_S
    faults: str = ""
    version: str = ""
    at: int = 0
    """At which operation on the store something happens, from 1: counted before it, or after it if `after`."""
    after: bool = False
    act: str = ""
    """kill, stop, interrupt, user signal, lose (the store), miss (it for a moment), fill (its disk); or close first,
    before a change."""
    calls: int = 1
    grow: str = ""
    """By how much the region "part" grows then; a difference of the ranks' own is allowed."""
    grow_faults: str = ""
    update: Any = None
    """A plan that the layout becomes."""
    script: str = ""
    """A function of tests.ranks.scripts that is called with the layout, and whose result is the outcome's value."""
    node: str = ""
    """HIPPLAN_NODE."""
    packet: int = 0
    """Before which packet to another rank something happens, from 1."""
    port: int = 0
    """Of a TCPStore on this host that is the group's store instead of the folder."""
    quirk: str = ""
    """Of the rank's simulator."""
    clock: bool = False
    """Whether its wall clock jumps."""


@dataclass
class Outcome:
    """What became of it."""

    result: str
    """committed, or the class of the exception."""
    codes: tuple[str, ...] = ()
    text: str = ""
    exit_code: int = 0
    alive: int = 0
    """Objects of the ledger while it was held, or in doubt."""
    left: int = 0
    """At the end."""
    operations: int = 0
    """On the store."""
    driver_calls: int = 0
    """Of the apply."""
    sizes: dict[str, int] = field(default_factory=dict)
    value: Any = None
    """Of the script."""
    packets: int = 0
    """To other ranks."""
    descriptors: int = 0
    """How many more are open at the end than were at the beginning."""


class _Meddling:
    """A store in which something happens at one operation."""

    def __init__(self, store: Any, task: Task) -> None:
        self._store = store
        self._task = task
        self._lost: Exception | None = None
        self._full: Exception | None = None
        self.operations = 0

    def first(self, key: str, value: bytes) -> bytes:
        if self._lost or self._full:
            raise self._lost or self._full  # type: ignore[misc]
        with self._meddled():
            matched: bytes = self._store.first(key, value)
        return matched

    def get(self, key: str, until: float, look: Any) -> bytes | None:
        from hipplan.ranks.stores import StoreLost

        if self._lost:
            raise self._lost
        if until == 0.0:  # a look in between, of which there may be any number
            if self._task.act == "miss":
                raise StoreLost("the store is out of reach for a look")
            there: bytes | None = self._store.get(key, until, look)
            return there
        with self._meddled():
            matched: bytes | None = self._store.get(key, until, look)
        return matched

    @contextlib.contextmanager
    def _meddled(self) -> Iterator[None]:
        self.operations += 1
        if self.operations == self._task.at and not self._task.after:
            self.meddle()
        yield
        if self.operations == self._task.at and self._task.after:
            self.meddle()

    def meddle(self) -> None:
        from hipplan.ranks.stores import StoreLost

        match self._task.act:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "user signal":
                signal.raise_signal(signal.SIGUSR1)
            case "interrupt":
                signal.raise_signal(signal.SIGINT)
            case "miss":
                raise StoreLost("the store is out of reach for a moment")
            case "lose":
                self._lost = StoreLost("the store is gone")
                raise self._lost
            case "fill":  # what is there can still be read
                self._full = StoreLost("No space left on device")


class _CountedPackets:
    """What happens before a packet to another rank."""

    def __init__(self, task: Task, meddle: Callable[[], None]) -> None:
        from hipplan.processes import packets

        self.count = 0
        send = _own_send.setdefault("send", packets.Exchange._send)

        def counted(exchange: Any, *packet: Any) -> None:
            self.count += 1
            if self.count == task.packet:
                meddle()
            send(exchange, *packet)

        packets.Exchange._send = counted  # type: ignore[method-assign]


_own_send: dict[str, Any] = {}


def _done(task: Task) -> Outcome:
    import hipplan
    import hipplan.ranks.agreement as agreement
    from hipplan.errors import GroupInDoubt, HipplanError
    from tests.conftest import Simulator
    from tests.ranks import scripts

    agreement.SLACK_S = 0.1
    agreement.__version__ = task.version or hipplan.__version__  # type: ignore[attr-defined]
    if isinstance(task.plan, str) and task.plan.startswith("slow:"):
        task.plan = task.plan.removeprefix("slow:")
        time.sleep(task.timeout / 2)  # the others wait meanwhile
    os.environ["HIPPLAN_NODE"] = task.node
    signal.signal(signal.SIGUSR1, lambda number, frame: sys.exit())
    sim = Simulator()
    sim.runtime.arm_faults(task.faults or "*@1000000000=1")  # which never comes, but counts
    group = hipplan.group(_over(task), task.rank, task.size)
    group.store = store = _Meddling(group.store, task)  # type: ignore[assignment]
    packets = _CountedPackets(task, store.meddle)
    opened = descriptors(but=SIMULATED)
    outcome = Outcome("")
    try:
        for _ in range(task.calls):
            with hipplan.apply(task.plan, runtime="sim", group=group, timeout=task.timeout) as layout:
                outcome.result = "committed"
                outcome.alive = len(sim.alive())
                outcome.driver_calls = sim.runtime.calls_counted()
                sim.runtime.arm_faults("")  # waits take more calls or fewer: what was to fail may be past the apply
                if task.grow or task.update is not None:
                    _change(layout, task, sim, outcome)
                if task.script:
                    outcome.value = getattr(scripts, task.script)(layout, sim)
                outcome.sizes = {name: layout[name].size for name in layout} if not layout.closed else {}
    except GroupInDoubt as doubt:
        outcome.alive = len(sim.alive())
        outcome.result, outcome.codes, outcome.text = "GroupInDoubt", _codes(doubt), str(doubt)
        doubt.close()
        doubt.close()
    except HipplanError as error:
        outcome.result, outcome.codes, outcome.text = type(error).__name__, _codes(error), str(error)
        outcome.exit_code = int(error.exit_code)
    except BaseException as error:
        outcome.result, outcome.text = type(error).__name__, str(error)
    sim.runtime.arm_faults("")
    outcome.left, outcome.operations, outcome.packets = len(sim.alive()), store.operations, packets.count
    outcome.descriptors = descriptors(but=SIMULATED) - opened
    sim.free_everything()
    return outcome


def _change(layout: Any, task: Task, sim: Any, outcome: Outcome) -> None:
    """What it came to is the result; the layout is looked at and closed all the same, unless there is a doubt."""
    from hipplan.errors import GroupInDoubt, HipplanError

    if task.act == "close first":
        layout.close()
    sim.runtime.arm_faults(task.grow_faults or "*@1000000000=1")
    try:
        if task.update is None:
            layout.grow("part", by=task.grow)
        else:
            layout.update(task.update, lose="*")
        outcome.result = "changed"
    except GroupInDoubt:
        raise
    except HipplanError as error:
        outcome.result, outcome.codes, outcome.text = type(error).__name__, _codes(error), str(error)
    outcome.driver_calls = sim.runtime.calls_counted()
    sim.runtime.arm_faults("")


def _over(task: Task) -> Any:
    if not task.port:
        return task.folder
    from torch.distributed import TCPStore

    return TCPStore("127.0.0.1", task.port, None, False)


def _codes(error: Any) -> tuple[str, ...]:
    return tuple(diagnostic.code for diagnostic in error.diagnostics)


def _work(pipe: Any) -> None:
    from tests.conftest import Simulator

    with contextlib.suppress(EOFError):
        while True:
            task = pipe.recv()
            with contextlib.ExitStack() as around:
                if task.quirk:
                    around.enter_context(as_release(Simulator(), "7.2.53211", task.quirk))
                if task.clock:
                    around.enter_context(jumping_clock())
                pipe.send(_done(task))


def patiently(
    run: Callable[[float], list[Outcome | None]], is_late: Callable[[list[Outcome | None]], bool]
) -> list[Outcome | None]:
    """What came of it with the shortest timeout in which a busy machine made no rank late that was to be in time.

    run: with a timeout. is_late: whether such a rank was late. The longest timeout counts whatever comes of it.
    """
    for timeout in PATIENCE_S:
        outcomes = run(timeout)
        if not is_late(outcomes):
            break
    return outcomes


def too_late(outcomes: list[Outcome | None]) -> set[int]:
    """The ranks that did not answer in time, as the outcomes say."""
    texts = [outcome.text for outcome in outcomes if outcome is not None]
    named = [ranks for text in texts for ranks in re.findall(r"ranks? ([\d, ]+) did not answer", text)]
    return {int(rank) for ranks in named for rank in ranks.split(", ")}


class Workers:
    """Processes for the ranks 0, 1, ...; one that was killed is started anew when it is needed."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Any]] = {}

    def run(self, *tasks: Task, resume: bool = False) -> list[Outcome | None]:
        """All at the same time; None of one that was killed. resume: one that was stopped goes on when all others are
        done."""
        for task in tasks:
            if task.faults or task.grow_faults:
                points["calls of ranks"] += 1
            if task.clock:
                points["ranks whose clock jumps"] += 1
            if task.act:
                points[f"ranks that {_WORDS.get(task.act, task.act)}"] += 1
            self._pipe(task.rank).send(task)
        order = sorted(tasks, key=lambda task: task.act == "stop")
        collected: dict[int, Outcome | None] = {}
        for task in order:
            collected[task.rank] = self._answer(task.rank, stopped=task.act == "stop" and resume)
        return [collected[task.rank] for task in tasks]

    def close(self) -> None:
        for process, pipe in self._known.values():
            pipe.close()
            process.kill()
            process.join()

    def _pipe(self, rank: int) -> Any:
        if rank not in self._known:
            own, peer = CONTEXT.Pipe()
            process = CONTEXT.Process(target=_work, args=(peer,), daemon=True)
            process.start()
            peer.close()
            self._known[rank] = process, own
        return self._known[rank][1]

    def _answer(self, rank: int, *, stopped: bool = False) -> Outcome | None:
        """stopped: it stops, perhaps only after all others are done, and is to go on."""
        process, pipe = self._known[rank]
        until = time.monotonic() + WAIT_S
        try:
            while not pipe.poll(RESUME_S if stopped else WAIT_S):
                if not stopped or time.monotonic() > until:
                    del self._known[rank]
                    process.kill()
                    raise AssertionError(f"rank {rank} hangs")
                os.kill(process.pid, signal.SIGCONT)
            outcome: Outcome = pipe.recv()
        except EOFError:
            process.join()
            del self._known[rank]
            return None
        return outcome
