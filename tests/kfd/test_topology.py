"""A machine profile as the driver describes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hipplan.errors import MachineError
from hipplan.machines import topology
from hipplan.machines.machine import Machine
from hipplan.machines.profiles import load_machine, machine_names

Described = Callable[..., Path]
DEVICE = {"name": "a GPU", "arch": "gfx90a", "memory": 2**30}


def described(folder: Path, *devices: dict[str, object], **more: object) -> Path:
    """The nodes of a machine."""
    whole = {"name": "m", "host_memory": 2**34, "devices": [DEVICE | device for device in devices], **more}
    topology.write(folder, Machine.model_validate(whole))
    return folder / topology.NODES


def properties(path: Path) -> dict[str, int]:
    return {name: int(value) for name, value in (line.split() for line in path.read_text().splitlines())}


@pytest.mark.parametrize("name", [name for name in machine_names() if name.startswith(("mi", "sim"))])
def test_every_profile_of_amd_s_gpus_is_written(name: str, tmp_path: Path) -> None:
    machine = load_machine(name)
    topology.write(tmp_path, machine)
    hosts = 1 + max(device.numa_node or 0 for device in machine.devices)
    nodes = [tmp_path / topology.NODES / str(hosts + n) for n in range(len(machine.devices))]

    assert [properties(node / "mem_banks/0/properties")["size_in_bytes"] for node in nodes] == [
        device.memory for device in machine.devices
    ]
    assert len({(node / "gpu_id").read_text() for node in nodes}) == len(nodes)
    for index, node in enumerate(nodes):
        linked = [properties(link / "properties") for link in node.glob("*_links/*")]
        assert {link["node_to"] for link in linked} == {machine.devices[index].numa_node or 0} | {
            hosts + other for other in range(len(nodes)) if machine.link(index, other)
        }
        assert len(linked) == sum(properties(node / "properties")[f"{kind}_links_count"] for kind in ("io", "p2p"))


@pytest.mark.parametrize(
    ("arch", "version"),
    [("gfx942", 90402), ("gfx90a", 90010), ("gfx950", 90500), ("gfx1100", 110000), ("gfx90a:sramecc+:xnack-", 90010)],
)
def test_the_target_is_a_number(tmp_path: Path, arch: str, version: int) -> None:
    nodes = described(tmp_path, {"arch": arch})

    assert properties(nodes / "1/properties")["gfx_target_version"] == version


def test_places_identities_and_links_are_those_of_the_profile(tmp_path: Path) -> None:
    nodes = described(
        tmp_path,
        {"pci": "0002:c1:02.3", "uuid": "GPU-0123456789abcdef"},
        {"uuid": b"fedcba9876543210".hex()},
        {},
        links=[{"source": 0, "target": 1, "type": "xgmi"}, {"source": 1, "target": 0, "type": "pcie"}],
    )
    first, second, third = (properties(nodes / f"{n}/properties") for n in (1, 2, 3))

    assert (first["domain"], first["location_id"]) == (2, 0xC1 << 8 | 2 << 3 | 3)
    assert (first["unique_id"], second["unique_id"]) == (0x0123456789ABCDEF, 0xFEDCBA9876543210)
    assert (first["io_links_count"], first["p2p_links_count"]) == (2, 0)
    assert (second["io_links_count"], second["p2p_links_count"]) == (1, 1)
    assert (third["io_links_count"], third["p2p_links_count"]) == (1, 0)


def test_each_numa_node_is_a_node(tmp_path: Path) -> None:
    nodes = described(tmp_path, {"numa_node": 1}, {"numa_node": 0})

    assert [(nodes / str(n) / "gpu_id").read_text().strip() for n in range(4)] == ["0", "0", "10111", "10222"]
    assert properties(nodes / "2/io_links/0/properties")["node_to"] == 1
    assert properties(nodes / "3/io_links/0/properties")["node_to"] == 0
    assert sum(properties(nodes / str(n) / "mem_banks/0/properties")["size_in_bytes"] for n in (0, 1)) == 2**34


def test_an_apu_is_linked_to_its_host_and_their_memory_is_one(tmp_path: Path) -> None:
    apu = {"arch": "gfx942", "integrated": True}
    nodes = described(tmp_path, apu, apu, {}, host_memory=None)
    host, first, other = (properties(nodes / f"{n}/properties") for n in (0, 1, 3))

    assert properties(nodes / "0/mem_banks/0/properties")["size_in_bytes"] == 2 * 2**30
    assert (first["device_id"], first["capability"] >> 28 & 1, other["capability"] >> 28 & 1) == (0x74A0, 1, 0)
    assert [properties(nodes / f"0/io_links/{n}/properties")["type"] for n in range(3)] == [11, 11, 2]
    assert [properties(nodes / f"{n}/io_links/0/properties")["type"] for n in (1, 3)] == [11, 2]
    assert [properties(nodes / f"{n}/driver")["integrated"] for n in (1, 3)] == [1, 0]
    assert (first["cpu_cores_count"], host["simd_count"]) == (0, 0)


@pytest.mark.parametrize(
    ("devices", "why"),
    [
        ([{"arch": "sm_90"}], "device 0 (a GPU) has no AMD target, such as gfx942, as its arch"),
        ([{}, {"arch": None}], "device 1 (a GPU) has no AMD target, such as gfx942, as its arch"),
        ([{"memory": None}], "the memory size of device 0 (a GPU) is unknown"),
        ([], "it has 0 devices, and the driver's stand-in takes 1 to 64"),
        ([{}] * 65, "it has 65 devices, and the driver's stand-in takes 1 to 64"),
    ],
)
def test_a_machine_that_is_not_amd_s_is_refused(tmp_path: Path, devices: list[dict[str, object]], why: str) -> None:
    with pytest.raises(MachineError, match="the machine m cannot be simulated") as raised:
        described(tmp_path, *devices)

    assert raised.value.diagnostics[0].why == why
    assert list(tmp_path.iterdir()) == []


def test_the_process_knows_which_machine_it_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KFDSIM_MACHINE", raising=False)
    assert topology.name_here() == ""
    monkeypatch.setenv("KFDSIM_MACHINE", str(tmp_path))
    assert topology.name_here() == ""
    topology.write(tmp_path, load_machine("mi210"))
    assert topology.name_here() == "mi210 without a GPU"
