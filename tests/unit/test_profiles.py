"""Machine profiles: the shipped ones are whole, any one survives its own YAML, and bad ones say why."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipplan.errors import MachineError
from hipplan.machines.machine import Limits, Link, Machine, MachineDevice, Mesh, sim_profile
from hipplan.machines.profiles import diff, load_machine, machine_names, to_yaml

GIB = 2**30


@pytest.mark.parametrize(
    ("name", "count", "arch", "memory"),
    [
        ("h200-1", 1, "sm_90", 150109880320),
        ("h200-4", 4, "sm_90", 150109880320),
        ("mi210", 1, "gfx90a", 64 * GIB),
        ("mi250x-8", 8, "gfx90a", 68702699520),
        ("mi300a-4", 4, "gfx942", 128 * GIB),
        ("mi300x-8", 8, "gfx942", 206141652992),
        ("mi300x-8-cpx", 64, "gfx942", 25767706624),
        ("mi325x-8", 8, "gfx942", 256 * GIB),
        ("mi355x-8", 8, "gfx950", 309220868096),
        ("sim-1", 1, "gfx942", 192 * GIB),
        ("sim-2", 2, "gfx942", 192 * GIB),
        ("sim-2-unlinked", 2, "gfx942", 192 * GIB),
    ],
)
def test_shipped_profiles(name: str, count: int, arch: str, memory: int) -> None:
    machine = load_machine(name)

    assert machine.name == name
    assert [(device.arch, device.memory) for device in machine.devices] == [(arch, memory)] * count


def test_every_shipped_profile_is_tested_here() -> None:
    assert machine_names() == [
        "h200-1", "h200-4", "mi210", "mi250x-8", "mi300a-4", "mi300x-8", "mi300x-8-cpx", "mi325x-8",
        "mi355x-8", "sim-1", "sim-2", "sim-2-unlinked",
    ]  # fmt: skip


@pytest.mark.parametrize("name", machine_names())
def test_a_figure_has_a_source_or_is_reported_to_be_unknown(name: str) -> None:
    machine = load_machine(name)
    sources = {note.figure for note in machine.sources}
    if sources & {"all", "devices"}:
        return
    figures = {f"devices.{figure}": value for figure, value in machine.devices[0] if figure not in ("name", "in_use")}
    figures |= {"host_memory": machine.host_memory, "hip_version": machine.hip_version}
    unknown = {note.split(":")[0] for note in machine.unknown}

    assert {figure for figure, value in figures.items() if value is None} <= unknown | {
        f"devices.{item}" for item in ("uuid", "pci", "numa_node")
    }
    known = {figure for figure, value in figures.items() if value is not None} - {"devices.integrated"}
    assert known <= sources


def test_links_are_directed_and_meshes_are_complete() -> None:
    device = MachineDevice(name="d")
    machine = Machine(
        name="m",
        devices=[device] * 4,
        meshes=[Mesh(devices=[0, 1, 2], type="xgmi")],
        links=[Link(source=0, target=1, type="pcie", hops=2), Link(source=3, target=0)],
    )

    assert all(machine.can_access(a, b) for a in range(3) for b in range(3))
    assert machine.can_access(3, 0)
    assert not machine.can_access(0, 3)
    assert machine.can_access(3, 3)
    assert [link and link.type for link in (machine.link(0, 1), machine.link(1, 0), machine.link(0, 3))] == [
        "pcie", "xgmi", None
    ]  # fmt: skip


def test_what_the_simulator_reads() -> None:
    machine = Machine(
        name="m",
        hip_version="7.2.0",
        host_memory=GIB,
        devices=[
            MachineDevice(name="A B", memory=GIB, vmm=True, uuid="GPU-00000000-0000-abcd-0000-000000000001"),
            MachineDevice(name="C", uuid="GPU-1f9de0957d137942", pci="0000:0c:00.0", in_use=5),
        ],
        links=[Link(source=1, target=0, type="xgmi", hops=1), Link(source=0, target=1)],
        limits=Limits(mappings=65530),
    )

    assert sim_profile(machine).splitlines() == [
        "hip_version=7.2.0",
        f"host_memory={GIB}",
        "device.0.name=A B",
        "device.0.uuid=000000000000abcd0000000000000001",
        f"device.0.memory={GIB}",
        "device.0.in_use=0",
        "device.0.vmm=1",
        "device.0.granularity_minimum=2097152",
        "device.0.granularity_recommended=2097152",
        "device.1.name=C",
        "device.1.uuid=00000000000000001f9de0957d137942",
        "device.1.pci=0000:0c:00.0",
        "device.1.in_use=5",
        "device.1.granularity_minimum=2097152",
        "device.1.granularity_recommended=2097152",
        "link.0.1=pcie,1",
        "link.1.0=xgmi,1",
        "limit.mappings=65530",
    ]


NAMES = st.from_regex(r"\A[ -~\u00a0-\uff00]{1,12}\Z") | st.sampled_from(
    ["1e5", "0x10", "no", "true", "~", "012", "1_0"]
)
HEX = "0123456789abcdefE"
DEVICES = st.builds(
    MachineDevice,
    name=NAMES,
    arch=st.none() | NAMES,
    uuid=st.none() | st.text(HEX, min_size=16, max_size=32) | st.just("1234567890123e45"),
    memory=st.none() | st.integers(1, 2**60),
    vmm=st.none() | st.booleans(),
)
MACHINES = st.builds(
    Machine,
    name=NAMES,
    hip_version=st.none() | st.sampled_from(["7.2", "6.1.0"]),
    devices=st.lists(DEVICES, min_size=2, max_size=3),
    meshes=st.just([Mesh(devices=[0, 1])]),
)


@given(machine=MACHINES)
def test_a_profile_reads_back_from_its_own_yaml(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("profiles") / "box.yaml"
    path.write_text(to_yaml(machine))

    assert load_machine(path) == machine


def test_differences_are_reported_by_figure() -> None:
    result = diff(load_machine("sim-2"), load_machine("sim-2-unlinked"))

    assert result == [("links.0.1", "xgmi,1", None), ("links.1.0", "xgmi,1", None)]
    assert diff(load_machine("mi300x-8"), load_machine("mi300x-8")) == []


def test_a_mesh_of_one_device_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text("name: m\ndevices: [{name: d}]\nmeshes: [{devices: [0]}]\n")
    with pytest.raises(MachineError) as raised:
        load_machine(str(tmp_path / "m.yaml"))

    assert [d.summary for d in raised.value.diagnostics] == ["'devices' must have at least 2 items, not 1"]


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("name: [\n", "HP004", 1),
        ("name: a\nname: b\ndevices: []\n", "HP005", 2),
        ("name: m\n", "HP102", 1),
        ("name: m\ndevices: [{name: d, memry: 1}]\n", "HP101", 2),
        ("name: m\ndevices: [{name: d, memory: 1Gb}]\n", "HP013", 2),
        ("name: m\ndevices: [{name: 'a\tb\n\n  device.1.memory=5'}]\n", "HP105", 2),
        ("name: m\nhip_version: 7.2\ndevices: []\n", "HP103", 2),
        ("name: m\ndevices: [{name: d, granularity_minimum: 1}]\n", "HP105", 2),
        ("name: m\ndevices: [{name: d, granularity_recommended: 3}]\n", "HP105", 2),
        ("name: m\ndevices: [{name: d, granularity_minimum: 12KiB}]\n", "HP105", 2),
        ("name: m\nhost_granularity: 2KiB\ndevices: []\n", "HP105", 2),
        ("name: m\ndevices: [{name: d, multiprocessors: 0x80000000}]\n", "HP105", 2),
        ("name: m\ndevices: [{name: d}]\nlimits: {mappings: 0x10000000000000000}\n", "HP105", 3),
        ("name: m\ndevices: [{name: d}, {name: d}]\nmeshes: [{devices: [0, 1], hops: 0x80000000}]\n", "HP105", 3),
        ("name: m\ndevices: [{name: d}]\nlinks: [{source: 0, target: 1}]\n", "HP110", 3),
        ("name: m\ndevices: [{name: d}]\nlinks: [{source: 0, target: 0}]\n", "HP110", 3),
        ("name: m\ndevices: [{name: d}]\nmeshes: [{devices: [0, 7]}]\n", "HP110", 3),
    ],
)
def test_bad_profiles_say_what_and_where(tmp_path: Path, text: str, code: str, line: int) -> None:
    (tmp_path / "box.yaml").write_text(text)
    with pytest.raises(MachineError) as raised:
        load_machine(tmp_path / "box.yaml")

    first = raised.value.diagnostics[0]
    assert first.code == code
    assert first.span is not None
    assert first.span.line == line


def test_unknown_names_suggest_a_profile_and_missing_files_say_so() -> None:
    for name, hint in (("mi300x8", "mi300x-8"), ("nothing-like-it", "sim-2")):
        with pytest.raises(MachineError) as raised:
            load_machine(name)
        assert hint in raised.value.diagnostics[0].hint
    with pytest.raises(MachineError) as raised:
        load_machine("./none.yaml")
    assert raised.value.diagnostics[0].code == "HP001"
