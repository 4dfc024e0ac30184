"""A region over two devices, of which each writes its own part and reads the other's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan.errors import ApplyError
from hipplan.layout.layout import Layout
from tests.hardware.machine import MIB, Machine, pattern

SIZE = 4 * MIB


def plan(machine: Machine, **region: Any) -> dict[str, Any]:
    parts = {f"of.{n}": {"dtype": "u8", "shape": [SIZE // 2], "device": f"gpu.{n}"} for n in (0, 1)}
    over = {"devices": ["gpu.*"], "access": {"owner": "rw", "others": "r"}, "tensors": parts}
    return {"hipplan": 1, "devices": {"gpu": {"count": 2}}, "regions": {"experts": over | region}}


def rights(layout: Layout, name: str) -> list[int]:
    return [layout.runtime.access(device, layout[name].address) for device in (0, 1)]


def test_each_device_writes_its_part_and_both_read_all(pair: Machine) -> None:
    with hipplan.apply(plan(pair), runtime=pair.wanted) as layout:
        assert [rights(layout, f"experts[{part}]") for part in (0, 1)] == [[3, 1], [1, 3]]
        assert layout.drift() == []
        for device in (0, 1):
            address = layout[f"experts.of.{device}"].address
            data = pattern(SIZE // 2, device)
            pair.write_by(device, address, data)
            assert [pair.read_by(reader, address, len(data)) == data for reader in (0, 1)] == [True, True]


def test_what_hipplan_moves_leaves_the_rights_as_they_are(pair: Machine, tmp_path: Path) -> None:
    """A plain hipMemcpy of HIP 7.0 or later opens what it reads to the device that copies."""
    made = plan(pair)
    made["regions"]["all"] = {"device": "gpu.1", "access": {"gpu.*": "rw"}, "size": SIZE // 2}
    with hipplan.apply(made, runtime=pair.wanted) as layout:
        layout.fill("experts.of.0", 5)
        layout.copy("experts.of.0", "all")
        layout.copy("all", "experts.of.1")
        layout.save("experts", tmp_path / "experts.safetensors")
        layout.load("experts", tmp_path / "experts.safetensors")
        assert layout.drift() == []
        address = layout["experts.of.1"].address
        assert pair.read_by(1, address, SIZE // 2) == b"\5" * (SIZE // 2)


def test_contents_growth_and_a_change_of_rights(pair: Machine) -> None:
    room = {"spread": "interleave", "chunk": "2MiB", "reserve": "64MiB", "size": "4MiB"}
    tensors = {"pages": {"dtype": "u8", "shape": [-1]}}
    made = plan(pair, **room, tensors=tensors) | {"contents": {"experts.pages": {"value": 7}}}
    with hipplan.apply(made, runtime=pair.wanted) as layout:
        layout.grow("experts", to="8MiB")
        base = layout["experts"].address
        assert base is not None
        assert rights(layout, "experts[3]") == [1, 3]  # the fourth chunk is the second device's
        assert pair.read_by(0, base + 2 * MIB, 64) == b"\7" * 64
        layout.fill("experts.pages", 9)
        assert [pair.read_by(reader, base + 6 * MIB, 64) for reader in (0, 1)] == [b"\x09" * 64] * 2
        wider = plan(pair, **room | {"size": "8MiB"}, tensors=tensors, access={"gpu.*": "rw"})
        assert "owner: rw, others: r" in str(layout.update(wider))
        assert layout.drift() == []


@pytest.mark.parametrize("code", ["hipErrorOutOfMemory", "hipErrorUnknown"])
def test_rights_that_are_refused_part_way_leave_nothing(code: str, pair: Machine) -> None:
    wider = plan(pair, access={"gpu.*": "rw"})
    with hipplan.apply(plan(pair), runtime=pair.wanted) as layout:
        pair.runtime.arm_faults(f"hipMemSetAccess@2={code}")
        with pytest.raises(ApplyError, match="hipMemSetAccess"):
            layout.update(wider)
        assert pair.runtime.faults_fired() == 1
        pair.disarm()
        assert layout.drift() == []


@pytest.mark.parametrize("seal", [False, True])
def test_a_remap_that_fails_leaves_the_rights_as_they_were(seal: bool, pair: Machine) -> None:
    read = {"device": "gpu.0", "size": "8MiB", "chunk": "4MiB", "access": {"gpu.0": "rw", "gpu.1": "r"}, "seal": seal}
    made = {"hipplan": 1, "devices": {"gpu": {"count": 2}}, "regions": {"r": read}, "contents": {"r": {"value": 7}}}
    with hipplan.apply(made, runtime=pair.wanted) as layout:
        pair.runtime.arm_faults("hipMemcpyPeer@2=hipErrorUnknown")
        with pytest.raises(ApplyError, match="hipMemcpyPeer"):
            layout.remap("r", device="gpu.1")
        assert pair.runtime.faults_fired() == 1
        pair.disarm()
        assert layout.drift() == []
        layout.remap("r", device="gpu.1")
        assert rights(layout, "r") == ([1, 1] if seal else [3, 1])
        assert layout.drift() == []
