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
