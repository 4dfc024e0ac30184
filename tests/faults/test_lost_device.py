"""A device that is lost, and one that never becomes idle: one report, not one for each object."""

from __future__ import annotations

import pytest

import hipplan
from hipplan.errors import ApplyError, LeakError
from hipplan.layout.undo import STICKY
from tests.conftest import ROOT, Simulator, keys_of

QUICKSTART = ROOT / "plans" / "quickstart.yaml"


@pytest.mark.parametrize("code", sorted(STICKY))
def test_a_device_lost_while_a_layout_is_open_is_one_report(code: str, sim: Simulator) -> None:
    layout = hipplan.apply(QUICKSTART, runtime="sim")
    sim.runtime.arm_faults(f"*@1+={code}")
    with pytest.raises(LeakError) as caught:
        layout.close()
    sim.runtime.arm_faults("")
    text = str(caught.value)

    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == ["HP410"]
    assert "device 'gpu.0' and device 'gpu.1' are lost, and 13 objects with them" in text
    assert f"-> {code} (" in text
    for name in caught.value.leaks:
        assert name in text
    assert keys_of(caught.value.undone.failures) == sim.alive()
    assert layout.closed
    sim.free_everything()


def test_a_device_lost_in_the_middle_of_apply_is_one_report_beside_the_first_error(sim: Simulator) -> None:
    sim.runtime.arm_faults("hipMemMap@1=hipErrorOutOfMemory; hipMemRelease@1+=hipErrorLaunchFailure")
    with pytest.raises(ApplyError) as caught:
        hipplan.apply(QUICKSTART, runtime="sim")
    sim.runtime.arm_faults("")
    codes = [diagnostic.code for diagnostic in caught.value.diagnostics]

    assert codes == ["HP401", "HP410"]
    assert caught.value.exit_code == 5
    sim.free_everything()
    from hipplan import _core

    _core.take_leaks()
