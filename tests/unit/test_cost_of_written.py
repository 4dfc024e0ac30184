"""A program is written and read in calls and bytes that do not depend on how many alike chunks it has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import hipplan
from hipplan.lowering.compiler import compile as compile_plan
from hipplan.program import held, written
from hipplan.program.program import Program
from tests.python_calls import CHUNK, calls_of

CALLS_OF_STEP_MAX = 20
"""Python calls of a digest, for which each step is written out; JSON itself makes most of them."""
CALLS_OF_CHUNKS_MAX = 20
"""Python calls that more chunks may add to what is written in runs."""
SPREADS: dict[str, dict[str, Any]] = {
    "on one device": {"device": "gpu.0"},
    "in blocks": {"devices": ["gpu.*"], "spread": "blocks"},
    "interleaved": {"devices": ["gpu.*"], "spread": "interleave"},
}


def program(count: int, spread: str = "on one device", **keys: Any) -> Program:
    region = {"size": count * CHUNK, "chunk": CHUNK, **SPREADS[spread], **keys}
    plan = {"hipplan": 1, "devices": {"gpu": {"count": 2}}, "regions": {"cache": region}}
    return compile_plan(hipplan.load(plan), "mi300x-8")


def test_a_digest_makes_few_calls_for_a_step() -> None:
    costs = []
    for count in (100, 100, 1100):  # the first one also pays for what is kept
        made = program(count)
        costs.append(calls_of(lambda made=made: written.digest(made)).python)
    assert costs[2] - costs[1] <= 3 * 1000 * CALLS_OF_STEP_MAX


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("is_held", [False, True])
def test_chunks_cost_no_calls_and_no_bytes(is_held: bool, spread: str) -> None:
    calls, sizes = [], []
    for count in (100, 100, 1000):
        made = program(count, spread)
        if is_held:
            kept = held.holdable(held.with_addresses(made))
            made = held.held_program(kept, {"cache": 1 << 40})
        text = written.write(made)
        calls.append(calls_of(lambda made=made, text=text: (written.write(made), written.read(text))).python)
        sizes.append(len(text))
        assert written.read(text) == made
    assert calls[2] - calls[1] <= CALLS_OF_CHUNKS_MAX
    assert sizes[2] - sizes[1] <= 40  # numbers have more digits
    assert sizes[2] < 8000


@pytest.mark.parametrize("spread", ["on one device", "in blocks"])
def test_sealed_chunks_cost_no_bytes(spread: str) -> None:
    sizes = []
    for count in (100, 1000):
        made = program(count, spread, seal=True)
        assert len(made.sealed) == count
        made = replace(made, unwritten=frozenset(made.sealed))
        text = written.write(made)
        sizes.append(len(text))
        again = written.read(text)
        assert again == made
        assert [*again.sealed] == [*made.sealed]
    assert sizes[1] - sizes[0] <= 60


@pytest.mark.parametrize("spread", SPREADS)
def test_a_digest_does_not_say_what_is_in_runs(spread: str) -> None:
    made = program(100, spread)
    regions = {name: replace(placed, chunks=tuple(placed.chunks)) for name, placed in made.regions.items()}
    out = replace(made, steps=tuple(made.steps), regions=regions)
    assert written.digest(made) == written.digest(out)
    assert len(written.write(made)) < len(written.write(out)) / 10
    assert written.read(written.write(out)) == made
