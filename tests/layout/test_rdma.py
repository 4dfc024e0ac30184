"""Memory for network cards: rdma in a plan, dma-bufs, and callbacks before memory is freed."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

import hipplan
from hipplan.layout import recorded
from hipplan.machines.profiles import load_machine
from tests.conftest import Simulator

MIB = 2**20
MACHINE = "h200-1"
PLAN: dict[str, Any] = {
    "hipplan": 1,
    "devices": {"gpu": {"count": 1}},
    "allocations": {"one": {"size": 2 * MIB, "rdma": True}, "plain": {"size": 2 * MIB}},
    "reservations": {
        "range": {"access": {"gpu.0": "rw"}, "mappings": [{"allocation": "one"}, {"allocation": "plain"}]}
    },
    "regions": {
        "kv": {"size": 4 * MIB, "rdma": True, "tensors": {"t": {"dtype": "u8", "shape": [MIB]}}},
        "pieces": {"size": 8 * MIB, "chunk": "2MiB", "reserve": "32MiB", "rdma": True},
    },
    "buffers": {"host": {"kind": "pinned", "size": 4096}, "device": {"kind": "device", "size": 4096}},
}


@pytest.fixture
def layout(sim: Simulator) -> Any:
    with hipplan.apply(PLAN, runtime="sim", machine=MACHINE) as made:
        yield made


def test_memory_is_made_for_it_and_read_back(layout: hipplan.Layout) -> None:
    collected = {check.name: check for check in layout.checks if check.what == "rdma"}

    assert {*collected} == {"one", "kv#0", *(f"pieces#{n}" for n in range(4))}
    assert all(check.ok for check in collected.values())
    assert len(layout.verify()) == len([*layout.verify()]), "memory for it has a check more"
    assert ", for RDMA" in str([step.describe() for step in layout.program.steps])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"allocations": {"a": {"device": "host", "size": 4096, "rdma": True}}}, "HP107.*rdma is not for host memory"),
        (
            {"allocations": {"a": {"size": 4096, "rdma": True, "bind": "x", "shareable": "posix_fd"}}},
            "HP107.*rdma is not",
        ),
        ({"allocations": {"a": {"size": 4096, "rdma": "yes"}}}, "HP1"),
        ({"allocations": {"a": {"size": 4096, "gpu_direct_rdma": True}}}, "HP109(?s:.*)rdma: true"),
    ],
)
def test_what_a_plan_cannot_mean_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(hipplan.PlanError, match=message):
        hipplan.load({"hipplan": 1, **changed})


@pytest.mark.parametrize(("machine", "possible"), [("mi300x-8", True), ("h200-1", True), ("sim-2", False)])
def test_where_a_release_has_none_it_is_refused(machine: str, possible: bool) -> None:
    """mi300x-8 does not say its release; sim-2 is HIP 7.2."""
    plan = {"hipplan": 1, "regions": {"kv": {"size": "4MiB", "rdma": True}}}
    if possible:
        hipplan.compile(hipplan.load(plan), machine)
        return
    with pytest.raises(hipplan.MachineError, match=r"HP309.*cannot be made for RDMA on gpu"):
        hipplan.compile(hipplan.load(plan), machine)


def test_a_region_of_the_host_is_refused() -> None:
    plan = {"hipplan": 1, "regions": {"kv": {"device": "host", "size": "4MiB", "rdma": True}}}
    with pytest.raises(hipplan.HipplanError, match="HP"):
        hipplan.compile(hipplan.load(plan), MACHINE)


def test_a_device_that_cannot_is_refused() -> None:
    machine = load_machine(MACHINE)
    without = machine.model_copy(update={"devices": [machine.devices[0].model_copy(update={"rdma": False})]})
    with pytest.raises(hipplan.MachineError, match="HP309"):
        hipplan.compile(hipplan.load(PLAN), without)


@pytest.mark.parametrize(("name", "size"), [("kv", 4 * MIB), ("range[0]", 2 * MIB), ("pieces[1]", 2 * MIB)])
def test_one_piece_of_memory_is_one_descriptor(name: str, size: int, layout: hipplan.Layout) -> None:
    with layout.export_dma_buf(name) as exported:
        descriptor = exported.fileno()
        assert os.fstat(descriptor).st_size >= size
        assert not os.get_inheritable(descriptor)
        assert (exported.address, exported.size, exported.name) == (layout[name].address, size, name)
        assert layout.leases == 1
    assert layout.leases == 0
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(descriptor)
    with pytest.raises(ValueError, match="is closed"):
        exported.fileno()
    exported.close()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pieces", r"HP420.*'pieces' is not one handle(?s:.*)4 pieces of memory(?s:.*)take each piece: 'pieces\[0\]'"),
        ("range", "HP420.*no dma-buf of 'range'(?s:.*)of the kind reservation"),
        ("kv.t", "HP420.*of the kind tensor|HP420.*no dma-buf of 'kv.t'"),
        ("host", "HP420.*no dma-buf of 'host'"),
    ],
)
def test_what_is_not_one_handle_is_refused(name: str, message: str, layout: hipplan.Layout) -> None:
    with pytest.raises(hipplan.ApplyError, match=message):
        layout.export_dma_buf(name)
    assert layout.leases == 0


def test_a_driver_that_refuses_is_reported(layout: hipplan.Layout) -> None:
    layout.runtime.arm_faults("hipMemGetHandleForAddressRange@1=hipErrorOutOfMemory")
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(hipplan.ApplyError, match="hipErrorOutOfMemory") as caught:
        layout.export_dma_buf("kv")
    layout.runtime.arm_faults("")
    assert caught.value.__traceback__  # whose frames hold no lease
    assert layout.leases == 0
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_an_open_dma_buf_keeps_its_memory(layout: hipplan.Layout) -> None:
    exported = layout.export_dma_buf("kv")
    for change in (lambda: layout.remap("kv"), lambda: layout.sleep("kv"), layout.close):
        with pytest.raises(hipplan.LayoutInUse, match="HP409"):
            change()
    exported.close()
    layout.remap("kv")


class Network:
    """Registers memory with a card, as an engine would: never while it is not there."""

    def __init__(self, layout: hipplan.Layout, name: str) -> None:
        self.events: list[str] = []
        self.layout = layout
        self.exported = layout.export_dma_buf(name)
        self.watch = layout.watch(name, on_unmap=self.unmap, on_map=self.map)

    def unmap(self, name: str) -> None:
        self.events.append(f"unmap {name}")
        self.exported.close()

    def map(self, name: str) -> None:
        self.events.append(f"map {name}")
        self.exported = self.layout.export_dma_buf(name)


@pytest.mark.parametrize(
    "change",
    [
        lambda lay: lay.remap("kv"),
        lambda lay: (lay.sleep("kv"), lay.wake("kv")),
        lambda lay: lay.update(PLAN | {"regions": PLAN["regions"] | {"kv": {"size": 6 * MIB, "rdma": True}}}, lose="*"),
    ],
)
def test_a_registration_ends_before_memory_goes_and_begins_again(change: Any, layout: hipplan.Layout) -> None:
    network = Network(layout, "kv")
    change(layout)

    assert network.events == ["unmap kv", "map kv"]
    assert network.exported.address == layout["kv"].address
    network.exported.close()
    network.watch.stop()
    network.watch.stop()
    layout.remap("kv")
    assert len(network.events) == 2


def test_what_is_asleep_is_mapped_by_wake_alone(layout: hipplan.Layout) -> None:
    network = Network(layout, "kv")
    layout.sleep("kv")
    layout.remap("pieces")
    assert network.events == ["unmap kv"]
    layout.wake()
    assert network.events == ["unmap kv", "map kv"]
    network.exported.close()


def test_others_are_not_called(layout: hipplan.Layout) -> None:
    called: list[str] = []
    for name in ("kv", "range", "one", "device"):
        layout.watch(name, on_unmap=called.append, on_map=called.append)
    layout.grow("pieces", by="2MiB")
    layout.shrink("pieces", by="2MiB")
    layout.fill("kv", 1)
    assert called == []
    layout.remap("range[0]")
    assert called == ["range", "one", "range", "one"]


def test_a_change_that_fails_maps_again(layout: hipplan.Layout) -> None:
    network = Network(layout, "kv")
    layout.runtime.arm_faults("hipMemCreate@1=hipErrorOutOfMemory")
    with pytest.raises(hipplan.ApplyError, match="hipErrorOutOfMemory"):
        layout.remap("kv")
    layout.runtime.arm_faults("")
    assert network.events == ["unmap kv", "map kv"]
    network.exported.close()


def test_on_unmap_stops_the_change(layout: hipplan.Layout) -> None:
    address, mapped = layout["kv"].address, []

    def refuse(name: str) -> None:
        raise LookupError("the card does not answer")

    watch = layout.watch("kv", on_unmap=refuse, on_map=mapped.append)
    with pytest.raises(LookupError, match="does not answer"):
        layout.remap("kv")
    assert layout["kv"].address == address
    assert mapped == ["kv"]
    layout.verify()
    with pytest.raises(LookupError):
        layout.close()
    assert not layout.closed
    watch.stop()
    watch = layout.watch("one", on_unmap=lambda _: layout.grow("pieces", by="2MiB"))
    with pytest.raises(hipplan.ApplyError, match="on_unmap changed the layout"):
        layout.remap("one")
    watch.stop()


def test_a_callback_may_read_bytes(sim: Simulator) -> None:
    """The first read makes pinned memory and streams, which are not in the plan."""
    regions = {name: {"device": "gpu.0", "size": "4MiB", "chunk": "2MiB"} for name in ("kv", "other")}
    acts: list[Callable[[hipplan.Layout], object]] = [
        lambda layout: layout.remap("kv"),
        lambda layout: layout.shrink("kv", by="2MiB"),
        lambda layout: layout.sleep("kv"),
        lambda layout: layout.update({"hipplan": 1, "regions": {"other": regions["other"]}}, lose="*"),
    ]
    for act in acts:
        with hipplan.apply({"hipplan": 1, "regions": regions}, runtime="sim") as layout:
            layout.fill("other", 7)
            layout.fill("kv", 5)
            events: list[object] = []

            def read(name: str, layout: hipplan.Layout = layout, events: list[object] = events) -> None:
                events.extend(["begin", int(layout.read("other")[-1]), "end"])

            layout.watch("kv", on_unmap=read, on_map=events.append)
            act(layout)
            if "kv" in layout.asleep:
                assert events == ["begin", 7, "end"]
                layout.wake()
            assert events == ["begin", 7, "end", *["kv"] * ("kv" in layout)]
            assert layout.drift() == []
    with hipplan.apply({"hipplan": 1, "regions": regions}, runtime="sim") as layout:
        layout.fill("kv", 5)
        layout.sleep("kv", on_unmap=lambda names: layout.read("other"))
        layout.wake()
        assert set(layout.read("kv")) == {5}
        watch = layout.watch("kv", on_unmap=lambda name: layout.remap("other"))  # its program stays the same
        with pytest.raises(hipplan.ApplyError, match="on_unmap changed the layout"):
            layout.remap("kv")
        watch.stop()


def test_a_record_has_the_copy_of_a_callback_before_the_change(sim: Simulator, tmp_path: Path) -> None:
    regions = {name: {"device": "gpu.0", "size": "4MiB", "chunk": "2MiB"} for name in ("kv", "other")}
    record = tmp_path / "record"
    with hipplan.apply({"hipplan": 1, "regions": regions}, runtime="sim", record=record) as layout:
        layout.watch("kv", on_unmap=lambda name: layout.read("other"))
        layout.shrink("kv", by="2MiB")
    changes = recorded.read(record).of("change")
    assert len(changes) == 2
    assert "streams and pinned memory" in str(changes[0])
    assert "kv" in str(changes[1])


def test_an_error_of_on_map_hides_no_other(layout: hipplan.Layout, caplog: pytest.LogCaptureFixture) -> None:
    def fail(name: str) -> None:
        raise LookupError("no card")

    watch = layout.watch("kv", on_map=fail)
    with pytest.raises(LookupError, match="no card"):
        layout.remap("kv")
    layout.runtime.arm_faults("hipMemCreate@1=hipErrorOutOfMemory")
    with caplog.at_level(logging.ERROR, "hipplan"), pytest.raises(hipplan.ApplyError):
        layout.remap("kv")
    layout.runtime.arm_faults("")
    assert "on_map of 'kv' raised LookupError: no card" in caplog.text
    watch.stop()


def test_close_ends_the_registration(sim: Simulator) -> None:
    layout = hipplan.apply(PLAN, runtime="sim", machine=MACHINE)
    network = Network(layout, "kv")
    view = memoryview(layout["host"])
    with pytest.raises(hipplan.LayoutInUse):
        layout.close()
    assert network.events == ["unmap kv", "map kv"]
    view.release()
    layout.close()
    assert network.events == ["unmap kv", "map kv", "unmap kv"]
    with pytest.raises(ValueError, match="closed"):
        layout.watch("kv")


def test_what_is_not_there_cannot_be_watched(layout: hipplan.Layout) -> None:
    with pytest.raises(KeyError, match="no 'kw'"):
        layout.watch("kw")


def test_a_watch_needs_functions(layout: hipplan.Layout) -> None:
    with pytest.raises(TypeError, match="expected the name of an object, not"):
        layout.watch([], on_map=print)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="on_unmap must be a function"):
        layout.watch("kv", on_unmap=cast(Any, 3))
    with pytest.raises(TypeError, match="needs on_unmap, on_map or both"):
        layout.watch("kv")
    layout.sleep("kv")
