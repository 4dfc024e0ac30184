"""Alterations of what stays, which a roll back takes back: access, advice, and mappings unmapped for a swap."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hipplan import _core
from tests.conftest import Simulator
from tests.cpp import some_rows as row
from tests.cpp.some_rows import (
    MAPPED,
    MIB,
    NONE,
    READ,
    READ_WRITE,
    SIZE,
    advance,
    close,
    free_retired,
    holding,
    snapshot_of,
)

READ_ONLY = ((0, "r"),)
TO_SWAP = {"extra_slots": 3, "same_slots": 3, "kept": [(3, 2, 1), (4, 1, 1), (5, 0, 1)]}
"""Extra slots for the old mapping, range and memory of MAPPED."""
PREFERRED = "preferred_location"
"""The attribute that a device is preferred for a managed range."""


class Mapped:
    """Holdings of one allocation at one place, with rights for device 0, and a change of it."""

    def __init__(self, sim: Simulator) -> None:
        self.sim = sim
        self.holdings = holding(sim.runtime, MAPPED)
        self.address = snapshot_of(self.holdings).address(2)
        sim.fill(self.address, 7, SIZE)
        self.alive = sim.alive()
        self.change: _core.Change | None = None

    def begin(self, *rows: row.Row, slots: int = 3, **more: Any) -> _core.Change:
        self.change = _core.Change(self.holdings, _core.Rows(rows), slots=slots, **{"same_slots": 3, **more})
        advance(self.change, len(rows))
        return self.change

    def unmap(self, *more: row.Row) -> _core.Change:
        return self.begin(row.unmap(3, 5), *more, **TO_SWAP)

    def swap(self, *more: row.Row) -> _core.Change:
        """Other memory at the same place, in the new snapshot's slots 0 and 2."""
        rows = [row.unmap(3, 5), row.memory(0, "other"), row.mapped(2, 1, 0), row.rights(2), *more]
        return self.begin(*rows, extra_slots=3, same_slots=0, kept=[(1, 1, 1), (3, 2, 1), (4, 1, 1), (5, 0, 1)])

    def roll_back(self) -> _core.UndoReport:
        assert self.change is not None
        self.change.roll_back()
        return free_retired(self.holdings)

    def is_as_before(self) -> bool:
        assert self.sim.alive() == self.alive
        assert snapshot_of(self.holdings).address(2) == self.address
        assert self.sim.runtime.access(0, self.address) == READ_WRITE
        return self.sim.read(self.address, SIZE) == b"\7" * SIZE


@pytest.fixture
def mapped(sim: Simulator) -> Iterator[Mapped]:
    made = Mapped(sim)
    yield made
    sim.runtime.arm_faults("")
    made.change = None
    if hasattr(made, "holdings"):
        close(made.holdings)


def test_access_is_restored(mapped: Mapped) -> None:
    mapped.begin(row.rights(2, READ_ONLY, row.RW))
    assert mapped.sim.runtime.access(0, mapped.address) == READ
    report = mapped.roll_back()

    assert (report.freed, report.restored, report.leaks) == (0, 1, [])
    assert mapped.is_as_before()
    assert not mapped.holdings.damaged


def test_access_that_was_altered_twice_is_restored_to_the_first(mapped: Mapped) -> None:
    mapped.begin(row.rights(2, READ_ONLY, row.RW), row.rights(2, ((0, "none"),), READ_ONLY))
    assert mapped.sim.runtime.access(0, mapped.address) == NONE

    assert mapped.roll_back().restored == 2
    assert mapped.is_as_before()


def test_refused_access_is_unchanged(mapped: Mapped) -> None:
    mapped.sim.runtime.arm_faults("hipMemSetAccess@1=999")
    with pytest.raises(_core.HipError):
        mapped.begin(row.rights(2, READ_ONLY, row.RW))

    assert (mapped.roll_back().restored, mapped.is_as_before()) == (0, True)


def test_access_that_was_refused_to_one_device_is_restored_for_those_before_it(sim: Simulator) -> None:
    """HIP gives one device after another its right, and keeps what it gave before the one it refuses."""
    sim.runtime.configure("device.0.name=a\ndevice.1.name=b\n")  # no link between the two
    mapped = Mapped(sim)
    with pytest.raises(_core.HipError):
        mapped.begin(row.rights(2, ((0, "r"), (1, "r")), row.RW))
    assert sim.runtime.access(0, mapped.address) == READ
    assert mapped.roll_back().restored == 1
    assert mapped.is_as_before()
    close(mapped.holdings)


def test_access_that_was_altered_stays_so_after_a_commit(mapped: Mapped) -> None:
    change = mapped.begin(row.rights(2, READ_ONLY, row.RW))
    change.commit(None)

    assert not mapped.holdings.retired.any
    assert mapped.sim.runtime.access(0, mapped.address) == READ


