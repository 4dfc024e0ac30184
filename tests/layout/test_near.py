"""The objects near some names are those that all objects have, and none is missing that a sleep looks at."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest

import hipplan
from hipplan.errors import MachineError
from hipplan.program import on_demand, sleepers
from hipplan.program.lookup import objects_near
from hipplan.program.numbered import outer_name
from hipplan.program.program import Program
from hipplan.program.runs import runs
from tests.conftest import WHOLE, Simulator
from tests.faults.harness import as_release
from tests.layout.test_counts_at_random import plan
from tests.layout.test_runs_or_written_out import RELEASES
from tests.python_calls import CHUNK

SEEDS = 100 if WHOLE else 6


def require_near(program: Program, names: list[str]) -> None:
    """They have these names, what maps them and what they map; but for chunks, which may be in runs."""
    objects, there = program.by_name, {resource.name: resource for resource in objects_near(program, names)}
    assert all(objects[name] == resource for name, resource in there.items())
    wanted = {*names} | {name for name, resource in objects.items() if {resource.memory, resource.inside} & {*names}}
    wanted |= {objects[name].memory for name in wanted if objects[name].memory}
    assert {
        name for name in wanted if outer_name(name) not in program.regions or name in program.regions
    } <= there.keys()


def sleep_or_wake(draw: random.Random, layout: hipplan.Layout) -> None:
    to = draw.choice(("drop", "host"))
    able = sleepers.able(layout.program, to)
    if able and draw.random() < 0.7:
        layout.sleep(draw.sample(able, min(len(able), draw.choice((1, 3)))), to=to)
    elif layout.asleep:
        layout.wake(draw.choice(sorted(layout.asleep)))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_they_are_what_all_objects_have(seed: int, sim: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_demand, "LEAST", 2)
    draw = random.Random(seed)
    release, count = draw.choice([*RELEASES]), draw.choice((12, 15))
    document: Any = plan(draw, release, count)
    document["regions"] = {"kv": {"size": 4 * 4096, "chunk": 4096}}
    for name, more in (("range.7", {}), ("second", {"count": 3}), ("kv", {"count": 3})):
        if draw.random() < 0.4:
            document["allocations"][name] = {"device": "gpu.0", "size": CHUNK, **more}
    seen = 0
    with as_release(sim, RELEASES[release]), hipplan.apply(document, runtime="sim", answer=False) as layout:
        for _ in range(8):
            program = layout.program
            seen += sum(1 for _ in runs(program.steps)) + sum(1 for _ in runs(program.sleeping))
            for number in (1, 1, 3):
                require_near(program, draw.sample(sorted(program.by_name), number))
            able = {name for name, resource in program.by_name.items() if resource.kind in ("region", "allocation")}
            assert {*layout.asleep} == {name for name in able if program.by_name[name].asleep and "#" not in name}
            with contextlib.suppress(MachineError):  # the release cannot change this range in place
                sleep_or_wake(draw, layout)
    assert seen > 0
