"""Each driver call of a move of runs fails in turn, to the host, back, and to another GPU: the calls, the error, the
roll back, the record and the layout are those of chunks that are written out, and name the member."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan.layout.undo import wait_until_freed
from hipplan.program import on_demand
from hipplan.program.carries import CopyRun
from hipplan.program.series import segments
from tests.conftest import WHOLE, Simulator
from tests.faults.harness import as_release, same_calls_each_time
from tests.faults.test_sleep_of_runs import LEAST, outcome
from tests.layout.test_runs_or_written_out import ADDRESS, NEVER, OWN, QUIRKS, RELEASES

pytestmark = pytest.mark.in_parts

CHUNK = 64 << 10
COUNT = 5
PLACES = 7
"""How many calls fail, but for make reliability, where each does."""
Act = Callable[[hipplan.Layout], Any]


def remap(**how: Any) -> Act:
    return lambda layout: layout.remap("*", **how)


def sleep(layout: hipplan.Layout) -> Any:
    return layout.sleep(to="mapped")


def nothing(layout: hipplan.Layout) -> None:
    pass


MOVES: dict[str, tuple[Act, Act]] = {
    "to the host": (nothing, remap(device="host")),
    "from the host": (remap(device="host"), remap(device="gpu.1")),
    "from the host, which keeps memory": (remap(device="host"), remap(device="gpu.0", retain=True)),
    "to another GPU": (nothing, remap(device="gpu.1")),
    "a part": (nothing, remap(device="gpu.1", part=(CHUNK, 4 * CHUNK))),
    "without bytes": (nothing, remap(device="gpu.0", keep_bytes=False)),
    "to sleep, still mapped": (nothing, sleep),
    "awake": (sleep, lambda layout: layout.wake()),
}
"""What comes before, and the move."""
RIGHTS = {"6.4": {}, "7.2": {"access": {"owner": "rw"}}, "7.15": {"access": {"owner": "rw", "others": "r"}}}


def without_faults_afterwards(sim: Simulator, act: Callable[[], Any]) -> Any:
    try:
        return act()
    finally:
        wait_until_freed()
        sim.runtime.arm_faults("")
        sim.runtime.trace_to("")


def lines(folder: Path, sim: Simulator, release: str, move: str, call: int) -> Iterator[str]:
    """What comes of a layout of two regions. call: which one of the move fails; 0: none."""
    folder.mkdir()
    region = {"size": COUNT * CHUNK, "chunk": CHUNK, "devices": ["gpu.*"], **RIGHTS[release]}
    regions = {"kv": {**region, "spread": "interleave"}, "w": {**region, "spread": "blocks", "seal": release == "7.2"}}
    plan = {"hipplan": 1, "devices": {"gpu": {"count": 2}}, "regions": regions}
    before, act = MOVES[move]
    record, trace = folder / "record", folder / "trace"
    with hipplan.apply(plan, runtime="sim", answer=False, record=record) as layout:
        before(layout)
        sim.runtime.trace_to(str(trace))
        sim.runtime.arm_faults(f"*@{call}=hipErrorOutOfMemory" if call else "")
        made = [*outcome(layout, lambda: without_faults_afterwards(sim, lambda: act(layout)))]
        made += [*outcome(layout, layout.wake), *map(str, layout.program.steps), str({**layout.program.away})]
    sim.free_everything()
    calls = map(json.loads, trace.read_text().splitlines())
    yield from (ADDRESS.sub("ADDRESS", str((each["call"], each["args"], each["result"]))) for each in calls)
    yield f"=== {len(trace.read_text().splitlines())}"
    events = map(json.loads, record.read_text().splitlines())
    made += [str({key: value for key, value in event.items() if key not in OWN}) for event in events]
    yield from (ADDRESS.sub("ADDRESS", line) for line in made)


@pytest.mark.parametrize("release", RIGHTS)
@pytest.mark.parametrize("move", MOVES)
def test_a_failed_call_of_a_move_names_its_member(
    move: str, release: str, sim: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if release == "6.4" and MOVES[move] not in (MOVES["to another GPU"], MOVES["a part"], MOVES["without bytes"]):
        pytest.skip("it has no memory on the host")
    with same_calls_each_time(), as_release(sim, RELEASES[release], *QUIRKS[release].split()):
        monkeypatch.setattr(on_demand, "LEAST", LEAST)
        first = [*lines(tmp_path / "first", sim, release, move, 0)]
        (count,) = (int(line[4:]) for line in first if line.startswith("=== "))
        failing = range(0, count + 1, 1 if WHOLE else max(1, count // PLACES))
        short = [[*lines(tmp_path / f"{call}", sim, release, move, call)] for call in failing]
        monkeypatch.setattr(on_demand, "LEAST", NEVER)
        for call, made in zip(failing, short, strict=True):
            assert [*lines(tmp_path / f"{call} written out", sim, release, move, call)] == made, call
    failed = [line for made in short for line in made if "'driver_call'" in line]
    assert any("kv#" in line or "kv[" in line or "w#" in line or "w[" in line for line in failed)


def test_these_moves_go_in_runs(sim: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_demand, "LEAST", LEAST)
    region = {"size": COUNT * CHUNK, "chunk": CHUNK, "devices": ["gpu.*"], "spread": "interleave"}
    plan = {"hipplan": 1, "devices": {"gpu": {"count": 2}}, "regions": {"kv": region}}
    with hipplan.apply(plan, runtime="sim", answer=False) as layout:
        for change in (layout.remap("kv", device="host"), layout.remap("kv", part=(0, 2 * CHUNK), device="gpu.1")):
            (carries,) = segments(change.carries)
            assert isinstance(carries, CopyRun)
            assert [*carries] == [carries[number] for number in range(len(carries))]
            assert sum(many for _, many in carries.alike()) == len(carries)
            copies = [step for step in carries if step.call == "hipMemcpyPeer"]
            assert [step.name for step in copies] == [f"kv#{number}" for number in carries.memory.chunks]