@pytest.mark.parametrize("fails", [False, True])
def test_advice_is_restored(sim: Simulator, fails: bool) -> None:
    holdings = holding(sim.runtime, [row.managed(0)])
    address = snapshot_of(holdings).address(0)
    rows = _core.Rows(
        [row.advise(0, (PREFERRED, 1), (f"unset_{PREFERRED}", 1)), row.advise(0, (PREFERRED, 0), (PREFERRED, 1))]
    )
    change = _core.Change(holdings, rows, slots=1, same_slots=1)
    sim.runtime.arm_faults("hipMemAdvise@2=999" if fails else "")
    try:
        advance(change, 2)
    except _core.HipError:
        assert fails
    assert sim.runtime.range_attribute(address, MIB, PREFERRED) == (1 if fails else 0)
    change.roll_back()

    assert free_retired(holdings).restored == (1 if fails else 2)
    assert sim.runtime.range_attribute(address, MIB, PREFERRED) == -2  # none is preferred
    close(holdings)


def test_a_mapping_that_was_unmapped_is_mapped_back_with_its_bytes(mapped: Mapped) -> None:
    change = mapped.unmap()
    assert 3 not in snapshot_of(change)
    with pytest.raises(_core.HipError):
        mapped.sim.runtime.access(0, mapped.address)
    report = mapped.roll_back()

    assert (report.freed, report.restored, report.leaks) == (0, 1, [])
    assert mapped.is_as_before()


def test_a_mapping_that_took_its_place_goes_before_it_is_mapped_back(mapped: Mapped) -> None:
    mapped.swap()
    report = mapped.roll_back()

    assert (report.freed, report.restored, report.leaks) == (2, 1, [])
    assert mapped.is_as_before()


def test_a_failed_unmap_needs_no_undo(mapped: Mapped) -> None:
    mapped.sim.runtime.arm_faults("hipMemUnmap@1=hipErrorUnknown")
    with pytest.raises(_core.HipError):
        mapped.unmap()

    assert (mapped.roll_back().restored, mapped.is_as_before()) == (0, True)


def test_a_mapping_cannot_be_unmapped_twice(mapped: Mapped) -> None:
    with pytest.raises(IndexError, match="not mapped"):
        mapped.unmap(row.unmap(3, 5))

    assert (mapped.roll_back().restored, mapped.is_as_before()) == (1, True)


@pytest.mark.parametrize(("call", "name"), [("hipMemMap@2", "hipMemMap"), ("hipMemSetAccess@2", "hipMemSetAccess")])
def test_what_cannot_be_restored_is_reported_by_name_and_marks_the_holdings(
    mapped: Mapped, call: str, name: str
) -> None:
    mapped.sim.runtime.arm_faults(f"{call}=hipErrorOutOfMemory")
    mapped.swap()
    report = mapped.roll_back()

    (leak,) = report.leaks
    assert (leak.name, leak.call, leak.is_change, leak.error) == ("mapping", name, True, "hipErrorOutOfMemory")
    assert "to be mapped back" in leak.identity
    assert (report.freed, report.restored) == (2, 0)
    assert (mapped.holdings.damaged, 2 in snapshot_of(mapped.holdings)) == (True, name != "hipMemMap")
    assert close(mapped.holdings).freed == (2 if name == "hipMemMap" else 3)  # the rest goes all the same


def test_access_that_cannot_be_restored_is_reported(mapped: Mapped) -> None:
    mapped.sim.runtime.arm_faults("hipMemSetAccess@2=999")
    mapped.begin(row.rights(2, READ_ONLY, row.RW))
    (leak,) = mapped.roll_back().leaks

    assert (leak.name, leak.is_change, mapped.holdings.damaged) == ("mapping", True, True)
    assert leak.identity.startswith("the access of mapping 'mapping'")


def test_what_a_swap_has_parked_makes_no_call_when_it_goes(mapped: Mapped) -> None:
    """The address is another's by then."""
    change = mapped.swap()
    change.commit(None)
    assert [name for _, name, _ in mapped.holdings.retired.contents()] == ["memory"]
    report = free_retired(mapped.holdings)

    assert (report.freed, report.restored, report.leaks) == (1, 0, [])
    assert snapshot_of(mapped.holdings).address(2) == mapped.address
    assert mapped.sim.runtime.access(0, mapped.address) == READ_WRITE
    assert close(mapped.holdings).freed == 3


@pytest.mark.parametrize("what", ["unmapped", "swapped"])
def test_a_change_that_is_dropped_in_the_middle_puts_everything_back(mapped: Mapped, what: str) -> None:
    _ = mapped.unmap() if what == "unmapped" else mapped.swap()
    del _
    mapped.change = None
    gc.collect()

    assert mapped.is_as_before()


def test_all_that_is_dropped_in_the_middle_of_a_change_is_freed(mapped: Mapped) -> None:
    mapped.swap()
    del mapped.holdings
    assert mapped.sim.alive() != mapped.alive
    mapped.change = None
    gc.collect()

    assert mapped.sim.alive() == set()


def test_dropped_holdings_wait_for_their_devices(mapped: Mapped, tmp_path: Path) -> None:
    mapped.holdings.retired.set_devices([("a", 0), ("b", 1)])
    trace = tmp_path / "trace"
    mapped.sim.runtime.trace_to(str(trace))
    del mapped.holdings
    gc.collect()
    mapped.sim.runtime.trace_to("")
    calls = [json.loads(line)["call"] for line in trace.read_text().splitlines()]

    assert calls.count("hipDeviceSynchronize") == 2
    assert calls.index("hipMemUnmap") > max(at for at, call in enumerate(calls) if call == "hipDeviceSynchronize")
