"""AML's kinds of memory as plans, and AML's error cases with HIP's names and a sentence (docs/aml.md)."""

from __future__ import annotations

import ctypes
import re
from typing import Any

import pytest

import hipplan
from hipplan.errors import ApplyError, LeakError, MachineError, PlanError, RuntimeUnavailable
from tests.conftest import ROOT, Simulator

AREAS = ROOT / "plans" / "aml-areas.yaml"
CURRENT = ROOT / "plans" / "aml-current-device.yaml"


def one(**buffer: Any) -> dict[str, Any]:
    return {"hipplan": 1, "buffers": {"area": {"kind": "device", "size": "1MiB", **buffer}}}


def test_private_memory_is_on_its_own_device_and_no_peer_reaches_it(sim: Simulator) -> None:
    with hipplan.apply(AREAS, runtime="sim") as layout:
        for number in (0, 1):
            address = layout[f"private_{number}"].address
            assert layout.runtime.pointer_attributes(address).device == number
        assert sim.ledger()["peers"] == []
        visible = layout["visible_to_all"].address
        assert [layout.runtime.access(device, visible) for device in (0, 1)] == [3, 3]


def test_mapped_host_memory_reports_the_devices_own_pointer(sim: Simulator) -> None:
    from hipplan.show.render_json import layout_json

    hip = ctypes.CDLL(sim.runtime.path)
    with hipplan.apply(AREAS, runtime="sim") as layout:
        collected = {resource["name"]: resource.get("device_pointer") for resource in layout_json(layout)["resources"]}
        for name in ("host_mapped", "existing_mapped"):
            pointer = ctypes.c_void_p()
            assert hip.hipHostGetDevicePointer(ctypes.byref(pointer), ctypes.c_void_p(layout[name].address), 0) == 0
            assert layout[name].device_pointer == pointer.value
            assert collected[name] == f"{pointer.value:#x}"
        assert collected["private_0"] is None
        assert layout["private_0"].device_pointer == layout["private_0"].address


def test_the_current_device_is_the_default_where_a_plan_asks_for_it(sim: Simulator) -> None:
    hip = ctypes.CDLL(sim.runtime.path)
    assert hip.hipSetDevice(1) == 0
    try:
        with hipplan.apply(CURRENT, runtime="sim") as layout:
            assert layout.runtime.pointer_attributes(layout["area"].address).device == 1
            assert layout.program.devices == {"here": 1}
    finally:
        assert hip.hipSetDevice(0) == 0


def test_an_update_means_the_device_that_was_current_when_the_plan_was_applied(sim: Simulator) -> None:
    hip = ctypes.CDLL(sim.runtime.path)
    assert hip.hipSetDevice(1) == 0
    try:
        layout = hipplan.apply(CURRENT, runtime="sim")
        assert layout.update(CURRENT).empty
    finally:
        assert hip.hipSetDevice(0) == 0
    with layout:
        assert layout.update(CURRENT).empty  # a thread's current device comes and goes
        assert layout.program.devices == {"here": 1}


def test_memory_of_the_caller_is_mapped(sim: Simulator, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "aml.md").read_text(), re.S)
    exec(compile(code, "aml.md", "exec"), {})

    assert re.fullmatch(r"0x[0-9a-f]+ 0x[0-9a-f]+\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        ("hipErrorInsufficientDriver", 35, "the kernel's driver is too old"),
        ("hipErrorNoDevice", 100, "no device is visible"),
        ("hipErrorInvalidValue", 1, "this runtime refuses the arguments"),
        ("hipErrorContextAlreadyInUse", 216, "another process has exclusive use of the device"),
        ("hipErrorOutOfMemory", 2, "free memory on the device"),
        ("hipErrorNotInitialized", 3, "the runtime did not start"),
        ("hipErrorInvalidDevice", 101, "check `hipplan machine`"),
    ],
)
def test_a_failed_allocation_says_hips_name_and_what_to_do(
    error: str, code: int, sentence: str, sim: Simulator
) -> None:
    sim.runtime.arm_faults(f"hipMalloc@1={error}")
    with pytest.raises(ApplyError) as caught:
        hipplan.apply(one(), runtime="sim")
    (diagnostic,) = caught.value.diagnostics

    assert diagnostic.code == "HP401"
    assert diagnostic.hint.startswith(sentence)
    assert f"{error} ({code})" in str(diagnostic)
    assert caught.value.exit_code == 4


def test_the_device_cannot_be_set_back_after_the_allocation(sim: Simulator) -> None:
    """AML returns the memory and an error; hipplan frees it."""
    calls = 0
    for number in range(1, 40):
        sim.runtime.arm_faults(f"hipSetDevice@{number}=hipErrorUnknown")
        try:
            hipplan.apply(one(device="gpu.1"), runtime="sim").close()
        except (ApplyError, LeakError, RuntimeUnavailable) as error:
            calls += 1
            assert "hipErrorUnknown (999)" in str(error)
        sim.runtime.arm_faults("")
        assert sim.alive() == set()

    assert calls > 0


def test_no_such_device_and_too_much_memory_are_reported_before_any_call(sim: Simulator) -> None:
    for plan, code in ((one(device="gpu.2"), "HP310"), (one(size="999GiB"), "HP301")):
        with pytest.raises(MachineError) as caught:
            hipplan.apply(plan, runtime="sim")
        assert [diagnostic.code for diagnostic in caught.value.diagnostics] == [code]
        assert caught.value.exit_code == 3


def test_devices_that_cannot_be_counted(sim: Simulator) -> None:
    sim.runtime.arm_faults("hipGetDeviceCount@1=hipErrorInsufficientDriver")
    with pytest.raises(RuntimeUnavailable, match="hipErrorInsufficientDriver") as caught:
        hipplan.apply(one(), runtime="sim")

    assert caught.value.diagnostics[0].code == "HP407"


def test_arguments_that_do_not_go_together_and_memory_that_is_missing(sim: Simulator) -> None:
    bound = {"hipplan": 1, "buffers": {"area": {"kind": "registered", "bind": "mine"}}}
    with pytest.raises(PlanError, match="HP107"):
        hipplan.load(one(kind="pinned", uncached=True, coherent=True))
    with pytest.raises(PlanError, match="HP107"):
        hipplan.load(one(kind="registered"))
    with pytest.raises(ApplyError, match="HP405"):
        hipplan.apply(bound, runtime="sim")


def test_memory_that_cannot_be_freed_is_a_leak_by_name(sim: Simulator) -> None:
    layout = hipplan.apply(one(), runtime="sim")
    sim.runtime.arm_faults("hipFree@1=hipErrorInvalidValue")
    with pytest.raises(LeakError, match="HP403") as caught:
        layout.close()
    sim.free_everything()

    assert caught.value.leaks == ("area",)
    assert "hipErrorInvalidValue (1)" in str(caught.value)
