"""Changes to what is in use, which an undo takes back: access, advice, and mappings that are taken out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hipplan import _core
from hipplan.profiles import load_machine, sim_profile
from tests.conftest import Simulator

MIB = 2**20
READ, READ_WRITE, NONE = 1, 3, 0


def rights(device: int, flags: int) -> list[tuple[int, int, int]]:
    return [(1, device, flags)]


class Mapped:
    """One allocation at one place, with rights for device 0."""

    def __init__(self, sim: Simulator) -> None:
        self.sim = sim
        self.journal = journal = _core.Journal(sim.runtime, [0, 1])
        self.memory = journal.create_allocation("memory", 2 * MIB, _core.AllocationProperties(0))
        self.range = journal.reserve("range", 4 * MIB, 0, 0)
        self.mapping = journal.map("mapping", self.range, 2 * MIB, self.memory, 2 * MIB)
        journal.set_access(self.mapping, rights(0, READ_WRITE))
        self.address = journal.address(self.mapping)
        sim.runtime.fill(self.address, 7, 2 * MIB)
        self.mark = journal.next()

    def take_out(self) -> None:
        self.journal.take_out(self.mapping, self.range, self.memory, rights(0, READ_WRITE))

    def is_as_before(self) -> bool:
        assert self.journal.address(self.mapping) == self.address
        assert self.sim.runtime.access(0, self.address) == READ_WRITE
        return self.sim.runtime.read(self.address, 2 * MIB) == b"\7" * 2 * MIB


@pytest.fixture
def mapped(sim: Simulator) -> Iterator[Mapped]:
    made = Mapped(sim)
    yield made
    sim.runtime.arm_faults("")
    if hasattr(made, "journal"):
        _core.Undoing(made.journal).run()


def test_access_is_put_back(mapped: Mapped) -> None:
    mapped.journal.change_access(mapped.mapping, rights(0, READ), rights(0, READ_WRITE))
    assert mapped.sim.runtime.access(0, mapped.address) == READ
    report = _core.Undoing(mapped.journal, mapped.mark).run()

    assert (report.undone, report.restored, report.leaks) == (0, 1, [])
    assert mapped.is_as_before()


def test_access_that_was_refused_to_one_device_is_put_back_for_those_before_it(sim: Simulator) -> None:
    """HIP gives one device after another its right, and keeps what it gave before the one it refuses."""
    usual = sim_profile(load_machine("sim-2"))
    sim.runtime.configure("device.0.name=a\ndevice.1.name=b\n")  # no link between the two
    try:
        mapped = Mapped(sim)
        with pytest.raises(_core.HipError):
            mapped.journal.change_access(mapped.mapping, [(1, 0, READ), (1, 1, READ)], rights(0, READ_WRITE))
        assert sim.runtime.access(0, mapped.address) == READ
        assert _core.Undoing(mapped.journal, mapped.mark).run().restored == 1
        assert mapped.is_as_before()
        _core.Undoing(mapped.journal).run()
    finally:
        sim.runtime.configure(usual)


def test_taking_out_that_fails_is_no_entry(mapped: Mapped) -> None:
    mapped.sim.runtime.arm_faults("hipMemUnmap@1=hipErrorUnknown")
    with pytest.raises(_core.HipError):
        mapped.take_out()

    assert mapped.journal.next() == mapped.mark
    assert mapped.is_as_before()


def test_advice_is_put_back(sim: Simulator) -> None:
    journal = _core.Journal(sim.runtime, [0])
    buffer = journal.create_managed_buffer("managed", 0, MIB, 1)
    address = journal.address(buffer)
    mark = journal.next()
    journal.change_advice(buffer, 0, MIB, (1, 0), (2, 0))
    assert sim.runtime.range_attribute(address, MIB, 1) == 1
    _core.Undoing(journal, mark).run()

    assert sim.runtime.range_attribute(address, MIB, 1) == 0
    _core.Undoing(journal).run()


def test_a_mapping_that_was_taken_out_is_mapped_back_with_its_bytes(mapped: Mapped) -> None:
    mapped.take_out()
    with pytest.raises(_core.HipError):
        mapped.sim.runtime.access(0, mapped.address)
    other = mapped.journal.create_allocation("other", 2 * MIB, _core.AllocationProperties(0))
    mapped.journal.map("mapping", mapped.range, 2 * MIB, other, 2 * MIB)
    report = _core.Undoing(mapped.journal, mapped.mark).run()

    assert (report.undone, report.restored, report.leaks) == (2, 1, [])
    assert mapped.is_as_before()


def test_a_mapping_that_cannot_be_mapped_back_is_reported_by_name(mapped: Mapped) -> None:
    mapped.take_out()
    mapped.sim.runtime.arm_faults("hipMemMap@1=hipErrorOutOfMemory")
    report = _core.Undoing(mapped.journal, mapped.mark).run()

    assert [(leak.name, leak.call) for leak in report.leaks] == [("mapping", "hipMemMap")]
    assert "to be mapped back" in report.leaks[0].identity
    assert _core.Undoing(mapped.journal).run().undone == 2  # the range and the memory are given back all the same


def test_changes_that_are_kept_are_not_taken_back(mapped: Mapped) -> None:
    mapped.take_out()
    other = mapped.journal.create_allocation("other", 2 * MIB, _core.AllocationProperties(0))
    again = mapped.journal.map("mapping", mapped.range, 2 * MIB, other, 2 * MIB)
    mapped.journal.set_access(again, rights(0, READ_WRITE))
    mapped.journal.keep_changes()

    assert len(mapped.journal) == 4  # without the mapping that was taken out
    assert _core.Undoing.only(mapped.journal, [mapped.memory]).run().undone == 1
    assert _core.Undoing(mapped.journal).run().undone == 3


def test_a_journal_that_is_dropped_in_the_middle_of_changes_gives_everything_back(mapped: Mapped) -> None:
    mapped.take_out()
    del mapped.journal


def test_a_dropped_journal_waits_for_its_devices(mapped: Mapped, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    mapped.sim.runtime.trace_to(str(trace))
    del mapped.journal
    mapped.sim.runtime.trace_to("")
    calls = [json.loads(line)["call"] for line in trace.read_text().splitlines()]

    assert calls.count("hipDeviceSynchronize") == 2
    assert calls.index("hipMemUnmap") > max(at for at, call in enumerate(calls) if call == "hipDeviceSynchronize")


def test_contents_name_what_is_owned(mapped: Mapped) -> None:
    assert [name for _, name, _ in mapped.journal.contents()] == ["memory", "range", "mapping"]
