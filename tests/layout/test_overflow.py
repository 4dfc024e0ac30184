"""A region with `overflow: host` goes on growing there once its device is full."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import hipplan
from hipplan.errors import ApplyError, MachineError, PlanError
from hipplan.layout.layout import Layout
from hipplan.show.render import resources_table
from hipplan.show.render_json import resource_json
from tests.conftest import Simulator
from tests.faults.harness import as_release

MIB = 2**20


def plan(**keys: Any) -> dict[str, Any]:
    region = {"device": "gpu.0", "size": "4MiB", "chunk": "2MiB", "reserve": "64MiB", "overflow": "host", **keys}
    return {"hipplan": 1, "devices": {"gpu": {"count": 2}}, "regions": {"cache": region}}


PLAN = plan()


@contextmanager
def with_free(layout: Layout, free: int, device: int = 0) -> Iterator[None]:
    """While entered, only so many bytes of a device are free."""
    rest = layout.runtime.memory_info(device)[0] - free
    other = {"all": {"kind": "device", "device": f"gpu.{device}", "size": rest}}
    with hipplan.apply({"hipplan": 1, "devices": {"gpu": {"count": 2}}, "buffers": other}, runtime="sim"):
        yield


def test_it_grows_on_its_device_then_on_the_host_then_on_its_device_again(layout: Layout) -> None:
    address = layout["cache"].address
    layout.fill("cache", 3)
    with with_free(layout, 2 * MIB):
        change = layout.grow("cache", by="6MiB")
        assert "grows, 4MiB -> 10MiB" in str(change)
        assert layout.usage().regions[0].chunks == ("gpu.0",) * 3 + ("host",) * 2
        assert layout["cache"].resource.bytes_by_device == (("gpu.0", 6 * MIB), ("host", 4 * MIB))
        layout.grow("cache", by=1)
    layout.grow("cache", by="2MiB")
    usage = layout.usage()
    assert usage.as_dict()["regions"] == [
        {
            "region": "cache",
            "chunks": ("gpu.0",) * 3 + ("host",) * 3 + ("gpu.0",),
            "bytes": {"gpu.0": 8 * MIB, "host": 6 * MIB},
        }
    ]
    assert str(usage).splitlines()[1].split(maxsplit=1) == [
        "cache", "gpu.0 x 3, host x 3, gpu.0 x 1  gpu.0 8MiB, host 6MiB"
    ]  # fmt: skip
    assert layout["cache"].address == address
    layout.fill("cache", 4)
    assert (layout.read("cache") == 4).all() and layout.read("cache").size == 14 * MIB
    assert layout.drift() == []
    layout.remap("cache", device="gpu.0")
    assert layout.usage().regions[0].bytes == {"gpu.0": 14 * MIB}
    layout.shrink("cache", to="4MiB")
    assert layout.drift() == []


def test_a_device_with_less_than_it_says_grows_on_the_host(layout: Layout, sim: Simulator) -> None:
    sim.runtime.arm_faults("hipMemCreate@2=hipErrorOutOfMemory")
    layout.grow("cache", by="4MiB")
    sim.runtime.arm_faults("")
    assert layout.usage().regions[0].chunks == ("gpu.0", "gpu.0", "host", "host")
    assert layout.drift() == []


@pytest.mark.parametrize("call", ["hipMemGetInfo", "hipMemMap", "hipMemSetAccess"])
def test_a_growth_that_fails_changes_nothing(call: str, layout: Layout, sim: Simulator) -> None:
    with with_free(layout, 2 * MIB):
        before = sim.alive()
        sim.runtime.arm_faults(f"{call}@1+=hipErrorUnknown")
        with pytest.raises(ApplyError, match="HP401"):
            layout.grow("cache", by="6MiB")
        sim.runtime.arm_faults("")
        assert sim.alive() == before
        sim.runtime.arm_faults("hipMemCreate@1+=hipErrorOutOfMemory")
        with pytest.raises(ApplyError, match="HP401"):
            layout.grow("cache", by="6MiB")
        sim.runtime.arm_faults("")
        assert sim.alive() == before
        assert layout.usage().regions[0].chunks == ("gpu.0",) * 2


def test_a_pattern_grows_regions_with_and_without_it(sim: Simulator) -> None:
    region = {"device": "gpu.0", "size": "2MiB", "chunk": "2MiB", "reserve": "64MiB"}
    both = {"kv.a": {**region, "overflow": "host"}, "kv.b": region}
    with hipplan.apply({**plan(), "regions": both}, runtime="sim") as layout:
        layout.grow("kv.*", to="4MiB")
        assert layout.program.bytes_by_device()["gpu.0"] == 8 * MIB
        with with_free(layout, 2 * MIB), pytest.raises(ApplyError, match="HP401"):
            layout.grow("kv.*", to="8MiB")  # one of them has nowhere to go
        assert layout["kv.a"].size == layout["kv.b"].size == 4 * MIB


def test_a_region_whose_first_chunk_is_on_the_host_grows_on_its_device(layout: Layout) -> None:
    layout.remap("cache", part="..2MiB", device="host")
    layout.grow("cache", by="2MiB")
    assert layout.usage().regions[0].chunks == ("host", "gpu.0", "gpu.0")
    memory = layout._holding.state.handle_of("cache#2")
    assert layout.runtime.properties_of(memory).location == "device"
    assert layout.drift() == []


def test_it_interleaves_and_overflows_for_the_full_device_alone(sim: Simulator) -> None:
    keys = {"device": None, "devices": ["gpu.*"], "spread": "interleave"}
    region = {key: value for key, value in plan()["regions"]["cache"].items() if key != "device"}
    wide = {**plan(), "regions": {"cache": {**region, **{k: v for k, v in keys.items() if v}}}}
    with hipplan.apply(wide, runtime="sim") as layout, with_free(layout, 2 * MIB, device=1):
        layout.grow("cache", by="8MiB")
        assert layout.usage().regions[0].chunks == ("gpu.0", "gpu.1", "gpu.0", "gpu.1", "gpu.0", "host")
        assert layout.drift() == []


def test_preview_and_the_report_say_so(layout: Layout) -> None:
    assert "(gpu.0: rw, overflow: host)" in f"({layout['cache'].resource.access_text()})"
    program = hipplan.compile(plan(), "sim-2")
    assert "gpu.0: rw, overflow: host" in resources_table(program.resources)
    assert [resource_json(each).get("overflow") for each in program.resources if each.name == "cache"] == ["host"]


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"reserve": None, "chunk": None}, "overflow needs room to grow"),
        ({"device": "host"}, "overflow is for a region on devices"),
        ({"rdma": True}, "overflow and rdma exclude each other"),
        ({"torch": {"tag": "kv"}, "size": 0}, "overflow and torch exclude each other"),
        ({"overflow": "disk"}, "overflow"),
    ],
)
def test_a_plan_that_cannot_be_meant_is_refused(keys: dict[str, Any], why: str) -> None:
    region = {key: value for key, value in {**plan()["regions"]["cache"], **keys}.items() if value is not None}
    with pytest.raises(PlanError, match=why):
        hipplan.load({**plan(), "regions": {"cache": region}})


def test_a_release_without_such_memory_is_refused(sim: Simulator) -> None:
    with as_release(sim, "6.4"), pytest.raises(MachineError, match=r"HP309.*allocations on the host need HIP 7.1"):
        hipplan.apply(plan(), runtime="sim")
    assert "HP261" in [warning.code for warning in hipplan.compile(plan(), "mi300x-8").warnings]
