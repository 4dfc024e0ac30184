"""Host memory near its device, read back page by page; and of exactly the size that was asked for."""

from __future__ import annotations

import ctypes
import platform
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan import ApplyError, MachineError, PlanError, _core
from hipplan.kinds.pinned.live import CreatePinnedBuffer
from hipplan.kinds.registered.live import RegisterBuffer
from hipplan.machines.machine import Machine, NumaNode
from hipplan.machines.profiles import load_machine
from tests.conftest import Simulator

NOWHERE = 1023
"""A node that no machine here has."""
NEAR: dict[str, Any] = {
    "p": {"kind": "pinned", "device": "gpu.1", "size": 100_000, "numa": "near"},
    "f": {"kind": "registered", "device": "gpu.1", "anonymous": {"size": 100_000, "numa": "near"}},
}


def plan(**buffers: Any) -> dict[str, Any]:
    return {"hipplan": 1, "devices": {"gpu": {"count": 2}}, "buffers": buffers}


def on_nodes(*nodes: int | None) -> Machine:
    machine = load_machine("sim-2")
    known = zip(machine.devices, nodes, strict=True)
    return machine.model_copy(update={"devices": [item.model_copy(update={"numa_node": node}) for item, node in known]})


def places_are_known() -> bool:
    """Whether this kernel says where a page is."""
    here = ctypes.create_string_buffer(b"x" * 4096)
    return bool(_core.page_nodes(ctypes.addressof(here), 4096))


needs_nodes = pytest.mark.skipif(not places_are_known(), reason="the kernel does not tell where pages are")


def policy() -> int:
    mode = ctypes.c_int(-1)
    number = {"x86_64": 239, "aarch64": 236}[platform.machine()]
    assert ctypes.CDLL(None).syscall(number, ctypes.byref(mode), None, 0, None, 0) == 0
    return mode.value


def test_near_is_the_node_of_the_buffers_device() -> None:
    program = hipplan.compile(hipplan.load(plan(**NEAR)), on_nodes(0, 3))
    kinds = CreatePinnedBuffer, RegisterBuffer
    made = {step.name: step for step in program.steps if isinstance(step, kinds)}

    assert {name: step.numa_node for name, step in made.items()} == {"p": 3, "f": 3}
    assert "NUMA node 3" in made["p"].describe()
    assert not program.warnings


def test_what_moves_bytes_is_near_its_device_where_that_is_known() -> None:
    buffers = {f"b{n}": {"kind": "device", "device": f"gpu.{n}", "size": "1MiB"} for n in (0, 1)}
    document = plan(**buffers) | {"contents": {name: {"file": "f"} for name in buffers}}
    program = hipplan.compile(hipplan.load(document), on_nodes(2, None))
    pinned = [step.numa_node for step in program.steps if isinstance(step, CreatePinnedBuffer)]

    assert pinned == [2, -1]


def test_an_unknown_numa_node_is_a_warning() -> None:
    program = hipplan.compile(hipplan.load(plan(**NEAR)), on_nodes(0, None))

    assert [(warning.code, warning.summary.split("'")[1]) for warning in program.warnings] == [
        ("HP256", "p"),
        ("HP256", "f"),
    ]
    assert {step.numa_node for step in program.steps if hasattr(step, "numa_node")} == {-1}


@pytest.mark.parametrize(
    "buffer",
    [
        {"kind": "pinned", "size": 4096, "numa": "near", "numa_user": True},
        {"kind": "registered", "anonymous": {"size": 4096, "numa": "near", "numa_node": 0}},
    ],
)
def test_only_one_key_says_which_node(buffer: dict[str, Any]) -> None:
    with pytest.raises(PlanError) as caught:
        hipplan.load(plan(b=buffer))
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == ["HP107"]


@pytest.mark.parametrize("value", ["far", 0, True])
def test_there_is_no_other_word_than_near(value: object) -> None:
    with pytest.raises(PlanError) as caught:
        hipplan.load(plan(b={"kind": "pinned", "size": 4096, "numa": value}))
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == ["HP104"]


def touch(layout: hipplan.Layout, name: str) -> None:
    """The simulator's memory has no pages before."""
    memoryview(layout[name].view("u8"))[:] = bytes(layout[name].nbytes)


@needs_nodes
def test_every_page_is_read_back(sim: Simulator) -> None:
    document = plan(**NEAR, e=fresh(0))
    before = policy()
    with hipplan.apply(document, runtime="sim", machine=on_nodes(None, 0)) as layout:
        assert policy() == before
        for name in "pfe":
            touch(layout, name)
        collected = {item.name: (item.desired, item.current) for item in layout.verify() if item.what == "NUMA node"}

    assert collected == dict.fromkeys("pfe", ("0", "0"))


