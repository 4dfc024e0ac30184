"""Each driver call of a filler and of whoever attaches fails in turn: nothing is left but what was reported."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan.holders.filler import ToHolder, fill, prepared
from hipplan.language.loader import load
from hipplan.machines.runtimes import choose
from hipplan.processes.packets import Gone, Late, Line
from tests.conftest import WHOLE, Simulator
from tests.descriptors import descriptors
from tests.faults.harness import FOR_EVER, ONCE, RELEASES, Phase, as_release, calls_of, sweep_codes, sweep_undo
from tests.holders.conftest import PLAN
from tests.holders.test_holders import attached, until

WAIT_S = 20.0


class HolderEnd:
    """What a filler talks to: it hears all, and keeps nothing."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self.made: Any = None
        self.descriptors = 0
        self._line = Line(ours)
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()
        self.filler = ToHolder(theirs.detach())

    def _listen(self) -> None:
        end = time.monotonic() + WAIT_S
        said = {"held": {}}
        with contextlib.suppress(Gone, Late):
            while True:
                received = self._line.exchange(said, end)
                said = None  # type: ignore[assignment]
                self.made = received.message.get("made", self.made)
                self.descriptors += len(received.descriptors)
                received.close()

    def close(self) -> None:
        self.filler.close()
        self._thread.join(WAIT_S)
        self._line.close()


def _ignored(done: int, total: int) -> None:
    """Progress."""


class Fill(Phase):
    """All that a filler does."""

    name = "fill"  # type: ignore[assignment]

    def begin(self) -> HolderEnd:
        return HolderEnd()

    def act(self, state: HolderEnd) -> None:
        chosen = choose("sim")
        program = prepared(load(PLAN), chosen, None, None, state.filler.held)
        fill(program, chosen, state.filler, locked=False, on_bytes=_ignored, on_progress=_ignored)

    def end(self, state: HolderEnd) -> None:
        state.close()


class Attach(Phase):
    """One attaches."""

    name = "attach"  # type: ignore[assignment]

    def begin(self) -> list[hipplan.Layout]:
        return []

    def act(self, state: list[hipplan.Layout]) -> None:
        state.append(hipplan.attach("w", answer=False))

    def end(self, state: list[hipplan.Layout]) -> None:
        for layout in state:
            layout.close()


class Detach(Phase):
    """One lets go."""

    name = "detach"  # type: ignore[assignment]

    def begin(self) -> hipplan.Layout:
        return hipplan.attach("w", answer=False)

    def act(self, state: hipplan.Layout) -> None:
        state.close()


@pytest.fixture(params=RELEASES)
def quick(sim: Simulator, request: pytest.FixtureRequest) -> Iterator[Simulator]:
    """The simulator as a release of HIP, with retries that do not wait."""
    sim.runtime.set_retry_pause(0)
    with as_release(sim, request.param):
        yield sim
    sim.runtime.set_retry_pause(1000)


@pytest.mark.parametrize("phase", [Fill, Attach, Detach])
@pytest.mark.parametrize("mode", [ONCE, FOR_EVER], ids=["once", "for ever"])
def test_each_call_fails(kept: int, quick: Simulator, phase: type[Phase], mode: str, tmp_path: Path) -> None:
    opened = descriptors(but="hipsim")
    tried = phase(quick)
    calls = calls_of(tried, tmp_path / "trace.jsonl")
    assert len(calls) > 10
    sweep_codes(tried, calls, mode)
    assert descriptors(but="hipsim") == opened
    until(lambda: attached() == [])


@pytest.mark.parametrize("phase", [Fill, Attach])
def test_each_call_of_a_roll_back_fails(kept: int, quick: Simulator, phase: type[Phase], tmp_path: Path) -> None:
    if not WHOLE and quick.runtime.version >= 7_03_00000:
        pytest.skip("make reliability has both releases")
    tried = phase(quick)
    sweep_undo(tried, calls_of(tried, tmp_path / "trace.jsonl"), "hipErrorOutOfMemory")
    until(lambda: attached() == [])
