"""Memory that ranks map of each other: the plan's `map:`, addresses and bytes, and failures."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan.errors import GroupError
from hipplan.ranks.agreement import Agreement, LayoutRanks
from tests.conftest import WHOLE, not_under_tsan
from tests.faults.counting import each
from tests.ranks.workers import Outcome, Task, Workers, patiently

MIB = 2**20
MANY = 12
"""So many ranks that their numbers are in another order as text: 10, 11, 2."""
PLAN = """
hipplan: 1
ranks: {}
devices: {gpu: {ordinal: $(local_rank % 2)}}
regions:
  heap:
    device: gpu
    size: $((rank + 1) * 2MiB)
    chunk: 2MiB
    reserve: 32MiB
    map: {ranks: node, access: rw}
    addresses: symmetric
    tensors: {row$(n): {each: {n: 12}, dtype: u8, shape: [4096]}}
  weights:
    rank: 0
    device: gpu
    map: {ranks: node}
    tensors: {w: {dtype: u8, shape: [4096]}}
buffers:
  report: {rank: 0, kind: pinned, size: 4KiB}
contents:
  heap: {value: 0xEE}
  weights.w: {value: 9}
  report: {value: 1}
"""


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    made = Workers()
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Any:
    numbers = count()
    return lambda: str(tmp_path / f"group-{next(numbers)}")


def run(workers: Workers, size: int, folder: str, plan: Any = PLAN, **more: Any) -> list[Outcome]:
    outcomes = workers.run(*(Task(plan, folder, rank, size, **more) for rank in range(size)))
    assert all(outcome is not None for outcome in outcomes), outcomes
    return [outcome for outcome in outcomes if outcome is not None]


def results(outcomes: list[Outcome | None]) -> list[str]:
    assert all(outcome is None or (outcome.left, outcome.descriptors) == (0, 0) for outcome in outcomes), outcomes
    return ["killed" if outcome is None else outcome.result for outcome in outcomes]


def values(outcomes: list[Outcome]) -> list[Any]:
    assert results([*outcomes]) == ["committed"] * len(outcomes), outcomes
    return [outcome.value for outcome in outcomes]


@pytest.mark.parametrize("size", [1, 2, 3, MANY])
def test_ranks_write_into_each_other_s_memory(workers: Workers, folder: Any, size: int) -> None:
    answers = values(run(workers, size, folder(), script="write_to_all"))
    assert answers == [[size * me + other for other in range(size)] for me in range(size)]


def test_ranks_agree_while_their_clocks_jump(workers: Workers, folder: Any) -> None:
    """All deadlines go by a clock that never jumps."""
    longer = PLAN.replace("32MiB", "64MiB")
    outcomes = run(workers, 3, folder(), update=longer, script="parts_of_all", clock=True)
    assert results([*outcomes]) == ["changed"] * 3, outcomes


def test_parts_lie_at_the_same_address_in_all_ranks(workers: Workers, folder: Any) -> None:
    answers = values(run(workers, 3, folder(), script="addresses"))
    stride = 32 * MIB  # what each part reserves
    bases = [
        {answers[me]["heap" if me == rank else f"heap@{rank}"] - rank * stride for rank in range(3)} for me in range(3)
    ]
    assert all(len(base) == 1 and base == bases[0] for base in bases)


@not_under_tsan
def test_parts_of_2_mib_have_their_addresses_although_the_drivers_have_others(workers: Workers, folder: Any) -> None:
    plan = PLAN.replace("$((rank + 1) * 2MiB)", "2MiB").replace("    reserve: 32MiB\n", "")
    once = values(run(workers, 3, folder(), plan, script="addresses", quirk="free_blocks_first"))
    third_time = values(run(workers, 3, folder(), plan, script="addresses", quirk="free_blocks_first", calls=3))
    assert once == third_time
    base = once[0]["heap"]
    assert [once[0].get(name) for name in ("heap", "heap@1", "heap@2")] == [base, base + 2 * MIB, base + 4 * MIB]
    assert once[1]["heap@0"] == once[2]["heap@0"] == base


@not_under_tsan
def test_parts_have_the_same_addresses_again_beside_memory_of_one_rank(workers: Workers, folder: Any) -> None:
    answers = values(run(workers, 3, folder(), script="again_and_again", quirk="free_blocks_first"))
    assert answers[0] == answers[1] == answers[2]
    assert len({*map(tuple, answers[0])}) == 1


def test_addresses_that_are_taken_in_one_rank_are_used_in_none(workers: Workers, folder: Any) -> None:
    answers = values(run(workers, 3, folder(), script="again_with_taken_addresses"))
    assert answers[0]["before"] == answers[1]["before"] == answers[2]["before"]
    assert answers[0]["after"] == answers[1]["after"] == answers[2]["after"]
    assert not set(answers[0]["before"]) & set(answers[0]["after"])


def test_addresses_that_any_memory_of_a_rank_has_are_not_proposed(workers: Workers, folder: Any) -> None:
    assert values(run(workers, 3, folder(), script="again_beside_many_mappings")) == [True] * 3


def test_two_layouts_of_a_plan_lie_beside_each_other(workers: Workers, folder: Any) -> None:
    answers = values(run(workers, 2, folder(), script="two_at_once"))
    assert answers[0] == answers[1]
    assert len(set(answers[0])) == 4


def test_the_drivers_say_where_they_have_room(workers: Workers, folder: Any) -> None:
    (places, asked), (places_too, _) = values(run(workers, 2, folder(), script="where_there_is_room"))
    assert places == places_too
    assert asked


def test_where_no_addresses_are_free_it_is_refused(workers: Workers, folder: Any) -> None:
    outcomes = run(workers, 2, folder(), script="all_taken")
    assert values(outcomes) == [("HP435",), ("HP435",)]


def test_a_rank_s_names_are_those_that_it_has_itself(workers: Workers, folder: Any) -> None:
    answers = values(run(workers, 2, folder(), script="of_rank"))
    heap = {f"heap.row{n}": 4096 for n in range(MANY)}
    weights = {"weights": 4096, "weights.w": 4096}
    for names in answers:
        assert names == {0: {"heap": 2 * MIB, **heap, **weights}, 1: {"heap": 4 * MIB, **heap}}


def test_what_one_rank_makes_is_the_same_memory_in_all(workers: Workers, folder: Any) -> None:
    answers = values(run(workers, 2, folder(), script="names"))
    assert {"weights", "weights.w", "report", "heap", "heap@1", "heap@1.row3"} <= set(answers[0])
    assert {"weights", "weights.w", "heap", "heap@0"} <= set(answers[1])
    assert "report" not in answers[1]


@pytest.mark.parametrize("size", [3, MANY])
def test_a_region_that_grew_is_seen_by_all_at_the_same_addresses(workers: Workers, folder: Any, size: int) -> None:
    plan = PLAN if size == 3 else PLAN.replace("$((rank + 1) * 2MiB)", "2MiB")  # each rank reads all that all have
    own = [(rank + 1) * 2 * MIB if size == 3 else 2 * MIB for rank in range(size)]
    for before, grown, shrunk, seen, as_planned in values(run(workers, size, folder(), plan, script="grow_heap")):
        assert [size for _, size in before.values()] == own
        assert [size for _, size in grown.values()] == [own[0] + 4 * MIB, *(bytes_ + 2 * MIB for bytes_ in own[1:])]
        assert [size for _, size in shrunk.values()] == [4 * MIB] * size
        assert (
            [at for at, _ in before.values()] == [at for at, _ in grown.values()] == [at for at, _ in shrunk.values()]
        )
        assert seen == [{7}] * size
        assert as_planned


def test_an_update_maps_new_memory_of_ranks_and_frees_old_memory(workers: Workers, folder: Any) -> None:
    more = PLAN.replace(
        "  weights:\n", "  more: {device: gpu, size: 2MiB, map: {ranks: node}, addresses: symmetric}\n  weights:\n"
    )
    outcomes = run(workers, 2, folder(), update=more, script="of_rank")
    assert results([*outcomes]) == ["changed"] * 2
    assert all(set(outcome.value[1]) >= {"heap", "more"} for outcome in outcomes)
    outcomes = run(workers, 2, folder(), more, update=PLAN, script="of_rank")
    assert results([*outcomes]) == ["changed"] * 2
    assert all("more" not in outcome.value[1] for outcome in outcomes)


def test_memory_stays_on_its_own_node(workers: Workers, folder: Any) -> None:
    place = folder()
    tasks = [Task(PLAN, place, rank, 4, node=f"node {rank // 2}", script="of_rank") for rank in range(4)]
    outcomes = [outcome for outcome in workers.run(*tasks) if outcome is not None]
    for rank, names in enumerate(values(outcomes)):
        mine = range(rank // 2 * 2, rank // 2 * 2 + 2)
        assert [other for other in range(4) if "heap" in names[other]] == [*mine]
        assert ("weights" in names[0]) == (rank < 2)


def test_the_first_rank_of_each_node_makes_what_is_once_a_node(workers: Workers, folder: Any) -> None:
    plan, place = PLAN.replace("rank: 0\n", "rank: first_of_node\n"), folder()
    tasks = [Task(plan, place, rank, 3, node="b" if rank == 1 else "a", script="of_rank") for rank in range(3)]
    answers = values([outcome for outcome in workers.run(*tasks) if outcome is not None])
    assert ["weights" in answers[rank][rank] for rank in range(3)] == [True, True, False]
    assert "weights" in answers[2][0]


@pytest.mark.in_turns
@pytest.mark.parametrize("size", [2, 3, 4] if WHOLE else [2])
def test_each_driver_call_of_each_rank_fails_in_turn(workers: Workers, folder: Any, size: int) -> None:
    calls = [outcome.driver_calls for outcome in run(workers, size, folder())]
    failed = 0
    for rank in range(size):
        for call in each("calls of ranks", range(1, calls[rank] + 1), 2):
            place = folder()
            tasks = [Task(PLAN, place, other, size) for other in range(size)]
            tasks[rank].faults = f"*@{call}=2"
            outcomes = workers.run(*tasks)
            answers = results(outcomes)
            if answers == ["committed"] * size:
                continue  # a call whose failure does not matter
            failed += 1
            assert "committed" not in answers, (rank, call, answers)
            others = [one for other, one in enumerate(outcomes) if other != rank and one is not None]
            assert all(other.codes == ("HP430",) and f"rank {rank} failed" in other.text for other in others), (
                call,
                others,
            )
    assert failed > 10 * size if WHOLE else failed > 5 * size


@pytest.mark.in_turns
@pytest.mark.parametrize("size", [2, 3] if WHOLE else [2])
def test_each_driver_call_of_a_growth_fails_in_each_rank(workers: Workers, folder: Any, size: int) -> None:
    plan = PLAN.replace("  heap:", "  part:").replace("  heap: {value", "  part: {value")
    calls = [outcome.driver_calls for outcome in run(workers, size, folder(), plan, grow="4MiB")]
    failed = 0
    for rank in range(size):
        for call in range(1, calls[rank] + 1):
            place = folder()
            tasks = [Task(plan, place, other, size, grow="4MiB") for other in range(size)]
            tasks[rank].grow_faults = f"*@{call}=2"
            answers = results(workers.run(*tasks))
            failed += answers != ["changed"] * size
            assert len({item == "changed" for item in answers}) == 1, (rank, call, answers)
    assert failed > 5 * size


@pytest.mark.in_parts
@pytest.mark.parametrize("act", ["kill", "stop"])
@pytest.mark.parametrize("size", [2, 3, 4] if WHOLE else [2])
def test_a_rank_that_goes_at_any_packet_to_another_is_missed(
    workers: Workers, folder: Any, size: int, act: str
) -> None:
    packets = [outcome.packets for outcome in run(workers, size, folder())]
    assert min(packets) > 5
    for rank in range(size):
        for packet in each(f"packets of ranks before which one {act}s", range(1, packets[rank] + 1), 2):

            def gone(timeout: float, rank: int = rank, packet: int = packet) -> list[Outcome | None]:
                place = folder()
                tasks = [Task(PLAN, place, other, size, timeout=timeout) for other in range(size)]
                tasks[rank].act, tasks[rank].packet = act, packet
                return workers.run(*tasks, resume=True)

            def misses(outcome: Outcome | None, rank: int = rank) -> bool:
                """A rank that is only slow cannot be told from one that stopped: it may be named beside it."""
                named = re.search(r"ranks? ([\d, ]+) did not answer", outcome.text if outcome is not None else "")
                return (
                    named is not None and str(rank) in named[1].split(", ") and (act == "stop" or named[1] == str(rank))
                )

            def others(outcomes: list[Outcome | None], rank: int = rank) -> list[Outcome | None]:
                return [outcome for other, outcome in enumerate(outcomes) if other != rank]

            outcomes = patiently(gone, lambda outcomes: not all(map(misses, others(outcomes))))
            answers = results(outcomes)
            assert "committed" not in answers, (rank, packet, answers)
            assert all(map(misses, others(outcomes))), (rank, packet, outcomes)


def test_a_rank_that_waits_itself_is_not_reported_as_missing(folder: Any) -> None:
    place = folder()
    waiting, other = (Agreement(LayoutRanks(hipplan.group(place, rank, 3), 1.0), "apply") for rank in (1, 2))
    waiting._first(waiting._key("late.1"), waiting._written({}), time.monotonic() + 1)
    with pytest.raises(GroupError, match=r"rank 0 did not answer within 1 s(.|\n)*rank 2 waited for it"):
        other.ended_by_others([0, 1])


def test_others_are_seen_to_go(workers: Workers, folder: Any) -> None:
    place = folder()
    outcomes = workers.run(*(Task(PLAN, place, rank, 3, script="see_others_go") for rank in range(3)))
    assert results(outcomes) == ["committed", "committed", "killed"]
    assert outcomes[0] is not None
    assert outcomes[0].value == {1: "closed", 2: "ended"}


def test_close_waits_for_others_only_if_it_is_asked_to(workers: Workers, folder: Any) -> None:
    answers = values(run(workers, 2, folder(), script="close_and_wait"))
    assert answers == [(1,), ('{"0": "closed"}', ())]


def test_a_forked_child_does_not_hide_the_end_of_its_parent(workers: Workers, folder: Any) -> None:
    answers = values(run(workers, 2, folder(), script="fork"))
    os.kill(answers[1], 9)
    assert answers[0] == {1: "closed"}


def test_what_is_another_rank_s_is_changed_by_that_rank(workers: Workers, folder: Any) -> None:
    for rank, answer in enumerate(values(run(workers, 2, folder(), script="refusals"))):
        other = 1 - rank
        assert "no rank 9 of 2" in answer[0]
        assert "no rank x" in answer[1]
        assert f"rank {other} shares no 'nothing'" in answer[2]
        assert "imported" in answer[3]
        assert sum(f"memory of rank {other}" in item for item in answer[4:]) == 3
        assert ["mapped by other ranks" in item for item in answer[7:]] == [True, True]


def test_ranks_with_other_plans_are_refused(workers: Workers, folder: Any) -> None:
    place = folder()
    outcomes = workers.run(Task(PLAN, place, 0, 2), Task(PLAN.replace("32MiB", "64MiB"), place, 1, 2))
    assert results(outcomes) == ["GroupError"] * 2
    assert all(
        outcome is not None and outcome.codes == ("HP433",) and "the same plan" in outcome.text for outcome in outcomes
    )


def test_ranks_with_other_variables_are_refused(workers: Workers, folder: Any) -> None:
    plan = {"hipplan": 1, "ranks": {}, "vars": {"n": 1}, "buffers": {"b": {"kind": "pinned", "size": "$(n * 4KiB)"}}}
    place = folder()
    outcomes = workers.run(Task(plan, place, 0, 2), Task({**plan, "vars": {"n": 2}}, place, 1, 2))
    assert results(outcomes) == ["GroupError"] * 2


def test_ranks_that_share_a_device_are_added_up(workers: Workers, folder: Any) -> None:
    plan = PLAN.replace("ordinal: $(local_rank % 2)", "ordinal: 0").replace("$((rank + 1) * 2MiB)", "700GiB")
    plan = plan.replace("chunk: 2MiB", "chunk: 50GiB").replace("32MiB", "700GiB")
    size = int(hipplan.machine("sim-2").devices[0].memory or 0) * 6 // 10 // MIB
    plan = plan.replace("700GiB", f"{size}MiB").replace("50GiB", f"{size}MiB")
    outcomes = run(workers, 2, folder(), plan)
    assert results([*outcomes]) == ["MachineError"] * 2
    assert all("HP301" in outcome.codes and "ranks 0, 1 together" in outcome.text for outcome in outcomes)


def test_a_stranger_who_knocks_is_not_answered(workers: Workers, folder: Any) -> None:
    """While the ranks meet, another process connects to all their sockets and sends invalid answers."""
    place = folder()
    with _Strangers():
        outcomes = run(workers, 3, place, script="write_to_all", timeout=30.0)
    assert results([*outcomes]) == ["committed"] * 3, outcomes


class _Strangers:
    """A process that connects to all sockets of hipplan without a nonce, until it is stopped."""

    def __enter__(self) -> None:
        self.child = os.fork()
        if self.child == 0:
            try:
                _knock_everywhere()
            finally:
                os._exit(0)

    def __exit__(self, *raised: object) -> None:
        os.kill(self.child, 9)
        os.waitpid(self.child, 0)


def _knock_everywhere() -> None:
    answers = [b"", b"x", b"0" * 32 + b" 1", b"\xff" * 200, b" 1", b"0" * 32 + b" -1"]
    held = []
    while True:
        for line in Path("/proc/net/unix").read_text().splitlines():
            name = line.rpartition(" ")[2]
            if name.startswith("@hipplan-"):
                for text in answers:
                    one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
                    try:
                        one.connect("\0" + name[1:])
                        one.send(text)
                        held.append(one)
                    except OSError:
                        one.close()
        del held[:-100]


def test_memory_that_ranks_map_of_each_other_does_not_sleep(workers: Workers, folder: Any) -> None:
    for me, answer in enumerate(values(run(workers, 2, folder(), script="cannot_sleep"))):
        mine, imported = answer
        assert "HP440" in mine and "other ranks of this node map it" in mine
        assert "HP440" in imported and f"its memory is freed when rank {1 - me} frees it" in imported


def test_memory_that_ranks_map_of_each_other_does_not_move_to_the_host(workers: Workers, folder: Any) -> None:
    for answer in values(run(workers, 2, folder(), script="cannot_move_to_the_host")):
        assert "HP420" in answer and "'heap' is mapped by other ranks: its memory cannot move" in answer
