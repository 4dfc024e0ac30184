"""Bytes on their way: files, values and copies into memory of every kind and device, and back; on any runtime."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy
import pytest

import hipplan
from tests.hardware.machine import MIB, Machine

SIZE = 40 * MIB + 12_340  # several pieces on each of the lanes


@pytest.fixture(scope="module")
def data() -> bytes:
    return random.Random(11).randbytes(SIZE)


def everywhere(machine: Machine, size: int = SIZE) -> dict[str, Any]:
    """One region over all linked devices, one on each, and each kind of buffer."""
    wide = [f"gpu.{n}" for n in range(machine.linked)]
    region: dict[str, Any] = {
        "wide": {"devices": wide, "spread": "interleave", "chunk": 4 * MIB, "size": size},
        **{f"own{n}": {"device": f"gpu.{n}", "size": size} for n in range(machine.count)},
    }
    for spec in region.values():
        spec["tensors"] = {"t": {"dtype": "u8", "shape": [size]}}
    buffers = {
        "device": {"kind": "device", "size": size},
        "pinned": {"kind": "pinned", "size": size},
        "managed": {"kind": "managed", "size": size},
        "fresh": {"kind": "registered", "anonymous": {"size": size}},
    }
    return {"hipplan": 1, "devices": {"gpu": {"count": machine.count}}, "regions": region, "buffers": buffers}


def test_a_file_goes_to_every_kind_of_memory_and_back(machine: Machine, data: bytes, tmp_path: Path) -> None:
    machine.wavers()
    (tmp_path / "data.bin").write_bytes(data)
    document = everywhere(machine)
    names = [*(f"{name}.t" for name in document["regions"]), *document["buffers"]]
    with hipplan.apply(document, runtime=machine.wanted) as layout:
        for name in names:
            layout.load(name, tmp_path / "data.bin")
        for name in names:
            layout.save(name, tmp_path / "back.bin")
            assert (tmp_path / "back.bin").read_bytes() == data, name


def test_contents_of_a_plan_are_loaded_on_all_devices_at_once(machine: Machine, data: bytes, tmp_path: Path) -> None:
    machine.wavers()
    (tmp_path / "data.bin").write_bytes(data)
    document = everywhere(machine)
    names = [f"{name}.t" for name in document["regions"]]
    document["contents"] = {name: {"file": str(tmp_path / "data.bin")} for name in names}
    with hipplan.apply(document, runtime=machine.wanted) as layout:
        for name in names:
            layout.copy(name, "pinned")
            assert bytes(memoryview(layout["pinned"])) == data, name


def test_values_fill_every_kind_of_memory(machine: Machine) -> None:
    machine.wavers()
    document = everywhere(machine)
    names = [*(f"{name}.t" for name in document["regions"]), *document["buffers"]]
    with hipplan.apply(document, runtime=machine.wanted) as layout:
        for number, name in enumerate(names):
            layout.fill(name, number + 1)
            layout.copy(name, "fresh") if name != "fresh" else None
            assert bytes(memoryview(layout["fresh"])).count(number + 1) == SIZE, name
        for name in document["buffers"]:
            layout.fill(name, 0x01020304, dtype="u32")
            layout.copy(name, "pinned") if name != "pinned" else None
            assert bytes(memoryview(layout["pinned"])) == b"\4\3\2\1" * (SIZE // 4), name


def test_copies_between_all_pairs(machine: Machine, data: bytes, tmp_path: Path) -> None:
    """Of two chunks and a little: the device copies, and no lane is filled again."""
    machine.wavers()
    size = 8 * MIB + 12_340
    (tmp_path / "data.bin").write_bytes(data[:size])
    document = everywhere(machine, size)
    names = [*(f"{name}.t" for name in document["regions"]), *document["buffers"]]
    with hipplan.apply(document, runtime=machine.wanted) as layout:
        for source in names:
            layout.load(source, tmp_path / "data.bin")
            for to in names:
                if to == source:
                    continue
                layout.fill(to, 0)
                layout.copy(source, to)
                layout.save(to, tmp_path / "back.bin")
                assert (tmp_path / "back.bin").read_bytes() == data[:size], (source, to)


def test_columns_go_to_every_device_at_once_and_what_is_pinned_grows(machine: Machine, tmp_path: Path) -> None:
    """Rows of 4 KiB: one part for each device, and then the whole to each of them."""
    machine.wavers()
    rows, columns = 8 * 1024, 4096
    array = numpy.random.default_rng(5).integers(0, 256, (rows, columns * machine.count), "u1")
    numpy.save(tmp_path / "columns.npy", array)
    path = str(tmp_path / "columns.npy")
    devices = range(machine.count)
    part = {"dtype": "u8", "shape": [rows, columns]}
    whole = {"dtype": "u8", "shape": list(array.shape)}
    document = {
        "hipplan": 1,
        "devices": {"gpu": {"count": machine.count}},
        "regions": {f"r{n}": {"device": f"gpu.{n}", "tensors": {"part": part, "whole": whole}} for n in devices},
        "contents": {f"r{n}.part": {"file": path, "part": n, "parts": machine.count} for n in devices},
    }
    with hipplan.apply(document, runtime=machine.wanted) as layout:
        for n in devices:
            layout.load(f"r{n}.whole", path)
            layout.save(f"r{n}.part", tmp_path / "part.npy")
            layout.save(f"r{n}.whole", tmp_path / "whole.npy")
            assert (numpy.load(tmp_path / "part.npy") == array[:, columns * n : columns * (n + 1)]).all()
            assert (numpy.load(tmp_path / "whole.npy") == array).all()


def test_host_memory_near_its_device_is_read_back(machine: Machine) -> None:
    """Where the kernel tells nodes; a virtual machine may have none."""
    machine.wavers()
    size = 3 * MIB + 4096
    near: dict[str, Any] = {
        "pinned": {"kind": "pinned", "size": size, "numa": "near"},
        "fresh": {"kind": "registered", "anonymous": {"size": size, "numa": "near"}},
    }
    with hipplan.apply({"hipplan": 1, "buffers": near}, runtime=machine.wanted) as layout:
        assert [layout[name].nbytes for name in near] == [size, size]
        known = [step.numa_node for step in layout.program.steps if hasattr(step, "numa_node")]
        collected = {check.name for check in layout.checks if check.what == "NUMA node"}
        assert collected == set() if set(known) == {-1} else not layout.verify().mismatches()
