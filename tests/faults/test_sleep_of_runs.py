"""A driver call of a member of a run fails in a sleep or a wake: the error, the roll back, the record and the layout
are those of chunks that are written out, and name the member."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan.layout.undo import wait_until_freed
from hipplan.program import on_demand
from tests.conftest import WHOLE, Simulator
from tests.faults.harness import as_release, same_calls_each_time
from tests.layout.test_runs_or_written_out import ADDRESS, NEVER, OWN, QUIRKS, RELEASES

pytestmark = pytest.mark.in_parts

CHUNK = 4 << 10
"""Bytes, which are copied."""
COUNT = 33 if WHOLE else 9
LEAST = 2
SPREADS: dict[str, dict[str, Any]] = {
    "one": {"device": "gpu.0"},
    "interleave": {"devices": ["gpu.*"], "spread": "interleave", "access": {"owner": "rw"}},
}
CALLS = {"sleep": ("hipMemUnmap", "hipMemRelease"), "wake": ("hipMemCreate", "hipMemMap", "hipMemSetAccess")}
MIDDLE = COUNT // 2 + 1
PLACES = (1, MIDDLE, COUNT, 2 * COUNT) if WHOLE else (MIDDLE, 2 * COUNT)
"""Which call fails: the first ones, one in the middle, the last one of a region."""


def outcome(layout: hipplan.Layout, act: Callable[[], Any]) -> Iterator[str]:
    try:
        yield str(act())
    except hipplan.HipplanError as error:
        yield type(error).__name__
        yield from map(str, error.diagnostics)
        yield getattr(error, "step", "")
    yield str(sorted(layout.asleep.items()))
    yield from (f"{check.name}: {check.what}: {check.current}" for check in layout.verify())
    yield from map(str, layout.program.resources)


def lines(folder: Path, sim: Simulator, spread: str, to: str, verb: str, call: str, place: int) -> list[str]:
    """What comes of a layout of two regions, one call of which fails."""
    folder.mkdir()
    region = {"size": COUNT * CHUNK, "chunk": CHUNK, **SPREADS[spread]}
    plan = {"hipplan": 1, "devices": {"gpu": {"count": 2}}, "regions": {"kv": region, "w": region}}
    record = folder / "record"
    with hipplan.apply(plan, runtime="sim", answer=False, record=record) as layout:
        if verb == "wake":
            layout.sleep(to=to)
        sim.runtime.arm_faults(f"{call}@{place}=hipErrorOutOfMemory")
        made = [*outcome(layout, lambda: layout.sleep(to=to) if verb == "sleep" else layout.wake())]
        wait_until_freed()
        sim.runtime.arm_faults("")
        made += outcome(layout, layout.wake)
    sim.free_everything()
    events = map(json.loads, record.read_text().splitlines())
    made += [str({key: value for key, value in event.items() if key not in OWN}) for event in events]
    return [ADDRESS.sub("ADDRESS", line) for line in made]


@pytest.mark.parametrize("release", ["6.2", "7.2"])
@pytest.mark.parametrize("to", ["drop", "host"])
@pytest.mark.parametrize("spread", SPREADS)
def test_a_failed_call_names_its_member(
    spread: str, to: str, release: str, sim: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = [(verb, call, place) for verb, calls in CALLS.items() for call in calls for place in PLACES]
    with same_calls_each_time(), as_release(sim, RELEASES[release], *QUIRKS[release].split()):
        monkeypatch.setattr(on_demand, "LEAST", LEAST)
        short = [lines(tmp_path / f"{n}", sim, spread, to, *case) for n, case in enumerate(cases)]
        monkeypatch.setattr(on_demand, "LEAST", NEVER)
        for n, case in enumerate(cases):
            assert lines(tmp_path / f"{n} written out", sim, spread, to, *case) == short[n], case
    at = MIDDLE - 1
    named = {line for made in short for line in made if re.search(rf"kv\[{at}\]|kv#{at}\b|w\[{at}\]", line)}
    assert named
