"""Programs of live layouts as text, and programs that were read from text, applied."""

from __future__ import annotations

import pytest

import hipplan
from hipplan.errors import PlanError
from hipplan.layout.run import run
from hipplan.machines.profiles import load_machine
from hipplan.program.written import read, write
from tests.conftest import ROOT, Simulator


@pytest.mark.parametrize("release", ["6.4", "7.2.53211"])
def test_programs_of_live_layouts_can_be_written(sim: Simulator, release: str) -> None:
    """Grown past what was reserved, sealed, and in pieces for the driver."""
    memory = {"a": {"size": "4MiB"}, "b": {"size": "2MiB"}}
    mappings = [{"allocation": "a", "at": 0}, {"allocation": "b", "at": "8MiB"}]
    plan = {"hipplan": 1, "allocations": memory, "reservations": {"r": {"size": "10MiB", "mappings": mappings}}}
    machine = load_machine("sim-2").model_copy(update={"hip_version": release})
    program = hipplan.compile(plan, machine)
    with run(program, sim.runtime) as layout:
        layout.grow("r", by="4MiB")
        layout.seal("r")
        grown = layout.program

        assert read(write(grown)) == grown
        assert read(write(grown)).resources == grown.resources


def test_a_program_that_was_read_can_be_applied(sim: Simulator) -> None:
    program = read(write(hipplan.compile(ROOT / "plans" / "contents.yaml", "sim-2")))
    with run(program, sim.runtime) as layout:
        assert layout.verify().mismatches() == []
    assert sim.alive() == set()


def test_a_field_of_a_program_is_read_by_its_name_alone() -> None:
    program = hipplan.compile(ROOT / "plans" / "managed-memory.yaml", "sim-2")
    assert program.reads_advice
    text = write(program)
    assert '"reads_advice": true' in text
    assert read(text) == program
    assert not read(text.replace('"reads_advice": true', '"reads_advice": false')).reads_advice
    with pytest.raises(PlanError, match="HP028"):  # version 1 called it so
        read(text.replace('"reads_advice"', '"ranges_told"'))


def test_programs_whose_chunks_have_moved_can_be_written(sim: Simulator) -> None:
    """Parts of regions in runs, of which some are elsewhere, and some sleep on the host."""
    chunk = 64 << 10
    region = {"devices": ["gpu.*"], "spread": "interleave", "size": 101 * chunk, "chunk": chunk}
    plan = {"hipplan": 1, "devices": {"gpu": {"count": 2}}, "regions": {"cache": region}}
    with run(hipplan.compile(plan, "sim-2"), sim.runtime) as layout:
        for act in (
            lambda: layout.remap("cache", part=(33 * chunk, 72 * chunk), device="gpu.1"),
            lambda: layout.remap("cache", part=(70 * chunk, 72 * chunk), device="gpu.0"),
            lambda: layout.remap("cache", part=(40 * chunk, 100 * chunk), device="host"),
            lambda: layout.sleep("cache", to="mapped"),
            lambda: layout.wake(),
        ):
            act()
            moved = layout.program
            assert read(write(moved)) == moved
            assert read(write(moved)).resources == moved.resources
            assert (dict(read(write(moved)).away), write(read(write(moved)))) == (dict(moved.away), write(moved))
