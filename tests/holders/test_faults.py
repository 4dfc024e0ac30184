"""Each driver call of a filler and of an attached process fails in turn: only reported objects leak."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan.holders import generations
from hipplan.holders.filler import HolderConnection, fill, program_to_hold, restore, save
from hipplan.holders.generations import SavedBytes
from hipplan.language.loader import load
from hipplan.layout.assembly import Target
from hipplan.machines.runtimes import choose
from hipplan.processes.connections import Connection, Late
from hipplan.processes.packets import Gone, Received
from tests.conftest import WHOLE, Simulator
from tests.descriptors import descriptors
from tests.faults.harness import (
    FOR_EVER,
    ONCE,
    RELEASES,
    Phase,
    as_release,
    calls_of,
    require_turn,
    sweep_codes,
    sweep_undo,
)
from tests.holders.conftest import PLAN
from tests.holders.test_holders import attached, until

pytestmark = pytest.mark.in_parts

WAIT_S = 20.0
FILL = {"task": "fill", "beside": {}}


class HolderEnd:
    """A stand-in for the holder: it sends a request to a filler in this process, and receives its messages."""

    def __init__(self, request: Any, descriptors: Sequence[int] = (), *, keeps: bool = False) -> None:
        """keeps: keep the result and its descriptors in `result`."""
        own_end, other_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        own_end.setblocking(False)
        self.result = Received({})
        self._keeps = keeps
        self._connection = Connection(own_end)
        self._thread = threading.Thread(target=self._listen, args=(request, descriptors))
        self._thread.start()
        self.filler = HolderConnection(other_end.detach())

    def _listen(self, request: Any, descriptors: Sequence[int]) -> None:
        end = time.monotonic() + WAIT_S
        with contextlib.suppress(Gone, Late):
            while True:
                received = self._connection.exchange(request, end, descriptors=descriptors)
                request, descriptors = None, ()
                if self._keeps and "done" not in received.message:
                    self.result = received
                else:
                    received.close()

    def close(self) -> None:
        self.filler.close()
        self._thread.join(WAIT_S)
        self._connection.close()


def _ignored(done: int, total: int) -> None:
    """Progress."""


class Fill(Phase):
    """The whole work of a filler that fills."""

    name = "fill"  # type: ignore[assignment]

    def begin(self) -> HolderEnd:
        return HolderEnd(FILL)

    def act(self, state: HolderEnd) -> None:
        _fill(state)

    def end(self, state: HolderEnd) -> None:
        state.close()


def _fill(state: HolderEnd) -> None:
    chosen = choose("sim")
    program = program_to_hold(load(PLAN), Target(chosen), state.filler.beside)
    fill(program, chosen, state.filler, locked=False, on_bytes=_ignored, on_progress=_ignored)


def _fill_result() -> Received:
    """The result of a filler: a description of its memory, and descriptors."""
    end = HolderEnd(FILL, keeps=True)
    _fill(end)
    end.close()
    return end.result


class Save(Phase):
    """The whole work of a filler for a holder that goes to sleep."""

    name = "save"  # type: ignore[assignment]

    def __init__(self, sim: Simulator) -> None:
        super().__init__(sim)
        self.held = _fill_result()
        self.program = self.held.message["made"]["program"]
        self.size = self.held.message["made"]["size"]

    def begin(self) -> tuple[HolderEnd, SavedBytes]:
        backup = SavedBytes("host", self.size)
        request = {"task": "save", "program": self.program}
        return HolderEnd(request, [*self.held.descriptors, *backup.descriptors], keeps=True), backup

    def act(self, state: tuple[HolderEnd, SavedBytes]) -> None:
        save(choose("sim"), state[0].filler, on_bytes=_ignored, on_progress=_ignored)

    def check(self, state: tuple[HolderEnd, SavedBytes], error: Any, call: str, code: str, lasting: bool) -> None:
        if error is None:
            a, b = struct.pack("f", 1) * 2**19, struct.pack("f", 2.5) * 2**19
            assert sorted(_chunks(state[1])) == sorted([a, b, b"\7" * 2**21])

    def end(self, state: tuple[HolderEnd, SavedBytes]) -> None:
        state[0].close()
        assert state[0].result.message in ({}, {"saved": self.size})
        state[1].close()

    def close(self) -> None:
        """Free the memory whose bytes are saved."""
        self.held.close()


def _chunks(backup: SavedBytes) -> list[bytes]:
    """The bytes of each allocation, which follow one another in the files."""
    assert len(backup.descriptors) > 1
    contents = b"".join(os.pread(file, os.fstat(file).st_size, 0) for file in backup.descriptors)
    return [contents[at : at + 2**21] for at in range(0, backup.size, 2**21)]


class Restore(Save):
    """The whole work of a filler for a holder that wakes."""

    name = "restore"  # type: ignore[assignment]

    def __init__(self, sim: Simulator) -> None:
        super().__init__(sim)
        state = super().begin()
        super().act(state)
        state[0].close()
        self.backup = state[1]
        self.backup.complete()
        self.held.close()
        self.before = _chunks(self.backup)

    def begin(self) -> tuple[HolderEnd, SavedBytes]:
        request = {"task": "restore", "program": self.program, "beside": {}}
        return HolderEnd(request, self.backup.descriptors, keeps=True), self.backup

    def act(self, state: tuple[HolderEnd, SavedBytes]) -> None:
        restore(choose("sim"), state[0].filler, on_bytes=_ignored, on_progress=_ignored)

    def check(self, state: tuple[HolderEnd, SavedBytes], error: Any, call: str, code: str, lasting: bool) -> None:
        assert _chunks(self.backup) == self.before

    def end(self, state: tuple[HolderEnd, SavedBytes]) -> None:
        state[0].close()
        assert len(state[0].result.descriptors) == (3 if state[0].result.message else 0)
        state[0].result.close()

    def close(self) -> None:
        self.backup.close()


class Attach(Phase):
    """A process attaches."""

    name = "attach"  # type: ignore[assignment]

    def begin(self) -> list[hipplan.Layout]:
        return []

    def act(self, state: list[hipplan.Layout]) -> None:
        state.append(hipplan.attach("w"))

    def end(self, state: list[hipplan.Layout]) -> None:
        for layout in state:
            layout.close()


class Detach(Phase):
    """A process detaches."""

    name = "detach"  # type: ignore[assignment]

    def begin(self) -> hipplan.Layout:
        return hipplan.attach("w")

    def act(self, state: hipplan.Layout) -> None:
        state.close()


@pytest.fixture(params=RELEASES)
def quick(sim: Simulator, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulator]:
    """The simulator in the version of a HIP release, with retries that do not wait."""
    sim.runtime.set_retry_pause(0)
    monkeypatch.setattr(generations, "_FILE_MIN", 3 << 20)  # so that an allocation is saved in two files
    with as_release(sim, request.param):
        yield sim
    sim.runtime.set_retry_pause(1000)


@pytest.mark.parametrize("phase", [Fill, Attach, Detach, Save, Restore])
@pytest.mark.parametrize("mode", [ONCE, FOR_EVER], ids=["once", "for ever"])
def test_each_call_fails(kept: int, quick: Simulator, phase: type[Phase], mode: str, tmp_path: Path) -> None:
    require_turn(quick, mode)
    opened = descriptors(but="hipsim")
    swept = phase(quick)
    calls = calls_of(swept, tmp_path / "trace.jsonl")
    assert len(calls) > 10
    sweep_codes(swept, calls, mode)
    if isinstance(swept, Save):
        swept.close()
    assert descriptors(but="hipsim") == opened
    until(lambda: attached() == [])


@pytest.mark.parametrize("phase", [Fill, Attach, Save, Restore])
def test_each_call_of_a_roll_back_fails(kept: int, quick: Simulator, phase: type[Phase], tmp_path: Path) -> None:
    if not WHOLE and (quick.runtime.version >= 7_03_00000 or phase in (Save, Restore)):
        pytest.skip("make reliability has both releases and all phases")
    swept = phase(quick)
    sweep_undo(swept, calls_of(swept, tmp_path / "trace.jsonl"), "hipErrorOutOfMemory")
    if isinstance(swept, Save):
        swept.close()
    until(lambda: attached() == [])
