"""A change that is stopped names what it could not undo, and never begins with steps out of order."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan.errors import ApplyError, LeakError
from hipplan.kinds.allocation.live import ImportAllocation
from hipplan.layout.options import Options
from hipplan.layout.run import run
from hipplan.program.difference import Difference
from hipplan.program.steps import Step
from hipplan.ranks.groups import Group
from hipplan.ranks.stores import FolderStore
from tests.conftest import Simulator

PLAN: dict[str, Any] = {
    "hipplan": 1,
    "buffers": {"pinned": {"kind": "pinned", "size": 4096}},
    "regions": {"region": {"size": "4MiB", "chunk": "2MiB"}},
}
LARGER = {**PLAN, "regions": {"region": {"size": "8MiB", "chunk": "2MiB"}}}


def left_over(sim: Simulator) -> list[str]:
    """The kinds of what a test leaked on purpose, which is freed."""
    kinds = sorted(kind for kind, _ in sim.alive())
    sim.free_everything()
    return kinds


def test_a_layout_that_was_closed_meanwhile_names_what_stays(sim: Simulator) -> None:
    layout = hipplan.apply(PLAN, runtime="sim")

    def close(number: int, step: Step) -> None:
        if number == 3:
            view = memoryview(layout["pinned"])
            assert layout.close(force=True).kept == ("pinned",)
            del view  # the end of the change frees it
            sim.runtime.arm_faults("hipHostFree@1=hipErrorUnknown")

    with pytest.raises(ValueError, match=r"^the layout is closed$") as caught:
        layout.update(LARGER, lose=["region"], on_step=close)
    sim.runtime.arm_faults("")

    assert isinstance(caught.value.__cause__, ApplyError)
    assert caught.value.__cause__.leaks == ("pinned",)
    assert left_over(sim) == ["buffer"]


def test_a_layout_that_was_closed_meanwhile_is_an_error_without_a_cause_if_nothing_stays(sim: Simulator) -> None:
    layout = hipplan.apply(PLAN, runtime="sim")
    with pytest.raises(ValueError, match=r"^the layout is closed$") as caught:
        layout.update(LARGER, lose=["region"], on_step=lambda number, step: layout.close())

    assert caught.value.__cause__ is None


class SignalAtTheVote(FolderStore):
    """Sends ^C to this process when its change is decided, the third round of the second call."""

    def first(self, key: str, value: bytes) -> bytes:
        stored = super().first(key, value)
        if key == "2/vote/end":
            os.kill(os.getpid(), signal.SIGINT)
        return stored


def test_a_signal_after_the_decision_names_what_stays(sim: Simulator, tmp_path: Path) -> None:
    group = Group(SignalAtTheVote(tmp_path), 0, 1)
    plan = {"hipplan": 1, "ranks": {}, "allocations": {"stays": {"size": "2MiB"}, "goes": {"size": "2MiB"}}}
    layout = hipplan.apply(plan, runtime="sim", group=group)
    sim.runtime.arm_faults("hipMemRelease@1=hipErrorUnknown")
    with pytest.raises(KeyboardInterrupt) as caught:
        layout.update({**plan, "allocations": {"stays": {"size": "2MiB"}}}, lose=["goes"])
    sim.runtime.arm_faults("")

    assert isinstance(caught.value.__cause__, LeakError)
    assert caught.value.__cause__.leaks == ("goes",)
    assert list(layout) == ["stays"]
    layout.close()
    assert left_over(sim) == ["allocation"]


class Ranks:
    """The messages of a group that has only this rank. to_place: ranges that need the same addresses in all ranks."""

    def __init__(self, to_place: Sequence[str]) -> None:
        self.to_place = to_place

    def deadline(self) -> float:
        return 0.0

    def all_placed(self, taken: ApplyError | None) -> bool:
        return taken is None

    def at_other_addresses(self, change: Difference) -> Difference:
        return change

    def exchange(self, imports: Sequence[ImportAllocation], share: Callable[[str], int]) -> Mapping[str, int]:
        return {}

    def vote(self, deliver: Callable[[], None]) -> BaseException | None:
        return None


def test_ranges_that_all_ranks_place_come_first(sim: Simulator) -> None:
    """A range that was made before could have the addresses that the ranks agreed on."""
    plan = {"hipplan": 1, "reservations": {"own": {"size": "2MiB"}, "agreed": {"size": "2MiB"}}}
    program = hipplan.compile(hipplan.load(plan), "sim-2")
    run(program, sim.runtime, Options(together=Ranks(["own"]))).close()
    with pytest.raises(AssertionError, match="ranges that all ranks place come first"):
        run(program, sim.runtime, Options(together=Ranks(["agreed"])))


def test_memory_of_this_rank_is_made_before_that_of_others_is_mapped(sim: Simulator) -> None:
    """Else another rank could ask for memory that does not exist yet."""
    plan = {"hipplan": 1, "allocations": {"own": {"size": "2MiB"}}}
    program = hipplan.compile(hipplan.load(plan), "sim-2")
    other = ImportAllocation("other", None, bind="other", device=0, size=2 << 20, asked=2 << 20, rank=1)
    wrong = replace(program, steps=(other, *program.steps))
    with pytest.raises(AssertionError, match="other ranks may ask for own"):
        run(wrong, sim.runtime, Options(together=Ranks([])))
