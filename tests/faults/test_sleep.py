"""Fail every driver call of sleep and wake: the layout is awake and unchanged, or asleep; no byte is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hipplan.layout.layout import Layout
from tests.conftest import Key, Simulator, keys_of
from tests.faults.change import PATTERN_BYTES, Change, owned
from tests.faults.harness import (
    FOR_EVER,
    ONCE,
    RELEASES,
    Error,
    calls_of,
    failures_of,
    require_turn,
    sweep_codes,
    sweep_undo,
    woken,
)
from tests.faults.test_every_call import program_of, quick

pytestmark = pytest.mark.in_parts

__all__ = ["quick"]

KIB = 2**10
PLAN = """
hipplan: 1
devices: {gpu: {count: 2}}
allocations: {part: {device: gpu.0, size: 64KiB}}
reservations:
  twice: {size: 512KiB, mappings: [{allocation: part, access: {gpu.0: rw}}, {allocation: part, access: {gpu.1: r}}]}
regions:
  weights:
    devices: [gpu.*]
    spread: interleave
    size: 128KiB
    chunk: 64KiB
    seal: true
    access: {owner: rw, others: r}
contents: {weights: {value: 7}}
"""
NAMES = ["weights", "twice"]

Act = Callable[[Layout], Any]
Acts = tuple[Act | None, Act]
"""What comes before, in which no call fails; and what calls fail in."""


def sleep(**how: Any) -> Act:
    return lambda layout: layout.sleep(NAMES, **how)


def wake(**how: Any) -> Act:
    return lambda layout: woken(layout, **how)


def slept_once(layout: Layout) -> None:
    layout.sleep(NAMES)
    layout.wake(retain=True)


def was_on_host(layout: Layout) -> None:
    layout.sleep(NAMES, to="mapped")
    layout.wake(retain=True)


def slept_in(file: Path) -> Act:
    def act(layout: Layout) -> None:
        layout.sleep(NAMES, to=file)
        layout.wake(retain=True)

    return act


ACTS: dict[str, Callable[[Path], Acts]] = {
    "sleep": lambda file: (None, sleep()),
    "sleep in the copy that was kept": lambda file: (slept_once, sleep(unchanged="twice", checksum=True)),
    "sleep in a file": lambda file: (None, sleep(to=file)),
    "sleep in the file that was kept": lambda file: (slept_in(file), sleep(to=file, unchanged=NAMES)),
    "sleep in another file": lambda file: (slept_in(file), sleep(to=file.with_name("other.bin"))),
    "drop": lambda file: (None, sleep(to="drop")),
    "wake": lambda file: (sleep(checksum=True), wake()),
    "wake a part": lambda file: (sleep(), wake(names="weights")),
    "wake and keep the copies": lambda file: (sleep(), wake(retain=True)),
    "wake from a file": lambda file: (sleep(to=file, checksum=True), wake()),
    "sleep on the host": lambda file: (None, sleep(to="mapped")),
    "sleep in the host's memory that was kept": lambda file: (was_on_host, sleep(to="mapped")),
    "wake from the host": lambda file: (sleep(to="mapped"), wake()),
    "wake and keep the host's memory": lambda file: (sleep(to="mapped"), wake(retain=True)),
    "wake what was dropped": lambda file: (sleep(to="drop"), wake()),
}


class Tier(Change):
    """A change of memory that may move to the host."""

    def expected(self, before: set[Key], error: Error) -> set[Key]:
        """With the memory of the host that is kept for the next time."""
        own = owned(self.sim, self.layout) | keys_of(failures_of(error)) | self.others
        on_host = [
            memory for memory in self.sim.ledger()["allocations"] if memory["device"] < 0 and memory["references"]
        ]
        kept = {("allocation", memory["handle"]): memory["size"] for memory in on_host}
        kept = {key: size for key, size in kept.items() if key not in own}
        assert sum(kept.values()) == self.layout.retained
        return super().expected(before, error) | kept.keys()


class Slept(Tier):
    """Whatever failed: when it is awake at last, all is where it was, with its bytes."""

    def __init__(self, sim: Simulator, act: Act, first: Act | None, folder: Path) -> None:
        """folder: of the file where bytes sleep, and of nothing else."""
        super().__init__(sim, program_of(PLAN), act, first=first)
        self.folder = folder

    def begin(self) -> Layout:
        for file in self.folder.iterdir():
            file.unlink()  # of a layout that was closed asleep
        layout = super().begin()
        self.was_asleep = layout.asleep
        return layout

    def check(self, state: Layout, error: Error | None, call: str, code: str, lasting: bool) -> None:
        super().check(state, error, call, code, lasting)
        self.require_files(state)
        if any(failure.is_change or failure.call == "hipMemUnmap" for failure in failures_of(error)):
            return  # a mapping that was lost is where another one would have to come
        dropped = "drop" in (*state.asleep.values(), *self.was_asleep.values())
        state.wake()
        self.require_files(state)
        assert (state.asleep, state.drift()) == ({}, [])
        assert self.sim.read(state["weights"].address, 128 * KIB) == b"\7" * (128 * KIB)
        for address, value in self.written.items():
            if not dropped or address != state["twice"].address:
                assert self.sim.read(address, PATTERN_BYTES) == bytes([value]) * PATTERN_BYTES

    def require_files(self, layout: Layout) -> None:
        """There is a file where the layout has bytes in one, and it is held open; else there is none."""
        expected = {Path(backup.place) for backup in layout.program.backups.values() if backup.to == "file"}
        assert {*self.folder.iterdir()} == expected
        assert layout._holding.state.copies.files.keys() == {*map(str, expected)}


def phase(what: str, sim: Simulator, folder: Path) -> Change:
    (files := folder / "files").mkdir()
    first, act = ACTS[what](files / "copy.bin")
    return Slept(sim, act, first, files)


@pytest.mark.parametrize("what", ACTS)
@pytest.mark.parametrize("mode", [ONCE, FOR_EVER], ids=["once", "for ever"])
def test_a_call_that_fails_leaves_it_awake_or_asleep(what: str, mode: str, quick: Simulator, tmp_path: Path) -> None:
    require_turn(quick, mode, [*ACTS].index(what))
    change = phase(what, quick, tmp_path)
    calls = calls_of(change, tmp_path / "trace")
    assert len(calls) > 5
    sweep_codes(change, calls, mode)


@pytest.mark.parametrize("what", ACTS)
@pytest.mark.parametrize("quick", RELEASES[-1:], indirect=True)
def test_a_failure_in_the_roll_back_does_not_stop_the_rest(what: str, quick: Simulator, tmp_path: Path) -> None:
    change = phase(what, quick, tmp_path)
    sweep_undo(change, calls_of(change, tmp_path / "trace"), "hipErrorOutOfMemory")
