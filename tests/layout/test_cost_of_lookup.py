"""An object is found, read, written and made again at a cost that does not depend on how many others there are."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy
import pytest

import hipplan
from hipplan.program import patterns, sleepers
from hipplan.program.program import Program
from tests.conftest import Simulator
from tests.python_calls import CHUNK, calls_of, instructions_of

BYTES = numpy.arange(1024, dtype="u1")
ACTS: dict[str, Callable[[hipplan.Layout], Any]] = {
    "a buffer": lambda layout: layout["b"],
    "a chunk": lambda layout: layout["cache[7]"],
    "a tensor": lambda layout: layout["cache.t"],
    "one of a count": lambda layout: (layout["m.7"], layout["s.7"]),
    "a mapping of one": lambda layout: layout["range[7]"],
    "its name": lambda layout: ("b" in layout, "cache[7]" in layout, "nothing" in layout),
    "how many there are": lambda layout: repr(layout),
    "a write into a buffer": lambda layout: layout.write("b", BYTES),
    "a write into a tensor": lambda layout: layout.write("cache.t", BYTES),
    "a write through a mapping": lambda layout: layout.write("range[7]", numpy.zeros(CHUNK, "u1")),
    "a copy": lambda layout: layout.copy("s.3", "s.4"),
    "tensors": lambda layout: layout.tensors("cache", convert=lambda piece: piece),
    "a remap of one that is mapped": lambda layout: layout.remap("range", part=(7 * CHUNK, 8 * CHUNK)),
    "a remap of an allocation": lambda layout: layout.remap("m.7"),
    "a remap of what is beside": lambda layout: (layout.remap("own"), layout.remap("own[0]"), layout.remap("a")),
    "a seal of what is beside": lambda layout: (layout.seal("own"), layout.unseal("own")),
    "a sleep of what is beside": lambda layout: (layout.sleep(["own", "a"], to="drop"), layout.asleep, layout.wake()),
    "a sleep of a region": lambda layout: (layout.sleep("cache", to="mapped"), layout.wake("cache")),
}


def layout_of(count: int) -> hipplan.Layout:
    tensors = {"t": {"dtype": "u8", "shape": [1024]}}
    device = {"kind": "device", "device": "gpu.0", "size": "4KiB"}
    plan = {
        "hipplan": 1,
        "devices": {"gpu": {"count": 1}},
        "regions": {"cache": {"size": count * CHUNK, "chunk": CHUNK, "tensors": tensors, "reserve": 2048 * CHUNK}},
        "allocations": {
            "m": {"device": "gpu.0", "size": CHUNK, "count": count},
            "a": {"device": "gpu.0", "size": CHUNK},
        },
        "reservations": {
            "range": {"access": {"gpu.0": "rw"}, "mappings": [{"allocation": "m.*"}]},
            "own": {"access": {"gpu.0": "rw"}, "mappings": [{"allocation": "a"}]},
        },
        "buffers": {"b": {**device, "size": 1024}, "s": {**device, "count": count}},
    }
    return hipplan.apply(plan, runtime="sim", answer=False)


@pytest.mark.parametrize("which", ACTS)
def test_it_makes_no_calls_for_other_objects(which: str, sim: Simulator) -> None:
    """Each time directly after a change, of whose objects nothing is known yet."""
    costs = []
    for count in (40, 40, 600):  # the first one also pays for what is known from then on
        with layout_of(count) as layout:
            layout.grow("cache", by=CHUNK)
            costs.append(calls_of(partial(ACTS[which], layout)))
    assert costs[2].python - costs[1].python <= 12, costs
    assert costs[2].builtin - costs[1].builtin <= 40, costs


@pytest.mark.in_parts
@pytest.mark.parametrize("names", [["m.*"], ["range"], ["*"]], ids=str)
def test_which_of_a_count_sleep_is_found_at_the_same_cost_for_each(names: list[str], sim: Simulator) -> None:
    def find(program: Program) -> None:
        sleepers.units_of(program, patterns.chosen(program, names, *sleepers.KINDS))
        sleepers.able(program, "drop")

    costs = []
    for count in (20, 100, 200, 300):  # the first one also pays for what is imported
        with layout_of(count) as layout:
            costs.append(instructions_of(partial(find, layout.program)))
    assert costs[3] - costs[2] <= 1.1 * (costs[2] - costs[1]), costs
