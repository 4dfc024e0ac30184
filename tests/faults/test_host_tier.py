"""Fail every driver call of moves to the host and back, whole or in part, and of growth that overflows there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hipplan.layout.layout import Layout
from tests.conftest import Simulator
from tests.faults.harness import FOR_EVER, ONCE, RELEASES, calls_of, require_turn, sweep_codes, sweep_undo
from tests.faults.test_every_call import program_of, quick
from tests.faults.test_sleep import Tier

pytestmark = pytest.mark.in_parts

__all__ = ["quick"]

TIERS = """
hipplan: 1
devices: {gpu: {count: 2}}
regions:
  hot: {devices: [gpu.*], spread: interleave, size: 8MiB, chunk: 2MiB, access: {owner: rw, others: r}}
  tail: {devices: [gpu.1, host], sizes: [2MiB, 2MiB], chunk: 2MiB}
"""
FULL = """
hipplan: 1
devices: {gpu: {count: 2}}
regions: {hot: {device: gpu.0, size: 2MiB, chunk: 2MiB, reserve: 32MiB, overflow: host}}
buffers: {rest: {kind: device, device: gpu.0, size: fill, reserve: 3MiB}}
"""
"""Has room for one more chunk on its device."""

Act = Callable[[Layout], Any]


def remap(**how: Any) -> Act:
    return lambda layout: layout.remap("hot", **how)


def all_of(*acts: Act) -> Act:
    def act(layout: Layout) -> None:
        for each in acts:
            each(layout)

    return act


def grow(by: str) -> Act:
    return lambda layout: layout.grow("hot", by=by)


def nothing(layout: Layout) -> None:
    pass


AWAY, HOME = remap(device="host"), remap(device="gpu.0", retain=True)
PART = {"part": "2MiB..6MiB"}

ACTS: dict[str, tuple[str, Act, Act]] = {
    "all of it to the host": (TIERS, nothing, AWAY),
    "all of it back": (TIERS, AWAY, remap(device="gpu.1")),
    "all of it back, and the host's memory is kept": (TIERS, AWAY, HOME),
    "all of it to memory that was kept": (TIERS, all_of(AWAY, HOME), AWAY),
    "a part to the host": (TIERS, nothing, remap(device="host", **PART)),
    "a part back, and the host's memory is kept": (TIERS, AWAY, remap(device="gpu.0", retain=True, **PART)),
    "a part to memory that was kept": (TIERS, all_of(AWAY, HOME), remap(device="host", **PART)),
    "back, and what was kept is freed": (
        TIERS,
        all_of(AWAY, HOME, remap(device="host", **PART)),
        remap(device="gpu.1"),
    ),
    "without the bytes": (TIERS, nothing, remap(device="host", keep_bytes=False)),
    "it grows on its device and on the host": (FULL, nothing, grow("6MiB")),
    "it grows on the host alone": (FULL, grow("2MiB"), grow("4MiB")),
    "it shrinks on the host": (FULL, grow("6MiB"), lambda layout: layout.shrink("hot", to="4MiB")),
}
"""The plan, what comes before, in which no call fails; and what calls fail in."""


def phase(what: str, sim: Simulator) -> Tier:
    source, first, act = ACTS[what]
    return Tier(sim, program_of(source), act, first=first)


@pytest.mark.parametrize("what", ACTS)
@pytest.mark.parametrize("mode", [ONCE, FOR_EVER], ids=["once", "for ever"])
def test_a_call_that_fails_leaves_all_where_it_was_or_where_it_goes(
    what: str, mode: str, quick: Simulator, tmp_path: Path
) -> None:
    require_turn(quick, mode, [*ACTS].index(what))
    change = phase(what, quick)
    calls = calls_of(change, tmp_path / "trace")
    assert len(calls) > 5
    sweep_codes(change, calls, mode)


@pytest.mark.parametrize("what", ACTS)
@pytest.mark.parametrize("quick", RELEASES[-1:], indirect=True)
def test_a_failure_in_the_roll_back_does_not_stop_the_rest(what: str, quick: Simulator, tmp_path: Path) -> None:
    change = phase(what, quick)
    sweep_undo(change, calls_of(change, tmp_path / "trace"), "hipErrorOutOfMemory")
