"""Memory of a region in runs moves to the host, back, and to another GPU as one: Python calls do not depend on the
number of its chunks. Work is counted in calls, which no busy machine changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import hipplan
from tests.conftest import Simulator
from tests.faults.harness import as_release, same_calls_each_time
from tests.python_calls import calls_of

SMALL = 64 << 10
"""Bytes of each chunk: they are copied."""
FEW, MANY = 100, 1100
CALLS_OF_CHUNKS_MAX = 20
"""Python calls that a thousand more chunks may add."""

Act = Callable[[hipplan.Layout], Any]

REGIONS: dict[str, dict[str, Any]] = {
    "on one device": {"device": "gpu.0"},
    "in blocks": {"devices": ["gpu.*"], "spread": "blocks"},
    "interleaved": {"devices": ["gpu.*"], "spread": "interleave"},
    "of which only the owner may use a part": {
        "devices": ["gpu.*"],
        "spread": "interleave",
        "access": {"owner": "rw", "others": "r"},
    },
    "sealed": {"devices": ["gpu.*"], "spread": "interleave", "seal": True},
}


def remap(**how: Any) -> Act:
    return lambda layout: layout.remap("cache", **how)


ACTS: list[tuple[str, Act]] = [
    ("made again", remap()),
    ("to the host", remap(device="host")),
    ("from the host, whose memory stays", remap(device="gpu.0", retain=True)),
    ("to the memory that stayed", remap(device="host")),
    ("from the host", remap(device="gpu.0")),
    ("to another GPU", remap(device="gpu.1")),
    ("without bytes", remap(device="gpu.0", keep_bytes=False)),
    ("a part to the host", remap(part=(4 * SMALL, 90 * SMALL), device="host")),
    ("all but a chunk to another GPU", remap(part=(SMALL, None), device="gpu.1")),
    ("together again", remap(device="gpu.0")),
    ("to sleep, still mapped", lambda layout: layout.sleep("cache", to="mapped")),
    ("awake", lambda layout: layout.wake("cache")),
    ("to sleep again", lambda layout: layout.sleep(to="mapped")),
    ("awake again", lambda layout: layout.wake(retain=True)),
]
"""In this order."""


def costs(which: str, count: int) -> dict[str, int]:
    """The Python calls of each act."""
    region = {"size": count * SMALL, "chunk": SMALL, **REGIONS[which]}
    plan = {"hipplan": 1, "devices": {"gpu": {"count": 2}}, "regions": {"cache": region}}
    made: dict[str, int] = {}
    with hipplan.apply(plan, runtime="sim", answer=False) as layout:
        assert len(layout.program.regions["cache"].chunks) == count
        for name, act in ACTS:
            made[name] = calls_of(lambda act=act: act(layout)).python
        assert layout.drift() == []
    return made


@pytest.mark.in_parts
@pytest.mark.parametrize("release", ["7.2.53211", "7.15.0"])
@pytest.mark.parametrize("which", REGIONS)
def test_a_move_makes_no_calls_for_a_chunk(which: str, release: str, sim: Simulator) -> None:
    with as_release(sim, release), same_calls_each_time():
        costs(which, FEW)  # pays for what is imported
        few, many = costs(which, FEW), costs(which, MANY)
    more = {name: many[name] - few[name] for name in few}
    assert {name: calls for name, calls in more.items() if calls > CALLS_OF_CHUNKS_MAX} == {}
