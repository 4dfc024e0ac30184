"""Fail every driver call of every change in place: the old layout untouched, or the new one, and nothing else alive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hipplan.errors import RuntimeUnavailable
from hipplan.language.loader import load
from hipplan.layout.engine import carry_out
from hipplan.layout.layout import Layout
from hipplan.layout.options import Options
from hipplan.layout.run import run
from hipplan.layout.state import State
from hipplan.layout.verbs import AgreementOrNone, Update
from hipplan.lowering.compiler import compile_change
from hipplan.machines.discover import discover
from hipplan.machines.runtimes import choose
from hipplan.program.difference import Difference
from tests.conftest import WHOLE, Simulator
from tests.faults import generated
from tests.faults.change import Change
from tests.faults.harness import FOR_EVER, ONCE, RELEASES, calls_of, require_turn, sweep, sweep_codes, sweep_undo
from tests.faults.test_every_call import bound, program_of, quick

pytestmark = pytest.mark.in_parts

__all__ = ["quick"]

ONE = """
hipplan: 1
devices: {gpu: {count: 2}}
peers: [{device: gpu.0, peer: gpu.1}]
allocations:
  weights: {device: gpu.0, size: 4MiB}
  cache: {device: gpu.1, size: 2MiB}
reservations:
  model:
    size: 64MiB
    mappings:
      - {allocation: weights, at: 0, access: {gpu.0: rw, gpu.1: r}}
      - {allocation: cache, at: 32MiB, access: {gpu.1: rw}}
streams:
  work: {device: gpu.0}
buffers:
  linked: {kind: device, device: gpu.1, size: 1MiB}
  staging: {kind: pinned, size: 1MiB}
  table: {kind: managed, size: 2MiB, advice: [{advise: preferred_location, device: gpu.0}]}
regions:
  hot: {device: gpu.0, size: 4MiB, chunk: 2MiB, reserve: 32MiB, tensors: {rows: {dtype: u8, shape: [-1]}}}
"""
OTHER = """
hipplan: 1
devices: {gpu: {count: 2}}
peers: [{device: gpu.1, peer: gpu.0}]
allocations:
  weights: {device: gpu.0, size: 4MiB}
  cache: {device: gpu.1, size: 4MiB}
  more: {device: gpu.0, size: 2MiB}
reservations:
  model:
    size: 64MiB
    mappings:
      - {allocation: more, at: 8MiB, access: {gpu.0: rw}}
      - {allocation: weights, at: 0, access: {gpu.0: rw, gpu.1: rw}}
      - {allocation: cache, at: 32MiB, access: {gpu.1: rw, gpu.0: r}}
  second: {size: 8MiB, mappings: [{allocation: weights, access: {gpu.1: rw}}]}
buffers:
  linked: {kind: device, device: gpu.0, size: 1MiB}
  table:
    kind: managed
    size: 2MiB
    advice: [{advise: preferred_location, device: gpu.1, range: {at: 0, size: 1MiB}}, {advise: read_mostly}]
    prefetch: [{to: gpu.1}]
regions:
  hot: {device: gpu.0, size: 8MiB, chunk: 2MiB, reserve: 32MiB, access: {gpu.0: rw, gpu.1: r}}
"""

FULL = """
hipplan: 1
devices: {gpu: {count: 2}}
allocations: {part: {device: gpu.0, size: 2MiB, count: 2}}
reservations:
  full: {size: 6MiB, address: 0x7e0000000000, access: {gpu.0: rw, gpu.1: r}, mappings: [{allocation: part.*}]}
"""

FILLED = """
hipplan: 1
devices: {{gpu: {{count: 2}}}}
buffers: {{linked: {{kind: device, device: gpu.{other}, size: 1MiB}}}}
regions: {{hot: {{device: gpu.{device}, size: {size}, chunk: 2MiB, access: {{gpu.{device}: rw, gpu.{other}: r}}}}}}
contents: {{hot: {{value: 7}}, linked: {{value: 1.5, dtype: f32}}}}
"""
FILLED_HERE = FILLED.format(device=0, other=1, size="2MiB")

SEALED = """
hipplan: 1
devices: {{gpu: {{count: 2}}}}
regions:
  hot:
    devices: [gpu.*]
    spread: interleave
    size: {size}
    chunk: 2MiB
    reserve: 16MiB
    seal: {seal}
    access: {access}
    tensors: {{a: {{dtype: u8, shape: [{rows}]}}, b: {{dtype: u8, shape: [-1]}}}}
contents: {{hot.a: {{value: 1}}, hot.b: {{value: 2}}}}
"""
OWNERS = "{owner: rw, others: r}"
ON_HOST = """
hipplan: 1
devices: {gpu: {count: 2}}
regions:
  hot: {devices: [gpu.1, host], sizes: [2MiB, 2MiB], chunk: 2MiB, access: {owner: rw}}
