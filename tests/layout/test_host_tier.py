"""Regions on the host: alone, beside GPUs, and moved there and back at the same addresses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest

import hipplan
from hipplan.errors import ApplyError, LayoutInUse, MachineError, PlanError
from hipplan.layout.layout import Layout
from hipplan.layout.run import run
from hipplan.machines.machine import Machine, NumaNode, sim_profile
from tests.conftest import Simulator
from tests.faults.harness import as_release

MIB = 2**20
RELEASES = ("7.2.53211", "7.15.0")


def plan(**keys: Any) -> dict[str, Any]:
    """A region of four chunks on gpu.0."""
    region = {"device": "gpu.0", "size": "8MiB", "chunk": "2MiB", "reserve": "32MiB", **keys}
    return {"hipplan": 1, "devices": {"gpu": {"count": 2}}, "regions": {"cache": region}}


PLAN = plan()


def mixed(**keys: Any) -> dict[str, Any]:
    """A region with two chunks on gpu.0 and two on the host."""
    region = {"devices": ["gpu.0", "host"], "sizes": ["4MiB", "4MiB"], "chunk": "2MiB", **keys}
    return {"hipplan": 1, "devices": {"gpu": {"count": 2}}, "regions": {"cache": region}}


def places(layout: Layout) -> list[str]:
    """Where the driver has each chunk."""
    mapped = [r.memory for r in layout.program.resources if r.kind == "mapping" and r.inside == "cache"]
    return ["gpu" if memory_is_on_device(layout, memory) else "host" for memory in mapped]


def memory_is_on_device(layout: Layout, memory: str) -> bool:
    return layout.runtime.properties_of(layout._holding.state.handle_of(memory)).location == "device"


def filled(layout: Layout, sim: Simulator) -> bytes:
    content = numpy.random.default_rng(1).bytes(layout["cache"].size)
    sim.write(layout["cache"].address, content)
    return content


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(("home", "back"), [("gpu.0", "gpu.0"), ("gpu.1", "gpu.1"), ("gpu.0", "gpu.1")])
def test_memory_moves_to_the_host_and_back(release: str, home: str, back: str, sim: Simulator) -> None:
    with as_release(sim, release), hipplan.apply(plan(device=home), runtime="sim") as layout:
        content, base = filled(layout, sim), layout["cache"].address
        change = layout.remap("cache", device="host")
        access = f"access ({home}: rw) -> ({home}: rw, host: rw)"
        moved = f"4 of 4 chunks are recreated, {home} -> host, with their bytes"
        assert str(change) == f"-/+ region cache: {moved}, {access}"
        assert places(layout) == ["host"] * 4
        assert layout["cache"].devices == ("host",)
        assert layout.read("cache").tobytes() == content
        assert layout.program.bytes_by_device() == {"gpu.0": 0, "gpu.1": 0}
        assert layout.drift() == []

        layout.remap("cache", device=back)
        assert places(layout) == ["gpu"] * 4
        assert (layout["cache"].address, layout["cache"].devices) == (base, (back,))
        assert layout.read("cache").tobytes() == content
        assert layout.drift() == []
    assert sim.alive() == set()


def test_a_part_moves_and_the_region_grows_on_its_gpu(layout: Layout, sim: Simulator) -> None:
    content = filled(layout, sim)
    layout.remap("cache", part="4MiB..6MiB", device="host")
    assert places(layout) == ["gpu", "gpu", "host", "gpu"]
    assert layout.read("cache").tobytes() == content
    layout.grow("cache", by="2MiB")
    assert places(layout) == ["gpu", "gpu", "host", "gpu", "gpu"]
    assert layout.drift() == []


def test_views_of_the_gpu_stay_and_those_of_the_cpu_refuse_the_move_back(layout: Layout) -> None:
    seen_by_gpu = layout["cache"].__dlpack__(max_version=(1, 0))
    seen_by_cupy = layout["cache"]
    data = seen_by_cupy.__cuda_array_interface__["data"]
    device = layout["cache"].__dlpack_device__()
    layout.remap("cache", device="host")
    assert layout["cache"].__dlpack_device__() == device
    assert layout["cache"].__cuda_array_interface__["data"] == data
    cpu = numpy.from_dlpack(layout["cache"].on("host"))
    cpu[:] = 5
    assert (layout.read("cache") == 5).all()
    with pytest.raises(LayoutInUse, match="'cache'"):
        layout.remap("cache", device="gpu.0")
    assert places(layout) == ["host"] * 4
    del cpu
    layout.remap("cache", device="gpu.0")
    with pytest.raises(BufferError, match="cannot be viewed from 'host'"):
        layout["cache"].on("host")
    with pytest.raises(LayoutInUse, match="'cache'"):
        layout.remap("cache")  # the view would see other memory
    del seen_by_gpu, seen_by_cupy


def test_views_of_the_gpu_stay_where_no_bytes_are_kept(layout: Layout) -> None:
    seen_by_gpu = layout["cache"].__dlpack__(max_version=(1, 0))
    layout.remap("cache", device="host", keep_bytes=False)
    layout.fill("cache", 2)
    layout.remap("cache", device="gpu.0", keep_bytes=False)
    with pytest.raises(LayoutInUse, match="'cache'"):
        layout.remap("cache", keep_bytes=False)
    del seen_by_gpu
    assert layout.drift() == []


def test_a_view_of_a_gpu_that_loses_its_right_refuses_the_move(layout: Layout) -> None:
    layout.remap("cache", device="host")
    view = layout["cache"].__dlpack__(max_version=(1, 0))
    with pytest.raises(LayoutInUse, match="'cache'"):
        layout.remap("cache", device="gpu.1")
    del view


@pytest.mark.parametrize("device", [plan, mixed])
def test_a_release_that_keeps_the_gpus_memory_is_refused(device: Any, sim: Simulator) -> None:
    with (
        as_release(sim, "7.2.53211", "free_memory_with_reservation"),
        hipplan.apply(device(), runtime="sim") as layout,
    ):
        before = sim.alive()
        with pytest.raises(
            ApplyError, match=r"HP440.*'cache' cannot move to the host\n.*only together with its address range"
        ):
            layout.remap("cache", device="host")
        assert sim.alive() == before
        layout.remap("cache", device="gpu.0")  # to new memory of a GPU it moves all the same
        assert layout.drift() == []


@pytest.mark.parametrize(
    ("release", "device", "why"),
    [
        ("6.4.43484", "host", "allocations on the host need HIP 7.1"),
        ("7.2.53211", "host.0", r"allocations on a NUMA node need HIP 7.15 \(ROCm 10.0\)"),
    ],
)
def test_a_release_without_such_memory_is_refused(release: str, device: str, why: str, sim: Simulator) -> None:
    with as_release(sim, release), hipplan.apply(plan(), runtime="sim") as layout:
        before = sim.alive()
        with pytest.raises(MachineError, match=rf"HP309.*{why}"):
            layout.remap("cache", device=device)
        assert sim.alive() == before
    with as_release(sim, release), pytest.raises(MachineError, match=rf"HP309.*{why}"):
        where = {"host": {"numa": 0}} if device == "host.0" else device
        hipplan.apply(plan(device=where), runtime="sim")


def with_host_memory(size: int) -> Machine:
    return hipplan.machine("sim-2").model_copy(update={"host_memory": size})


def test_more_host_memory_than_there_is_is_refused(sim: Simulator) -> None:
    with run(hipplan.compile(plan(), with_host_memory(7 * MIB)), sim.runtime) as layout:
        before = sim.alive()
        with pytest.raises(MachineError, match="HP303"):
            layout.remap("cache", device="host")
        assert sim.alive() == before
        layout.remap("cache", part="..2MiB", device="host")
        assert places(layout) == ["host", "gpu", "gpu", "gpu"]
    with pytest.raises(MachineError, match="HP303"):
        hipplan.compile(plan(device="host"), with_host_memory(7 * MIB))


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("host.x", "there is no device 'host.x'"),
        ("hosst", "there is no device 'hosst'"),
        ("host.77", "there is no NUMA node 77"),
    ],
)
def test_a_place_that_does_not_exist_is_refused(device: str, message: str, sim: Simulator) -> None:
    newest = with_host_memory(64 * MIB).model_copy(update={"hip_version": "7.15.0", "numa_nodes": [NumaNode(node=0)]})
    with as_release(sim, "7.15.0"), run(hipplan.compile(plan(), newest), sim.runtime) as layout:
        with pytest.raises(ApplyError, match=rf"HP420.*{message}"):
            layout.remap("cache", device=device)
        assert places(layout) == ["gpu"] * 4


def test_near_is_the_node_of_the_gpu() -> None:
    machine = hipplan.machine("sim-2")
    devices = [known.model_copy(update={"numa_node": 3}) for known in machine.devices]
    known = machine.model_copy(update={"devices": devices, "hip_version": "7.15.0"})
    program = hipplan.compile(plan(device={"host": {"numa": "near"}}), known)
    assert program.regions["cache"].region.devices == ("host.3",)
    unknown = hipplan.compile(plan(device={"host": {"numa": "near"}}), machine)
    assert unknown.regions["cache"].region.devices == ("host",)
    assert [warning.code for warning in unknown.warnings if warning.code == "HP256"] == ["HP256"]


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (mixed(rdma=True), "HP107"),
        (mixed(sizes=["4MiB"]), "HP107"),
        (mixed(size="4MiB"), "HP107"),
        (mixed(spread="interleave"), "HP107"),
        (plan(sizes=["4MiB"], size="auto"), "HP107"),
        (plan(device={"host": {"numa": -1}}), "HP105"),
        (plan(device="host.x"), "HP105"),
        (plan(device="host", size="80%"), "HP201"),
        ({**plan(), "devices": {"host.1": {"ordinal": 0}}}, "HP"),
    ],
)
def test_plans_that_host_memory_cannot_meet(wrong: dict[str, Any], code: str) -> None:
    with pytest.raises(PlanError) as error:
        hipplan.load(wrong)
    assert [diagnostic.code for diagnostic in error.value.diagnostics if diagnostic.code.startswith(code)]


def test_a_mixed_region_is_reported_and_the_cpu_sees_its_tail(sim: Simulator) -> None:
    with hipplan.apply(mixed(), runtime="sim") as layout:
        assert places(layout) == ["gpu", "gpu", "host", "host"]
        assert layout["cache"].devices == ("gpu.0", "host")
        assert layout["cache"].__dlpack_device__()[1] == 0
        tail = numpy.from_dlpack(layout["cache[2]"].on("host"))
        tail[:] = 9
        assert (layout.read("cache")[4 * MIB : 6 * MIB] == 9).all()
        del tail
        with pytest.raises(BufferError, match="cannot be viewed from 'host'"):
            layout["cache"].on("host")
        assert layout.drift() == []
    assert sim.alive() == set()


def test_memory_on_the_host_sleeps_once_all_of_it_is_on_the_gpu(sim: Simulator) -> None:
    with hipplan.apply(mixed(), runtime="sim") as layout:
        content = filled(layout, sim)
        with pytest.raises(ApplyError, match=r"HP440.*'cache' cannot sleep\n.*is host memory\n.*remap\(\) moves it"):
            layout.sleep("cache")
        layout.remap("cache", device="gpu.0")
        layout.sleep("cache")
        layout.wake()
        assert layout.read("cache").tobytes() == content


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("device", ["gpu.0", "gpu.1"])
def test_bytes_move_into_and_out_of_memory_on_the_host(
    release: str, device: str, sim: Simulator, tmp_path: Path
) -> None:
    other = {"device": "gpu.0", "size": "8MiB", "chunk": "2MiB", "access": {"gpu.*": "rw"}}
    both = plan(device=device)
    both["regions"]["other"] = other
    both["streams"] = {"work": {"device": device}}
    with as_release(sim, release), hipplan.apply(both, runtime="sim") as layout:
        layout.remap("cache", device="host")
        layout.fill("cache", 3)
        layout.copy("cache", "other")
        assert (layout.read("other") == 3).all()
        layout.fill("other", 4)
        layout.copy("other", "cache")
        assert (layout.read("cache") == 4).all()
        layout.fill("cache", 5, stream="work").wait()
        layout.save("cache", tmp_path / "bytes")
        assert set((tmp_path / "bytes").read_bytes()) == {5}
        content = numpy.random.default_rng(2).bytes(8 * MIB)
        layout.write("cache", numpy.frombuffer(content, dtype=numpy.uint8))
        assert layout.read("cache").tobytes() == content
        assert layout.drift() == []


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("stream", [None, "work"])
def test_bytes_move_within_memory_of_the_host_that_the_first_gpu_may_not_use(
    release: str, stream: str | None, sim: Simulator
) -> None:
    """AMD's library would have gpu.0 copy, which also repeats patterns: a page fault."""
    several = mixed(devices=["gpu.1", "host"])
    several["regions"]["other"] = {"device": "gpu.1", "size": "2MiB", "chunk": "1MiB"}
    several["streams"] = {"work": {"device": "gpu.1"}}
    how: dict[str, Any] = {"stream": stream} if stream else {}
    with as_release(sim, release), hipplan.apply(several, runtime="sim") as layout:
        layout.remap("other", device="host")
        content = filled(layout, sim)
        for to, source, place in (
            ("cache[3]", "cache[2]", 4 * MIB), ("other", "cache[3]", 4 * MIB), ("cache[0]", "other", 4 * MIB),
            ("other[1]", "other[0]", 4 * MIB), ("cache[2]", "cache[1]", 2 * MIB),
        ):  # fmt: skip
            if (transfer := layout.copy(source, to, **how)) is not None:
                transfer.wait()
            size = layout[to].size
            assert layout.read(to).tobytes() == content[place : place + size], (to, source)
        if (transfer := layout.fill("cache", 1.5, dtype="f32", **how)) is not None:
            transfer.wait()
        assert (layout.read("cache").view("f4") == 1.5).all()