@needs_nodes
def test_pages_on_another_node_are_reported(sim: Simulator) -> None:
    """Of a kernel that does not list its nodes: with a list the plan is refused."""
    with hipplan.apply(plan(p=NEAR["p"]), runtime="sim", machine=on_nodes(None, NOWHERE)) as layout:
        touch(layout, "p")
        (wrong,) = layout.verify().mismatches()

    assert (wrong.name, wrong.what, wrong.desired, wrong.current) == ("p", "NUMA node", str(NOWHERE), "25 pages on 0")


def test_a_node_that_is_not_there_rolls_back_what_is_bound_to_it(sim: Simulator) -> None:
    with pytest.raises(ApplyError, match=f"mbind to NUMA node {NOWHERE}"):
        hipplan.apply(plan(p=NEAR["p"], f=NEAR["f"]), runtime="sim", machine=on_nodes(None, NOWHERE))
    assert sim.alive() == set()


@pytest.fixture
def one_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with memory on node 0 alone."""
    file = tmp_path / "sys" / "devices" / "system" / "node" / "has_memory"
    file.parent.mkdir(parents=True)
    file.write_text("0\n")
    monkeypatch.setenv("HIPPLAN_ROOT", str(tmp_path))


def test_a_node_that_is_not_there_is_refused_before_the_first_call(sim: Simulator, one_node: None) -> None:
    with pytest.raises(MachineError, match=f"HP316.*'p' cannot be on NUMA node {NOWHERE}"):
        hipplan.apply(plan(p=NEAR["p"]), runtime="sim", machine=on_nodes(None, NOWHERE))


def test_the_nodes_of_a_simulated_machine_are_rehearsed(sim: Simulator, one_node: None) -> None:
    """Memory is not bound to a node that only the profile has, nor read back from there."""
    profile = on_nodes(NOWHERE, NOWHERE).model_copy(
        update={"hip_version": "7.15.0", "numa_nodes": [NumaNode(node=0), NumaNode(node=NOWHERE)]}
    )
    document = plan(**NEAR, e=fresh(0))
    document["allocations"] = {"a": {"device": "host", "numa_node": NOWHERE, "size": 4096}}
    with hipplan.apply(document, runtime="sim", machine=profile) as layout:
        for name in "pfe":
            touch(layout, name)
        checks = layout.verify()
        described = {step.name: step.describe() for step in layout.program.steps}

    assert not checks.mismatches()
    assert {check.name for check in checks if check.what == "NUMA node"} == ({"e"} if places_are_known() else set())
    assert {check.current for check in checks if check.what == "location"} == {f"NUMA node {NOWHERE}"}
    assert all(f"NUMA node {NOWHERE}" in described[name] for name in "pfa")
    with pytest.raises(MachineError, match=r"HP316.*has nodes 0 and 1023"):
        hipplan.apply(plan(f=fresh(1)), runtime="sim", machine=profile)


def fresh(node: int) -> dict[str, Any]:
    return {"kind": "registered", "anonymous": {"size": 8192, "numa_node": node}}


def test_the_staging_memory_is_made_in_any_case(sim: Simulator) -> None:
    document = plan(b={"kind": "device", "size": 4096}) | {"contents": {"b": {"value": 1}}}
    with hipplan.apply(document, runtime="sim", machine=on_nodes(NOWHERE, NOWHERE)) as layout:
        assert not layout.verify().mismatches()


@pytest.mark.parametrize("size", [1, 4097, 33 * 2**20 + 1])
def test_pinned_and_registered_memory_is_as_large_as_asked(size: int, sim: Simulator) -> None:
    buffers = {"p": {"kind": "pinned", "size": size}, "r": {"kind": "registered", "anonymous": {"size": size}}}
    with hipplan.apply(plan(**buffers), runtime="sim") as layout:
        sizes = {int(buffer["address"], 16): buffer["size"] for buffer in sim.ledger()["buffers"]}

        assert {sizes[layout[name].address] for name in buffers} == {size}
        assert {layout[name].nbytes for name in buffers} == {size}


def test_a_profile_reports_the_node(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(hipplan.machines.profiles.to_yaml(on_nodes(1, None)))
    again = load_machine(path)

    assert [device.numa_node for device in again.devices] == [1, None]
    path.write_text(path.read_text().replace("numa_node: 1", "numa_node: -1"))
    with pytest.raises(hipplan.ProfileError):
        load_machine(path)
