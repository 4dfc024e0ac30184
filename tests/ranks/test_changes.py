"""Layouts whose ranks map each other's memory, while they change: addresses, seals, who is gone, barriers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import hipplan
from tests.ranks.test_parts import MIB, PLAN, folder, results, run, values
from tests.ranks.workers import Task, Workers

__all__ = ["folder"]
GIB = 2**30


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    made = Workers()
    yield made
    made.close()


def placed(outcomes: list[Any]) -> list[int]:
    """The address of each rank's heap, the same in all ranks."""
    collected = []
    for parts, differs in (outcome.value for outcome in outcomes):
        assert not differs
        assert {first for _, first in parts.values()} == {0xEE}
        collected.append([parts[rank][0] for rank in sorted(parts)])
    assert all(item == collected[0] for item in collected)
    return collected[0]


@pytest.mark.parametrize("reserve", ["64MiB", "$(32MiB + rank * 64MiB)"])
def test_symmetric_addresses_move_together_where_more_is_reserved(workers: Workers, folder: Any, reserve: str) -> None:
    outcomes = run(workers, 2, folder(), update=PLAN.replace("32MiB", reserve), script="parts_of_all")
    assert results([*outcomes]) == ["changed"] * 2, outcomes
    first, second = placed(outcomes)
    assert second - first >= 64 * MIB


def test_symmetric_addresses_stay_where_less_is_reserved(workers: Workers, folder: Any) -> None:
    before = placed(run(workers, 2, folder(), script="parts_of_all"))
    outcomes = run(workers, 2, folder(), update=PLAN.replace("32MiB", "16MiB"), script="parts_of_all")
    assert results([*outcomes]) == ["changed"] * 2
    first, second = placed(outcomes)
    assert second - first == before[1] - before[0]


def test_symmetric_addresses_are_aligned(workers: Workers, folder: Any) -> None:
    aligned = PLAN.replace("reserve: 32MiB", "reserve: 32MiB, alignment: 1GiB".replace(", ", "\n    "))
    outcomes = run(workers, 3, folder(), aligned, script="parts_of_all")
    assert results([*outcomes]) == ["committed"] * 3, outcomes
    assert {at % GIB for at in placed(outcomes)} == {0}


def test_parts_of_others_are_aligned_as_their_own_rank_has_them(workers: Workers, folder: Any) -> None:
    aligned = PLAN.replace("addresses: symmetric", "alignment: 1GiB")
    for parts, differs in values(run(workers, 2, folder(), aligned, script="parts_of_all")):
        assert {at % GIB for at, _ in parts.values()} == {0}
        assert not differs


def test_who_is_gone_is_known_of_memory_that_a_change_has_mapped(workers: Workers, folder: Any) -> None:
    alone = PLAN.replace("    map: {ranks: node, access: rw}\n    addresses: symmetric\n", "")
    alone = alone.replace("    map: {ranks: node}\n", "")
    outcomes = run(workers, 2, folder(), alone, update=PLAN, script="see_one_go")
    assert results([*outcomes]) == ["changed"] * 2
    assert [outcome.value for outcome in outcomes] == [{1: "closed"}, {}]


def test_what_other_ranks_may_write_cannot_be_sealed(workers: Workers, folder: Any) -> None:
    first, second = values(run(workers, 2, folder(), script="seal_what_others_write"))
    for answer in (first[0], second[0]):
        assert "'heap' is mapped by other ranks, which have write access" in answer
    assert first[1] == "sealed" or "rank 1 failed" in first[1]
    assert "memory of rank 0" in second[1]


def test_deadlines_that_are_invalid_are_refused(workers: Workers, folder: Any) -> None:
    expected = ["TypeError"] * 2 + ["ValueError"] * 8 + ["TypeError"] * 2
    assert values(run(workers, 2, folder(), script="barriers")) == [expected] * 2


def test_a_rank_that_leaves_a_barrier_reports_the_others(workers: Workers, folder: Any) -> None:
    where, barrier = folder(), {"script": "leave_a_barrier"}
    apply = run(workers, 2, folder())[1].operations
    outcomes = workers.run(
        Task(PLAN, where, 0, 2, **barrier), Task(PLAN, where, 1, 2, **barrier, act="interrupt", at=apply + 1)
    )
    answers = values([outcome for outcome in outcomes if outcome is not None])
    assert answers[1].startswith("KeyboardInterrupt")
    assert "rank 1 failed" in answers[0]
    assert "KeyboardInterrupt" in answers[0]


def test_ranks_are_numbers_as_any_library_writes_them(workers: Workers, folder: Any) -> None:
    for rank, (name, answer) in enumerate(values(run(workers, 2, folder(), script="numbers"))):
        assert name == ("heap@0" if rank else "heap")
        assert len(answer) == 5
        assert all("there is no rank" in item for item in answer)


def test_what_other_ranks_hold_on_a_device_is_counted_once(workers: Workers, folder: Any) -> None:
    memory = int(hipplan.machine("sim-2").devices[0].memory or 0)
    heap = {"size": memory * 4 // 10 // MIB * MIB, "map": {"ranks": "node"}}
    plan = {"hipplan": 1, "ranks": {}, "regions": {"heap": heap}}
    for answers in values(run(workers, 2, folder(), plan, script="update_beside_others")):
        assert "more" in answers


def test_ranks_lose_only_what_all_of_them_allow(workers: Workers, folder: Any) -> None:
    heap = {"size": "2MiB", "map": {"ranks": "node"}}
    report = {"report": {"kind": "pinned", "size": "4KiB", "rank": 0}}
    plan = {"hipplan": 1, "ranks": {}, "regions": {"heap": heap}, "buffers": report}
    first, second = values(run(workers, 2, folder(), plan, script="consent_of_each"))

    assert "error[HP423]: the update would lose 4KiB of bytes" in first[0]
    assert "error[HP430]: rank 0 failed" in second[0]
    assert "HP423" in second[0]
    for answer in (first[1], second[1]):
        assert "error[HP433]: the ranks do not have the same call" in answer
        assert "has update(lose=['report'])" in answer
    assert first[2] == "- pinned report: 4KiB; loses its bytes"
    assert second[2] == first[3] == second[3] == "no changes"