"""
SEALED_HERE = SEALED.format(size="4MiB", seal="true", access=OWNERS, rows=4096)
OPEN_HERE = SEALED.format(size="4MiB", seal="false", access="{gpu.*: rw}", rows=4096)
SEALED_LONGER = SEALED.format(size="8MiB", seal="true", access=OWNERS, rows=4096)
SEALED_OTHERWISE = SEALED.format(size="4MiB", seal="true", access=OWNERS, rows=8192)
OWNED = SEALED.format(size="4MiB", seal="false", access=OWNERS, rows=4096)

Act = Callable[[Layout], Any]


class Compiled:
    """A plan, compiled once for each program that it is the change from, on a machine that was measured before."""

    def __init__(self, source: Any) -> None:
        self._plan, self._machine = load(source), discover(choose("sim"))
        self._changes: list[Difference] = []

    def change(self, state: State, group: AgreementOrNone) -> Difference:
        for known in self._changes:
            if known.old is state.program:
                return known
        self._changes.append(compile_change(state.program, self._plan, self._machine))
        return self._changes[-1]


def become(source: Any, bind: Mapping[str, Any] | None = None) -> Act:
    """layout.update(), with the machine measured before; the change to the program is compiled once."""
    wanted = Update(Compiled(source))
    return lambda layout: carry_out(layout._holding, wanted, Options(bind=bind, lose="*"))


ACTS: dict[str, tuple[str, Callable[[], Act]]] = {
    "update": (ONE, lambda: become(OTHER)),
    "update back": (OTHER, lambda: become(ONE)),
    "update and fill what grows": (FILLED_HERE, lambda: become(FILLED.format(device=0, other=1, size="4MiB"))),
    "update and fill what moves": (FILLED_HERE, lambda: become(FILLED.format(device=1, other=0, size="4MiB"))),
    "grow a region": (ONE, lambda: lambda layout: layout.grow("hot", by="4MiB")),
    "shrink a region": (ONE, lambda: lambda layout: layout.shrink("hot", by="2MiB")),
    "grow a reservation": (FULL, lambda: lambda layout: layout.grow("full", by="4MiB")),
    "shrink a reservation": (FULL, lambda: lambda layout: layout.shrink("full", by="2MiB")),
    "remap with the bytes": (ONE, lambda: lambda layout: layout.remap("hot")),
    "remap to another device": (ONE, lambda: lambda layout: layout.remap("hot", device="gpu.1")),
    "remap without the bytes": (ONE, lambda: lambda layout: layout.remap("model", keep_bytes=False)),
    "remap a part": (ONE, lambda: lambda layout: layout.remap("hot", part="2MiB..4MiB")),
    "remap a part to another device": (
        OWNED,
        lambda: lambda layout: layout.remap("hot", part="..2MiB", device="gpu.1"),
    ),
    "remap to the host": (ONE, lambda: lambda layout: layout.remap("hot", device="host")),
    "remap from the host": (ON_HOST, lambda: lambda layout: layout.remap("hot", device="gpu.1")),
    "remap a part to the host": (ON_HOST, lambda: lambda layout: layout.remap("hot", part="..2MiB", device="host")),
    "seal": (ONE, lambda: lambda layout: layout.seal("model")),
    "update and seal what grows": (SEALED_HERE, lambda: become(SEALED_LONGER)),
    "update and fill what is sealed": (SEALED_HERE, lambda: become(SEALED_OTHERWISE)),
    "update to owners": (OPEN_HERE, lambda: become(OWNED)),
    "remap to one owner": (OWNED, lambda: lambda layout: layout.remap("hot", device="gpu.1")),
}


@pytest.mark.parametrize("what", ACTS)
@pytest.mark.parametrize("mode", [ONCE, FOR_EVER], ids=["once", "for ever"])
def test_a_call_that_fails_leaves_the_old_or_the_new(what: str, mode: str, quick: Simulator, tmp_path: Path) -> None:
    require_turn(quick, mode)
    source, act = ACTS[what]
    phase = Change(quick, program_of(source), act())
    calls = calls_of(phase, tmp_path / "trace")
    assert len(calls) > 5
    sweep_codes(phase, calls, mode)


@pytest.mark.parametrize("what", [what for what in ACTS if what != "update"])  # which has too many pairs of calls
@pytest.mark.parametrize("quick", RELEASES[-1:], indirect=True)
def test_a_failure_in_the_roll_back_does_not_stop_the_rest(what: str, quick: Simulator, tmp_path: Path) -> None:
    source, act = ACTS[what]
    phase = Change(quick, program_of(source), act())
    sweep_undo(phase, calls_of(phase, tmp_path / "trace"), "hipErrorOutOfMemory")


@pytest.mark.parametrize("seeds", list(pairwise(range(12 if WHOLE else 7))), ids=str)
def test_generated_plans_become_each_other(seeds: tuple[int, int], quick: Simulator, tmp_path: Path) -> None:
    old, new = seeds
    program = program_of(old, tmp_path)
    with bound(quick) as bind:
        phase = Change(quick, program, become(generated.plan(new, tmp_path), bind), bind)
        calls = calls_of(phase, tmp_path / "trace")
        for mode in (ONCE, FOR_EVER):
            sweep(phase, calls, "hipErrorUnknown", mode)


def test_an_update_fails_without_changes_if_the_machine_cannot_be_measured(sim: Simulator) -> None:
    with run(program_of(ONE), sim.runtime) as layout:
        before = sim.alive()
        sim.runtime.arm_faults("hipMemGetInfo@1=hipErrorUnknown")
        with pytest.raises(RuntimeUnavailable):
            layout.update(OTHER, lose="*")
        assert sim.alive() == before
        assert layout.drift() == []
        layout.update(OTHER, lose="*")
        assert layout.drift() == []
