"""Memory moves to the host and back in a process that holds much else: it leaves that alone, and itself nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import hipplan
from hipplan.layout.layout import Layout
from hipplan.layout.undo import wait_until_freed
from tests.conftest import Simulator
from tests.descriptors import descriptors
from tests.layout.native_pool import Allocator

MIB = 2**20
MANY = 10_000
PLAN: dict[str, Any] = {
    "hipplan": 1,
    "devices": {"gpu": {"count": 2}},
    "regions": {
        "weights": {"devices": ["gpu.*"], "spread": "interleave", "size": "16MiB", "chunk": "2MiB"},
        "cache": {"device": "gpu.0", "size": "4MiB", "chunk": "2MiB", "reserve": "64MiB", "overflow": "host"},
        "pool": {"size": 0, "reserve": "64MiB", "chunk": "4MiB", "torch": {"tag": "pool"}},
    },
}
OTHER: dict[str, Any] = {
    "hipplan": 1,
    "devices": {"gpu": {"count": 2}},
    "regions": {"many": {"device": "gpu.1", "size": MANY * 2 * MIB, "chunk": "2MiB"}},
}


ACTS: tuple[Callable[[Layout], Any], ...] = (
    lambda layout: layout.remap("weights", device="host"),
    lambda layout: layout.remap("weights", device="gpu.1", retain=True),
    lambda layout: layout.remap("weights", part="2MiB..6MiB", device="host"),
    lambda layout: layout.remap("weights", device="gpu.0"),
    lambda layout: layout.sleep(["weights", "cache"], to="mapped"),
    lambda layout: layout.wake(retain=True),
    lambda layout: layout.sleep(["weights", "cache"]),
    lambda layout: layout.wake(),
    lambda layout: layout.sleep("pool"),
    lambda layout: layout.wake(),
)


def cycle(layout: Layout) -> None:
    """Each way to the host and back, with other bytes each time."""
    value = 0
    for act in ACTS:
        if layout.asleep.get("weights") != "host":
            value += 1
            layout.fill("weights", value)
        act(layout)
        assert layout.asleep.get("weights") == "host" or (layout.read("weights") == value).all()
    wait_until_freed()


def pieces(sim: Simulator) -> dict[str, int]:
    """How many of each kind of object there are."""
    alive = sim.alive()
    return {kind: sum(noun == kind for noun, _ in alive) for kind in ("allocation", "mapping", "reservation", "buffer")}


@pytest.mark.in_turns
def test_beside_ten_thousand_objects_twice_in_a_row(sim: Simulator) -> None:
    with hipplan.apply(OTHER, runtime="sim") as other:
        state = other._holding.state
        handles = [state.handle_of(f"many#{chunk}") for chunk in range(0, MANY, 97)]
        others = sim.alive()
        with hipplan.apply(PLAN, runtime="sim") as layout:
            allocator = Allocator(layout, "pool")
            block = allocator.block(5 * MIB)
            cycle(layout)
            before, open_files = pieces(sim), descriptors()
            for _ in range(2):
                cycle(layout)
                assert (pieces(sim), descriptors()) == (before, open_files)
            assert layout.drift() == []
            allocator.free(block)
        assert sim.alive() == others
        assert [state.handle_of(f"many#{chunk}") for chunk in range(0, MANY, 97)] == handles
        assert other.drift() == []
    assert sim.alive() == set()


def test_two_layouts_move_at_the_same_time(sim: Simulator) -> None:
    errors: list[BaseException] = []

    def work(layout: Layout) -> None:
        try:
            cycle(layout)
        except BaseException as error:
            errors.append(error)

    with hipplan.apply(PLAN, runtime="sim") as first, hipplan.apply(PLAN, runtime="sim") as second:
        threads = [threading.Thread(target=work, args=(layout,)) for layout in (first, second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert (first.drift(), second.drift()) == ([], [])
    assert sim.alive() == set()