@pytest.mark.parametrize("home", ["gpu.0", "gpu.1"])
@pytest.mark.parametrize("node", [0, 1])
def test_bytes_move_within_memory_of_a_node(node: int, home: str, sim: Simulator) -> None:
    nodes = [NumaNode(node=0), NumaNode(node=1)]
    machine = with_host_memory(64 * MIB).model_copy(update={"hip_version": "7.15.0", "numa_nodes": nodes})
    sim.runtime.configure(sim_profile(machine))
    on_node = plan(device={"host": {"numa": node}}, access={home: "rw"})
    with run(hipplan.compile(on_node, machine), sim.runtime) as layout:
        layout.fill("cache[0]", 1.5, dtype="f32")
        layout.copy("cache[0]", "cache[1]")
        assert (layout.read("cache[1]").view("f4") == 1.5).all()
    sim.runtime.configure(sim_profile(hipplan.machine("sim-2")))


def within_host(access: dict[str, str], value: float) -> dict[str, Any]:
    """A copy and a value between allocations on the host."""
    allocation = {"device": "host", "size": "2MiB"}
    range_ = {"access": access, "mappings": [{"allocation": "old"}, {"allocation": "new"}]}
    contents = {"range[0]": {"value": value, "dtype": "f32"}, "range[1]": {"copy_of": "range[0]"}}
    document = {"hipplan": 1, "devices": {"gpu": {"count": 2}}, "allocations": {"old": allocation, "new": allocation}}
    return {**document, "reservations": {"range": range_}, "contents": contents}


