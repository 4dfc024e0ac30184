"""Ranks that apply together: all commit or none does, whatever fails wherever. Each rank is a process of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import hipplan
from tests.conftest import WHOLE
from tests.faults.counting import each
from tests.parts import share
from tests.ranks.workers import SHORT_S, Outcome, Task, Workers, patiently, too_late

MIB = 2**20
PLAN = """
hipplan: 1
ranks: {}
regions:
  part: {size: $((rank + 1) * 2MiB), chunk: 2MiB, reserve: 256MiB}
buffers:
  area: {kind: pinned, size: 1MiB}
contents:
  area: {value: $(rank + 1)}
"""
OPERATIONS = 6
"""On the store, of each rank in a run where all is well; of rank 0 more. test_all_ranks_commit holds that."""


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    made = Workers()
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Any]:
    numbers = count()
    return lambda: str(tmp_path / f"group-{next(numbers)}")


def tasks_for(size: int, folder: str, **more: Any) -> list[Task]:
    return [Task(PLAN, folder, rank, size, **more) for rank in range(size)]


def results(outcomes: list[Outcome | None]) -> list[str]:
    assert all(outcome is None or outcome.left == 0 for outcome in outcomes), outcomes
    return ["killed" if outcome is None else outcome.result for outcome in outcomes]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 64] if WHOLE else [1, 2, 3, 4])
def test_all_ranks_commit(workers: Workers, folder: Any, size: int) -> None:
    outcomes = workers.run(*tasks_for(size, folder()))

    assert results(outcomes) == ["committed"] * size
    for rank, outcome in enumerate(outcomes):
        assert outcome is not None
        assert outcome.sizes["part"] == 2 * MIB * (rank + 1)
        assert outcome.operations == (3 * (2 + size) if rank == 0 else OPERATIONS)


def test_one_group_serves_many_calls(workers: Workers, folder: Any) -> None:
    assert results(workers.run(*tasks_for(3, folder(), calls=5))) == ["committed"] * 3


@pytest.mark.in_turns
@pytest.mark.parametrize("size", [2, 3, 4] if WHOLE else [2, 3])
def test_each_driver_call_of_each_rank_fails_in_turn(workers: Workers, folder: Any, size: int) -> None:
    calls = [outcome.driver_calls for outcome in workers.run(*tasks_for(size, folder())) if outcome is not None]
    failed = 0
    for rank in range(size):
        for call in each("calls of ranks", range(1, calls[rank] + 1), 1 if size == 2 else 3):
            tasks = tasks_for(size, folder())
            tasks[rank].faults = f"*@{call}=2"
            outcomes = workers.run(*tasks)
            answers = results(outcomes)
            if answers == ["committed"] * size:
                continue  # a call whose failure does not matter
            failed += 1
            assert "committed" not in answers, (rank, call, answers)
            for other, outcome in enumerate(outcomes):
                assert outcome is not None
                if other != rank:
                    assert outcome.codes == ("HP430",), (call, outcome)
                    assert f"rank {rank} failed" in outcome.text
    assert failed > 3 * size


def test_the_others_hear_which_call_of_which_rank_failed_and_where(workers: Workers, folder: Any) -> None:
    tasks = tasks_for(3, folder())
    tasks[1].faults = "hipMemMap@2=2"
    outcomes = workers.run(*tasks)
    assert results(outcomes) == ["GroupError", "ApplyError", "GroupError"]
    for outcome in (outcomes[0], outcomes[2]):
        assert outcome is not None
        assert "rank 1 failed" in outcome.text
        assert "<text>:5" in outcome.text or ":5:" in outcome.text
        assert "hipMemMap" in outcome.text


@pytest.mark.parametrize(
    ("plan", "code"),
    [
        (PLAN.replace("1MiB}", "oops}"), "HP013"),
        ("hipplan: 1\nbuffers: {b: {kind: device, size: 900GiB}}", "HP301"),
        ("hipplan: 2\n", "HP108"),
    ],
)
def test_the_others_hear_of_a_plan_that_cannot_be_used(workers: Workers, folder: Any, plan: str, code: str) -> None:
    tasks = tasks_for(2, folder())
    tasks[1].plan = plan
    outcomes = workers.run(*tasks)

    assert outcomes[0] is not None
    assert (outcomes[0].result, outcomes[0].codes) == ("GroupError", ("HP430",))
    assert code in outcomes[0].text
    assert outcomes[0].left == 0


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_rank_that_never_comes_is_named(workers: Workers, folder: Any, missing: int) -> None:
    tasks = tasks_for(3, folder(), timeout=SHORT_S)
    del tasks[missing]
    outcomes = workers.run(*tasks)

    assert results(outcomes) == ["GroupError"] * 2
    for outcome in outcomes:
        assert outcome is not None
        assert outcome.codes == ("HP431",)
        assert f"rank {missing} did not answer within 0.3 s" in outcome.text


def test_a_rank_that_is_late_reads_that_the_others_waited_for_it(workers: Workers, folder: Any) -> None:
    *tasks, late = tasks_for(3, folder(), timeout=SHORT_S)
    assert results(workers.run(*tasks)) == ["GroupError"] * 2
    (outcome,) = workers.run(late)
    assert outcome is not None
    assert "waited for this rank, which was too late" in outcome.text


def positions(size: int) -> list[tuple[int, int, bool]]:
    """(rank, operation, whether after it) of each place where a rank can be."""
    return [
        (rank, at, after)
        for rank in range(size)
        for at in range(1, (3 * (2 + size) if rank == 0 else OPERATIONS) + 1)
        for after in (False, True)
    ]


def disturbed(outcomes: list[Outcome | None], killed: int) -> bool:
    """Whether a busy machine made a rank late: another than the one to kill, or that one before its time had come."""
    return outcomes[killed] is not None or bool(too_late(outcomes) - {killed})


@pytest.mark.in_turns
@pytest.mark.parametrize("size", [2, 3, 4] if WHOLE else [2])
def test_a_rank_is_killed_at_each_message(workers: Workers, folder: Any, size: int) -> None:
    """The other ranks decide alike: all commit or none does, and no rank is left waiting."""
    seen = set()
    for rank, at, after in share(positions(size)):

        def killed(timeout: float, rank: int = rank, at: int = at, after: bool = after) -> list[Outcome | None]:
            tasks = tasks_for(size, folder(), timeout=timeout)
            tasks[rank].act, tasks[rank].at, tasks[rank].after = "kill", at, after
            return workers.run(*tasks)

        answers = results(patiently(killed, lambda outcomes, rank=rank: disturbed(outcomes, rank)))
        assert answers.pop(rank) == "killed"
        assert len(set(answers)) == 1, (rank, at, after, answers)
        assert set(answers) <= {"committed", "GroupError"}
        seen.add(answers[0])
    assert seen == {"committed", "GroupError"}


@pytest.mark.in_turns
@pytest.mark.parametrize("size", [2, 3] if WHOLE else [2])
def test_a_rank_stops_at_each_message_and_goes_on_when_the_others_are_done(
    workers: Workers, folder: Any, size: int
) -> None:
    for rank, at, after in share(positions(size)):
        tasks = tasks_for(size, folder(), timeout=SHORT_S)
        tasks[rank].act, tasks[rank].at, tasks[rank].after = "stop", at, after
        answers = results(workers.run(*tasks, resume=True))
        assert len(set(answers)) == 1, (rank, at, after, answers)


def test_a_store_that_is_lost_before_the_vote_rolls_back_and_after_it_leaves_a_doubt(
    workers: Workers, folder: Any
) -> None:
    for rank, at, after in share(positions(2)):

        def lost(timeout: float, rank: int = rank, at: int = at, after: bool = after) -> list[Outcome | None]:
            tasks = tasks_for(2, folder(), timeout=timeout)
            tasks[rank].act, tasks[rank].at, tasks[rank].after = "lose", at, after
            return workers.run(*tasks)

        def was_late(outcomes: list[Outcome | None], rank: int = rank) -> bool:
            outcome = outcomes[rank]
            return outcome is not None and outcome.codes == ("HP431",)

        outcomes = patiently(lost, was_late)
        results(outcomes)
        outcome = outcomes[rank]
        assert outcome is not None
        votes = at > 2 * (2 + 2 if rank == 0 else 2)
        assert outcome.result == ("GroupInDoubt" if votes else "GroupError"), (rank, at, after, outcome)
        assert outcome.codes == (("HP432",) if votes else ("HP434",))
        assert (outcome.alive > 0) == votes  # what was made is there until it is closed


@pytest.mark.parametrize("which", [(0,), (1,), (0, 1)])
def test_ranks_decide_alike_when_the_disk_of_the_store_is_full(
    workers: Workers, folder: Any, which: tuple[int, ...]
) -> None:
    """From any operation on nothing can be written, by a rank or by all of them. A rank in doubt says so."""
    seen = set()
    for at in share(range(1, OPERATIONS + 1)):
        tasks = tasks_for(2, folder(), timeout=SHORT_S)
        for rank in which:
            tasks[rank].act, tasks[rank].at = "fill", at
        outcomes = workers.run(*tasks)
        answers = {*results(outcomes)}
        assert len(answers - {"GroupInDoubt"}) <= 1, (at, outcomes)
        seen |= answers
    assert "GroupError" in seen


def test_a_store_that_is_out_of_reach_for_a_moment_is_asked_again(workers: Workers, folder: Any) -> None:
    """Also by rank 0, which looks at the end while it waits for a rank that comes late."""
    for rank, at, after in positions(2):
        tasks = tasks_for(2, folder())
        tasks[rank].act, tasks[rank].at, tasks[rank].after = "miss", at, after
        assert results(workers.run(*tasks)) == ["committed"] * 2, (rank, at, after)
    tasks = tasks_for(2, folder(), timeout=2.0)
    tasks[0].act, tasks[1].plan = "miss", "slow:" + PLAN
    assert results(workers.run(*tasks)) == ["committed"] * 2


def test_an_interrupt_after_the_decision_waits_until_it_is_carried_out(workers: Workers, folder: Any) -> None:
    """All have committed by then; the one that was interrupted gives its part back."""
    tasks = tasks_for(2, folder())
    tasks[0].act, tasks[0].at = "interrupt", 3 * (2 + 2)
    assert results(workers.run(*tasks)) == ["KeyboardInterrupt", "committed"]


@pytest.mark.parametrize("at", [5, 6])
def test_an_interrupt_before_the_decision_ends_the_vote_for_all(workers: Workers, folder: Any, at: int) -> None:
    """At once: rank 0, which would decide, is stopped, and the deadline is far away."""
    tasks = tasks_for(2, folder())
    tasks[0].act, tasks[0].at = "stop", 3 * (2 + 2)
    tasks[1].act, tasks[1].at = "interrupt", at
    assert results(workers.run(*tasks, resume=True)) == ["GroupError", "KeyboardInterrupt"]


def test_an_interrupt_before_the_vote_ends_it_for_all(workers: Workers, folder: Any) -> None:
    tasks = tasks_for(3, folder())
    tasks[1].act, tasks[1].at = "interrupt", 2
    outcomes = workers.run(*tasks)
    assert results(outcomes) == ["GroupError", "KeyboardInterrupt", "GroupError"]
    assert outcomes[0] is not None
    assert "KeyboardInterrupt" in outcomes[0].text


def test_a_folder_of_another_run_is_refused(workers: Workers, folder: Any) -> None:
    used = folder()
    assert results(workers.run(*tasks_for(2, used))) == ["committed"] * 2
    outcomes = workers.run(*tasks_for(2, used))
    assert results(outcomes) == ["GroupError"] * 2
    for outcome in outcomes:
        assert outcome is not None
        assert outcome.codes == ("HP434",)
        assert "new folder" in outcome.text


def test_another_version_of_hipplan_is_refused(workers: Workers, folder: Any) -> None:
    tasks = tasks_for(3, folder())
    tasks[2].version = "9.9"
    outcomes = workers.run(*tasks)
    assert results(outcomes) == ["GroupError"] * 3
    for outcome in outcomes:
        assert outcome is not None
        assert outcome.codes == ("HP433",)
        assert "9.9" in outcome.text


def test_another_size_of_the_group_is_refused(workers: Workers, folder: Any) -> None:
    tasks = tasks_for(2, folder(), timeout=SHORT_S)
    tasks[1].size = 3
    outcomes = workers.run(*tasks)
    assert results(outcomes) == ["GroupError"] * 2


HOSTILE = [
    b"",
    b"[]",
    b"\xff",
    b"{}",
    b"[" * 100_000,
    b'{"all": 3}',
    b'{"failed": "x", "what": 1}',
    b'{"missing": []}',
    b'{"attempt": "", "all": [{"attempt": ""}, 1]}',
    b'{"attempt": "x", "all": [{}, {}]}',
    b"9" * 5000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:24]))
@pytest.mark.parametrize("key", ["1.hello.end", "1.hello.1"])
def test_what_is_no_message_is_refused(workers: Workers, folder: Any, key: str, text: bytes) -> None:
    place = Path(folder())
    place.mkdir()
    (place / key).write_bytes(text)
    outcomes = workers.run(*tasks_for(2, str(place), timeout=SHORT_S))
    assert results(outcomes) == ["GroupError"] * 2


def test_ranks_grow_together(workers: Workers, folder: Any) -> None:
    outcomes = workers.run(*tasks_for(3, folder(), grow="4MiB"))
    assert results(outcomes) == ["changed"] * 3
    for rank, outcome in enumerate(outcomes):
        assert outcome is not None
        assert outcome.sizes["part"] == (rank + 1) * 2 * MIB + 4 * MIB


def test_ranks_sleep_and_wake_together(workers: Workers, folder: Any) -> None:
    outcomes = workers.run(*tasks_for(2, folder(), script="sleep_and_wake"))
    assert results(outcomes) == ["committed"] * 2
    assert [outcome.value for outcome in outcomes if outcome] == [({"part": "host"}, True, True)] * 2


def test_where_one_rank_cannot_sleep_or_wake_none_does(workers: Workers, folder: Any) -> None:
    outcomes = workers.run(*tasks_for(2, folder(), script="one_cannot_sleep"))
    assert results(outcomes) == ["committed"] * 2
    asleep: dict[str, str] = {"part": "host"}
    for rank, outcome in enumerate(outcomes):
        assert outcome is not None
        first, second = ("ApplyError", "GroupError") if rank == 1 else ("GroupError", "ApplyError")
        assert outcome.value == ([first, {}, asleep, second, asleep, {}], [])


@pytest.mark.parametrize("size", [2, 3] if WHOLE else [2])
def test_each_driver_call_of_a_change_fails_in_each_rank(workers: Workers, folder: Any, size: int) -> None:
    """All layouts stay unchanged, and are closed as usual."""
    calls = [
        outcome.driver_calls for outcome in workers.run(*tasks_for(size, folder(), grow="4MiB")) if outcome is not None
    ]
    failed = 0
    for rank in range(size):
        for call in range(1, calls[rank] + 1):
            tasks = tasks_for(size, folder(), grow="4MiB")
            tasks[rank].grow_faults = f"*@{call}=2"
            outcomes = workers.run(*tasks)
            answers = results(outcomes)
            if answers == ["changed"] * size:
                continue  # a call whose failure does not matter
            failed += 1
            for other, outcome in enumerate(outcomes):
                assert outcome is not None
                assert outcome.sizes["part"] == (other + 1) * 2 * MIB, (rank, call)
                assert outcome.result == ("ApplyError" if other == rank else "GroupError")
    assert failed > 3 * size


def test_a_change_that_one_rank_cannot_make_is_made_by_none(workers: Workers, folder: Any) -> None:
    tasks = tasks_for(2, folder(), grow="4MiB")
    tasks[1].grow = "8EiB"
    outcomes = workers.run(*tasks)
    assert results(outcomes) == ["GroupError", "ApplyError"]
    assert outcomes[0] is not None
    assert "HP420" in outcomes[0].text


def test_a_rank_that_is_killed_during_a_change_is_missed(workers: Workers, folder: Any) -> None:
    seen = set()
    for at in range(OPERATIONS + 1, 2 * OPERATIONS + 1):

        def killed(timeout: float, at: int = at) -> list[Outcome | None]:
            tasks = tasks_for(3, folder(), timeout=timeout, grow="4MiB")
            tasks[2].act, tasks[2].at = "kill", at
            return workers.run(*tasks)

        answers = results(patiently(killed, lambda outcomes: disturbed(outcomes, 2)))
        assert answers.pop() == "killed"
        assert len(set(answers)) == 1, (at, answers)
        seen.add(answers[0])
    assert seen == {"changed", "GroupError"}


def test_a_doubt_about_a_change_gives_the_whole_layout_back(workers: Workers, folder: Any) -> None:
    """Where no rank is late for the vote: then the change fails, and nothing is in doubt."""

    def lost(timeout: float) -> list[Outcome | None]:
        tasks = tasks_for(2, folder(), timeout=timeout, grow="4MiB")
        tasks[1].act, tasks[1].at, tasks[1].after = "lose", 2 * OPERATIONS, False
        return workers.run(*tasks)

    outcomes = patiently(lost, lambda outcomes: bool(too_late(outcomes)))
    assert results(outcomes) == ["changed", "GroupInDoubt"]
    assert outcomes[1] is not None
    assert outcomes[1].codes == ("HP432",)


def test_an_update_has_the_rank_s_own_variables(workers: Workers, folder: Any) -> None:
    """The same plan changes nothing, in any rank."""
    outcomes = workers.run(*tasks_for(2, folder(), update=PLAN))
    assert results(outcomes) == ["changed"] * 2
    for rank, outcome in enumerate(outcomes):
        assert outcome is not None
        assert outcome.sizes["part"] == (rank + 1) * 2 * MIB


def test_an_update_with_a_wrong_plan_in_one_rank_is_reported(workers: Workers, folder: Any) -> None:
    tasks = tasks_for(2, folder(), update=PLAN)
    tasks[1].update = PLAN.replace("1MiB}", "oops}")
    outcomes = workers.run(*tasks)
    assert results(outcomes) == ["GroupError", "PlanError"]
    assert outcomes[0] is not None
    assert "HP013" in outcomes[0].text


def test_ranks_that_make_different_calls_are_refused(workers: Workers, folder: Any) -> None:
    tasks = tasks_for(2, folder(), grow="2MiB")
    tasks[1].grow, tasks[1].update = "", PLAN
    outcomes = workers.run(*tasks)
    assert results(outcomes) == ["GroupError"] * 2
    for outcome in outcomes:
        assert outcome is not None
        assert outcome.codes == ("HP433",)
        assert "grow" in outcome.text


def test_what_cannot_be_freed_after_another_rank_s_failure_is_named(workers: Workers, folder: Any) -> None:
    tasks = tasks_for(2, folder())
    tasks[0].faults = "hipMemRelease@1+=1"
    tasks[1].faults = "hipMemGetAccess@1=2"
    outcome, other = workers.run(*tasks)
    assert outcome is not None
    assert other is not None
    assert (outcome.result, outcome.codes[0], other.result) == ("GroupError", "HP430", "ApplyError")
    assert set(outcome.codes[1:]) == {"HP403"}
    assert outcome.exit_code == 5
    assert outcome.left > 0


def test_a_folder_in_which_a_run_failed_is_refused(workers: Workers, folder: Any) -> None:
    used = folder()
    wrong = [Task(PLAN.replace("1MiB}", "oops}"), used, rank, 2) for rank in range(2)]
    workers.run(*wrong)
    outcomes = workers.run(*tasks_for(2, used))
    assert results(outcomes) == ["GroupError"] * 2
    for outcome in outcomes:
        assert outcome is not None
        assert outcome.codes == ("HP434",)
        assert "HP013" not in outcome.text


@pytest.mark.parametrize("key", ["1.hello.end", "1.vote.end", "1.hello.1"])
def test_what_is_no_file_in_the_folder_is_not_waited_for(workers: Workers, folder: Any, key: str) -> None:
    place = Path(folder())
    place.mkdir()
    os.mkfifo(place / key)
    outcomes = workers.run(*tasks_for(2, str(place), timeout=SHORT_S))
    assert set(results(outcomes)) <= {"GroupError", "GroupInDoubt"}


def test_a_folder_that_others_may_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(hipplan.SettingError, match="other users can write there"):
        hipplan.group(tmp_path, 0, 1)


def test_a_forked_child_does_not_speak_for_its_parent(tmp_path: Path) -> None:
    group = hipplan.group(tmp_path / "group", 0, 1)
    child = os.fork()
    if child == 0:
        try:
            hipplan.apply(PLAN, runtime="sim", group=group)
        except hipplan.SettingError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert [*(tmp_path / "group").iterdir()] == []


def test_a_loaded_plan_must_be_for_this_rank(tmp_path: Path) -> None:
    group = hipplan.group(tmp_path / "group", 0, 1)
    with pytest.raises(TypeError, match="the plan was loaded for Rank"):
        hipplan.apply(hipplan.load(PLAN, rank=hipplan.Rank(rank=1, ranks=2)), runtime="sim", group=group)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), "5", None, True])
def test_an_invalid_timeout_is_refused_before_any_message(tmp_path: Path, timeout: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="timeout"):
        hipplan.apply(PLAN, runtime="sim", group=hipplan.group(tmp_path, 0, 1), timeout=timeout)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("", 0, 1), {}),
        (("nul\0", 0, 1), {}),
        ((3.5, 0, 1), {}),
        (("x", 2, 2), {}),
        (("x", -1, 2), {}),
        (("x", 0, 10**9), {}),
        (("x", 1.5, 2), {}),
        (("x", True, 2), {}),
        (("x", "0", 2), {}),
        (("x", 0, 2), {"local_rank": "y"}),
        (("/proc/version", 0, 1), {}),
    ],
    ids=repr,
)
def test_a_group_that_cannot_be_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: Any, named: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((hipplan.SettingError, TypeError)):
        hipplan.group(*arguments, **named)


@pytest.mark.parametrize("value", ["x", "-1", "1.5", "9" * 5000, "1" * 12])
@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "LOCAL_RANK"])
def test_a_rank_in_the_environment_that_is_invalid_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, value: str
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv(name, value)
    with pytest.raises(hipplan.SettingError, match=name):
        hipplan.group(tmp_path)


def test_a_group_is_what_group_returns() -> None:
    with pytest.raises(TypeError, match=r"hipplan.group\(\)"):
        hipplan.apply(PLAN, runtime="sim", group="folder")  # type: ignore[arg-type]


def test_another_signal_s_handler_cannot_come_between_a_yes_and_the_commit(workers: Workers, folder: Any) -> None:
    """Slurm and users send more than ^C; here the handler ends the program."""
    for at in (5, 6):
        tasks = tasks_for(2, folder(), grow="2MiB")
        tasks[1].act, tasks[1].at, tasks[1].after = "user signal", OPERATIONS + at, at == 5
        answers = results(workers.run(*tasks))
        assert answers in (["changed", "SystemExit"], ["GroupError", "SystemExit"]), answers


def test_a_layout_that_one_rank_has_closed_does_not_put_the_group_out_of_step(workers: Workers, folder: Any) -> None:
    tasks = tasks_for(2, folder(), grow="2MiB")
    tasks[1].act = "close first"
    outcomes = workers.run(*tasks)
    assert results(outcomes) == ["GroupError", "ValueError"]
    assert outcomes[0] is not None
    assert "closed" in outcomes[0].text


def test_the_missing_rank_is_named_by_every_rank(workers: Workers, folder: Any) -> None:
    """Rank 0 comes late, and rank 2 never."""
    tasks = tasks_for(3, folder(), timeout=1.0)
    del tasks[2]
    tasks[0].plan = "slow:" + PLAN
    outcomes = workers.run(*tasks)
    assert results(outcomes) == ["GroupError"] * 2
    for outcome in outcomes:
        assert outcome is not None
        assert "rank 2 did not answer" in outcome.text
