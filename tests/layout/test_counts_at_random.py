"""Random plans with what `count:` makes become each other: kept as runs or written out, it is the same update."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import WHOLE, Simulator
from tests.layout.test_runs_or_written_out import NEVER, RELEASES, Draw, Plan, Player, on_demand
from tests.python_calls import CHUNK

SEEDS = 200 if WHOLE else 8


def some(draw: Draw, chance: float) -> bool:
    return draw.random() < chance


def plan(draw: Draw, release: str, count: int) -> Plan:
    """Counted allocations, mostly mapped by a line or two, alone and side by side, beside buffers and a region."""
    memory = {"device": draw.choice(("gpu.0", "gpu.0", "gpu.1")), "size": draw.choice((1, 1, 1, 2)) * CHUNK}
    allocations: Plan = {"m": {**memory, "count": count + draw.choice((0, 0, 3, -3))}}
    if some(draw, 0.3):
        allocations["k"] = {"device": "gpu.1", "size": CHUNK, "count": count}
    if some(draw, 0.2):
        allocations["m.100"] = {"device": "gpu.1", "size": CHUNK}
    made: Plan = {"hipplan": 1, "devices": {"gpu": {"count": 2}}, "allocations": allocations}
    made["reservations"] = ranges(draw, release, count, "k" in allocations)
    buffers: Plan = {}
    if some(draw, 0.5):
        buffers["b"] = {"kind": "device", "device": "gpu.0", "size": draw.choice(("64KiB", "4KiB"))}
    if some(draw, 0.4):
        kind = draw.choice(({"kind": "device", "device": "gpu.0"}, {"kind": "pinned"}))
        buffers["s"] = {**kind, "size": "4KiB", "count": count + draw.choice((0, 2))}
    regions = {"kv": {"size": 40 * CHUNK, "chunk": CHUNK}} if some(draw, 0.3) else {}
    return {**made, "buffers": buffers, "regions": regions}


def ranges(draw: Draw, release: str, count: int, has_others: bool) -> Plan:
    two = ({"gpu.0": "rw", "gpu.1": "rw"}, {"gpu.1": "rw", "gpu.0": "r"}, {"gpu.0": "rw", "gpu.1": "none"})
    rights: Plan = {"gpu.0": "rw"} if release == "6.2" else draw.choice((*two, {"gpu.0": "rw"}))
    line: Plan = {"allocation": "m.*"}
    if some(draw, 0.2):
        line |= draw.choice(({"at": 8 * CHUNK}, {"access": {"gpu.0": "r"}}))
    own: Plan = {"size": (420 if some(draw, 0.1) else 400) * CHUNK, "access": rights, "mappings": [line]}
    if has_others and some(draw, 0.6):
        own["mappings"].append({"allocation": "k.*"})
    if some(draw, 0.2):
        own["mappings"].append({"allocation": f"m.{draw.choice((0, 5, count - 4))}", "at": 390 * CHUNK})
    if some(draw, 0.1):
        own["seal"] = True
    made = {"range": own} if some(draw, 0.9) else {}
    if some(draw, 0.3):
        lines = [{"allocation": draw.choice(("m.*", "m.*", "m.7"))}]
        made["second"] = {"size": 400 * CHUNK, "access": rights, "mappings": lines}
    return made


@pytest.mark.parametrize("seed", range(SEEDS))
def test_any_plan_with_counts_becomes_another(
    seed: int, tmp_path: Path, sim: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a driver call fails."""
    draw = random.Random(seed)
    release, count = draw.choice([*RELEASES]), draw.choice((40, 50))
    first, second = plan(draw, release, count), plan(draw, release, count)
    if some(draw, 0.6):  # the rest of it stays
        kept: Any = draw.choice((("buffers",), ("allocations", "buffers"), ("reservations",)))
        second = first | {noun: second[noun] for noun in kept}
    fails = (0, draw.choice((0, draw.randrange(1, 300))))
    short, written = (Player(0, tmp_path / name, sim) for name in ("runs", "written out"))
    lines = short.play_update(first, second, release, fails)
    monkeypatch.setattr(on_demand, "LEAST", NEVER)
    assert written.play_update(first, second, release, fails) == lines
    assert written.runs == 0
