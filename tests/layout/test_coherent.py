"""Memory of a device that others see while a kernel runs: buffers of kind coherent."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import hipplan
from hipplan.errors import ApplyError, MachineError, PlanError
from hipplan.machines.profiles import load_machine
from hipplan.program.held import holdable
from tests.conftest import ROOT, Simulator

PLAN = ROOT / "plans" / "coherent-flags.yaml"


def one(**buffer: Any) -> dict[str, Any]:
    return {"hipplan": 1, "buffers": {"flags": {"kind": "coherent", "size": "4KiB", **buffer}}}


def test_it_is_memory_of_its_device_and_peers_reach_it(sim: Simulator) -> None:
    with hipplan.apply(PLAN, runtime="sim") as layout:
        for number in (0, 1):
            piece = layout[f"flags.{number}"]
            have = layout.runtime.pointer_attributes(piece.address)
            assert (piece.kind, piece.device, have.kind, have.device) == ("coherent", f"gpu.{number}", "device", number)
        assert [check.what for check in layout.checks if check.name == "queue"] == ["kind", "device", "range"]
        assert layout.checks.mismatches() == []
        assert layout.program.bytes_by_device() == {"gpu.0": 4096 + 65536 + 2**20, "gpu.1": 4096}
        assert layout.program.warnings == ()


@pytest.mark.parametrize(("uncached", "flag"), [(False, 1), (True, 3)])
def test_hip_gets_the_flag_of_the_plan(sim: Simulator, uncached: bool, flag: int) -> None:
    with hipplan.apply(one(uncached=uncached), runtime="sim") as layout:
        assert layout.runtime.pointer_attributes(layout["flags"].address).flags == flag


def test_it_holds_bytes_like_other_buffers(sim: Simulator) -> None:
    with hipplan.apply(one(), runtime="sim") as layout:
        layout.write("flags", numpy.arange(1024, dtype="u4"))
        assert layout.read("flags").view("u4").tolist() == [*range(1024)]


def test_no_memory_for_it_is_an_error_with_its_name_and_flag(sim: Simulator) -> None:
    sim.runtime.arm_faults("hipExtMallocWithFlags@1=2")
    with pytest.raises(ApplyError, match=r"coherent buffer 'flags' of 4096 bytes") as caught:
        hipplan.apply(one(uncached=True), runtime="sim")

    assert "flags=3" in str(caught.value)


def test_cuda_has_no_uncached_memory() -> None:
    with pytest.raises(MachineError, match="HP309") as caught:
        hipplan.compile(hipplan.load(one(uncached=True)), load_machine("h200-1"))

    assert "gpu.0 has no uncached memory" in str(caught.value)
    assert hipplan.compile(hipplan.load(one()), load_machine("h200-1")).steps[0].describe() == "4KiB on device 0"


def test_an_update_keeps_it_unless_it_is_another(sim: Simulator) -> None:
    with hipplan.apply(one(), runtime="sim") as layout:
        address = layout["flags"].address
        layout.update(one())
        assert layout["flags"].address == address
        layout.update(one(uncached=True), lose=["flags"])
        assert layout.runtime.pointer_attributes(layout["flags"].address).flags == 3


def test_it_can_neither_sleep_nor_be_held(sim: Simulator) -> None:
    with hipplan.apply(one(), runtime="sim") as layout:
        with pytest.raises(ApplyError, match="memory of hipExtMallocWithFlags is freed only together"):
            layout.sleep("flags")
        with pytest.raises(PlanError, match="a holder cannot hold 'flags'") as caught:
            holdable(layout.program)
    assert "the driver frees coherent memory when its process ends" in str(caught.value)
