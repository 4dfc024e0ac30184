"""Ranks whose memory lies on the host, or moves there: all of them move, or none does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.ranks.test_parts import MANY, folder, run, values
from tests.ranks.workers import Workers

__all__ = ["folder"]
PLAN = """
hipplan: 1
ranks: {}
devices: {gpu: {ordinal: $(local_rank % 2)}}
regions:
  heap: {device: gpu, size: 2MiB, map: {ranks: node, access: rw}}
  part: {device: gpu, size: $(4MiB + rank % 3 * 2MiB), chunk: 2MiB}
  tail: {devices: [gpu, host], spread: interleave, size: 4MiB, chunk: 2MiB, reserve: 32MiB}
contents: {part: {value: 1}, tail: {value: 9}}
"""


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    made = Workers()
    yield made
    made.close()


@pytest.mark.in_turns
def test_twelve_ranks_move_to_the_host_and_back(workers: Workers, folder: Any) -> None:
    for same, been, retained in values(run(workers, MANY, folder(), PLAN, script="host_tier")):
        assert same and retained == 0
        assert been == [("host",), "mapped"] * 2


def test_a_rank_that_fails_keeps_all_where_they_are(workers: Workers, folder: Any) -> None:
    answers = values(run(workers, 3, folder(), PLAN, script="one_cannot_move_to_the_host"))
    home, away, asleep = ("gpu",), ("host",), {"part": "mapped"}
    for rank, (answer, differs) in enumerate(answers):
        error = "ApplyError" if rank == 1 else "GroupError"
        there = [(home, {}), (away, {})], [(home, {}), (away, asleep)], [(away, asleep), (home, {})]
        assert answer == [item for failed, done in there for item in (error, failed, done)]
        assert differs == []
