"""What two ranks of a node report when their exchange of memory fails: what was sent, or the bug, never one as the
other."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, NoReturn

import pytest

import hipplan
from hipplan.errors import GroupError
from hipplan.kinds.allocation.live import ImportAllocation
from hipplan.machines.runtimes import choose
from hipplan.processes import packets
from hipplan.program.program import Program
from hipplan.ranks.all_ranks import AllRanks, ranks_of
from hipplan.ranks.meeting import Meeting
from tests.descriptors import descriptors
from tests.ranks.workers import SIMULATED

PLAN = """hipplan: 1
ranks: {}
devices: {gpu: {ordinal: $(rank)}}
regions:
  heap: {device: gpu, size: 4MiB, map: {ranks: node}, tensors: {x: {dtype: f32, shape: [8]}}}
"""


class Ended(Exception):
    """The other rank has ended the exchange."""


@dataclass
class Call:
    """One call of two ranks."""

    rank: hipplan.Rank
    neighbours: tuple[int, ...]
    outcomes: Mapping[int, Any]
    number: int = 1

    def deadline(self) -> float:
        return monotonic() + 60.0

    def is_over(self) -> bool:
        return self.neighbours[0] in self.outcomes

    def ended_by_others(self, missing: object, why: str = "") -> NoReturn:
        raise Ended(why)


def shared(name: str) -> int:
    """A descriptor in place of an allocation's."""
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


Share = Callable[[str], int]


def both(
    *, sends: Mapping[str, Any] | None = None, wants: Mapping[str, Any] | None = None, share: Share = shared
) -> Any:
    """Two ranks exchange memory. Returns what each one raised, or its number of descriptors.

    sends: keys that rank 0 publishes in place of its own. wants: fields of what rank 1 imports, in place of its own.
    share: of rank 0.
    """
    runtime, opened, read = choose("sim").runtime, descriptors(but=SIMULATED), hipplan.load
    ranks = AllRanks(
        ranks_of(read(PLAN, rank=hipplan.Rank(ranks=2)), 2),
        lambda rank: read(PLAN, rank=rank),
        hipplan.machine("sim-2"),
    )
    programs: list[Program] = [ranks.own(rank) for rank in range(2)]
    outcomes: dict[int, Any] = {}
    meetings = [Meeting(Call(hipplan.Rank(rank=rank, ranks=2), (1 - rank,), outcomes)) for rank in range(2)]
    sockets: list[Mapping[str, Any]] = [
        meeting.begin(program) for meeting, program in zip(meetings, programs, strict=True)
    ]
    sockets[0] = {**sockets[0], **(sends or {})}

    def work(rank: int) -> None:
        try:
            program = meetings[rank].joined(sockets, None, programs[rank], runtime)
            imports = [step for step in program.steps if isinstance(step, ImportAllocation)]
            if rank == 1 and wants is not None:
                imports = [replace(step, **wants) for step in imports]
            files = meetings[rank].exchange(imports, share if rank == 0 else shared)
            outcomes[rank] = len(files)
            for file in files.values():
                os.close(file)
        except BaseException as error:
            outcomes[rank] = error
        finally:
            meetings[rank].close()

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert descriptors(but=SIMULATED) == opened
    return outcomes[0], outcomes[1]


def test_each_rank_gets_the_memory_of_the_other() -> None:
    assert both() == (1, 1)


@pytest.mark.parametrize(
    "bug", [KeyError("a bug"), IndexError("a bug"), ValueError("a bug"), TypeError("a bug")], ids=repr
)
def test_a_bug_while_memory_is_shared_is_raised_as_it_is(bug: Exception) -> None:
    def fails(name: str) -> int:
        raise bug

    first, second = both(share=fails)
    assert first is bug
    assert isinstance(second, Ended)


@pytest.mark.parametrize(
    ("sends", "expected"),
    [
        ({"socket": None}, GroupError),
        ({"nonce": 7}, GroupError),
        ({"socket": "\ud800"}, GroupError),
        ({"socket": "x"}, Ended),
    ],
    ids=repr,
)
def test_a_rank_that_does_not_say_where_it_listens_is_refused(sends: dict[str, Any], expected: type) -> None:
    first, second = both(sends=sends)
    assert isinstance(first, Ended)
    assert "rank 0" in str(second)
    assert type(second) is expected


def test_a_rank_that_requests_other_memory_is_refused() -> None:
    first, second = both(wants={"bind": "secret"})
    assert isinstance(first, GroupError)
    assert "HP434" in str(first)
    assert "not shared" in str(first)
    assert isinstance(second, Ended)


def test_an_offer_that_is_too_long_to_be_sent_is_reported_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packets, "TEXT_MAX", 100)
    refused = [error for error in both() if isinstance(error, GroupError)]
    assert refused  # the other rank may learn first that this one has ended
    assert all("bytes, and at most 100 can be sent" in str(error) for error in refused)
