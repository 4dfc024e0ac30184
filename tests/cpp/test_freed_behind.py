"""What a change frees behind its caller, and what it keeps for new allocations: by slot, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from hipplan import _core
from tests.conftest import Simulator
from tests.cpp import some_rows as row
from tests.cpp.some_rows import SIZE, advance, close, free_retired, holding

LONG_S = 60


def change(holdings: _core.Holdings, rows: list[row.Row], slots: int, **more: Any) -> _core.Change:
    made = _core.Change(holdings, _core.Rows(rows), slots, **more)
    advance(made, len(rows))
    return made


def kinds(sim: Simulator) -> list[str]:
    return sorted(kind for kind, _ in sim.alive())


def test_pinned_memory_that_goes_is_freed_behind_the_commit(sim: Simulator) -> None:
    holdings = holding(sim.runtime, [row.pinned(0), row.pinned(1), row.memory(2)])
    sim.runtime.arm_faults("hipHostFree@1=hipErrorUnknown")
    made = change(holdings, [], 2, kept=[(0, 0, 1), (1, 2, 1)], behind=[1])
    assert made.commit(None)
    assert free_retired(holdings).freed == 0  # none of it is retired
    assert [name for _, name, _ in holdings.retired.behind] == ["pinned"]
    assert _core.wait_until_freed(LONG_S)
    report = _core.UndoReport()
    holdings.retired.report_behind(report)
    assert [leak.call for leak in report.leaks] == ["hipHostFree"]
    assert (holdings.retired.behind, holdings.retired.contents()) == ([], [])
    sim.runtime.arm_faults("")
    assert close(holdings).leaks == []
    assert kinds(sim) == ["buffer"]
    sim.free_everything()


def test_a_change_that_is_rolled_back_frees_none_of_it(sim: Simulator) -> None:
    holdings = holding(sim.runtime, [row.pinned(0)])
    before = sim.alive()
    made = change(holdings, [], 0, behind=[0])
    made.roll_back()
    free_retired(holdings)
    assert (holdings.retired.behind, sim.alive()) == ([], before)
    close(holdings)


@pytest.mark.parametrize(
    "more",
    [
        {"behind": [7]},
        {"behind": [1]},  # no pinned buffer
        {"behind": [0, 0]},
        {"behind": [0], "kept": [(0, 0, 1)]},  # it stays
        {"spared": [7]},
        {"spared": [0]},  # no allocation
        {"spared": [1], "kept": [(0, 1, 1)]},
    ],
)
def test_wrong_slots_are_refused(more: dict[str, Any], sim: Simulator) -> None:
    holdings = holding(sim.runtime, [row.pinned(0), row.memory(1)])
    with pytest.raises(IndexError, match=r"freed behind the change|to be spare"):
        _core.Change(holdings, _core.Rows([]), 1, **more)
    assert not holdings.changing
    close(holdings)


def test_spare_memory_is_taken_by_an_allocation_like_it(sim: Simulator) -> None:
    holdings = holding(sim.runtime, [row.memory(0, "first")])
    handle = {key for key in sim.alive() if key[0] == "allocation"}
    assert change(holdings, [], 0, spared=[0]).commit(None)
    assert free_retired(holdings).freed == 0
    assert (holdings.spare_bytes, sim.alive()) == (SIZE, handle)
    larger = change(holdings, [row.memory(0, "larger", size=2 * SIZE)], 1)
    assert larger.commit(None) and holdings.spare_bytes == SIZE
    other = change(holdings, [row.memory(1, "other", device=1)], 2, same_slots=1)
    assert other.commit(None) and holdings.spare_bytes == SIZE
    sim.runtime.arm_faults("hipMemCreate@1=hipErrorOutOfMemory")
    like = change(holdings, [row.memory(2, "like")], 3, same_slots=2)
    sim.runtime.arm_faults("")
    assert like.commit(None) and holdings.spare_bytes == 0
    assert handle <= sim.alive()
    close(holdings)
    assert sim.alive() == set()


def test_spare_memory_that_a_rolled_back_change_took_is_freed(sim: Simulator) -> None:
    holdings = holding(sim.runtime, [row.memory(0)])
    assert change(holdings, [], 0, spared=[0]).commit(None)
    change(holdings, [row.memory(0)], 1).roll_back()
    free_retired(holdings)
    assert (holdings.spare_bytes, sim.alive()) == (0, set())
    close(holdings)


@pytest.mark.parametrize("how", ["change", "close", "drop"])
def test_spare_memory_is_freed_by(how: str, sim: Simulator) -> None:
    holdings = holding(sim.runtime, [row.memory(0, "spare")])
    assert change(holdings, [], 0, spared=[0]).commit(None)
    sim.runtime.arm_faults("hipMemRelease@1=hipErrorUnknown")
    if how == "change":
        made = change(holdings, [], 0, frees_spares=True)
        assert made.commit(None)
        names = [leak.name for leak in free_retired(holdings).leaks]
    elif how == "close":
        names = [leak.name for leak in close(holdings).leaks]
    else:
        del holdings
        names = ["spare"] * any("'spare'" in line for line in _core.take_leaks())
    sim.runtime.arm_faults("")
    assert names == ["spare"]
    sim.free_everything()