@pytest.mark.parametrize("access", [{"gpu.1": "rw", "host": "rw"}, {"gpu.1": "rw", "gpu.0": "rw"}, {"gpu.0": "rw"}])
@pytest.mark.parametrize("release", RELEASES)
def test_a_plan_copies_within_memory_of_the_host(release: str, access: dict[str, str], sim: Simulator) -> None:
    with as_release(sim, release), hipplan.apply(within_host(access, 1.5), runtime="sim") as layout:
        assert (layout.read("range[1]").view("f4") == 1.5).all()


@pytest.mark.parametrize(
    ("value", "lacking"), [(0, ["copy to 'range[1]'"]), (1.5, ["repeat a value in 'range[0]'", "copy to 'range[1]'"])]
)
def test_a_copy_within_memory_of_the_host_that_would_fault_is_refused(
    value: float, lacking: list[str], sim: Simulator
) -> None:
    with pytest.raises(MachineError) as error:
        hipplan.apply(within_host({"gpu.1": "rw"}, value), runtime="sim")
    found = [(diagnostic.code, diagnostic.summary) for diagnostic in error.value.diagnostics]
    assert found == [("HP213", f"no device may {what} within the host's memory") for what in lacking]
    assert {diagnostic.hint for diagnostic in error.value.diagnostics} == {"give the host rw access to it"}


def test_contents_fill_a_region_that_the_plan_puts_on_the_host(sim: Simulator) -> None:
    filled = {**mixed(), "contents": {"cache": {"value": 7}}}
    with hipplan.apply(filled, runtime="sim") as layout:
        assert (layout.read("cache") == 7).all()
        assert layout.drift() == []
    assert sim.alive() == set()


def test_memory_for_network_cards_does_not_move_to_the_host(sim: Simulator) -> None:
    with as_release(sim, "7.15.0"), hipplan.apply(plan(rdma=True), runtime="sim") as layout:
        with pytest.raises(ApplyError, match=r"HP420.*'cache' cannot move to the host\n.*network cards"):
            layout.remap("cache", device="host")
        assert places(layout) == ["gpu"] * 4
