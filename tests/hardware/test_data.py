"""The memory of a layout holds data: written by each device that may write, read by each that may read."""

from __future__ import annotations

import ctypes
import itertools
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan.layout.layout import Layout
from hipplan.layout.run import run
from tests.conftest import PLANS
from tests.hardware.machine import MIB, Machine, pattern
from tests.hardware.test_plans import program_of

SIZE = 2 * MIB


def allowed(layout: Layout, mapping: str, *rights: str) -> list[int]:
    devices = layout.program.devices
    access = dict(layout[mapping].resource.access)
    return [ordinal for name, ordinal in devices.items() if access.get(name) in rights]


@pytest.mark.parametrize("plan", PLANS, ids=lambda path: path.stem)
def test_every_mapping_of_a_plan_carries_data(plan: Path, machine: Machine) -> None:
    with run(program_of(plan, machine), machine.runtime) as layout:
        for resource in layout.program.resources:
            if resource.kind != "mapping":
                continue
            address = layout[resource.name].address
            check(machine, layout, resource.name, address, resource.size)


def check(machine: Machine, layout: Layout, name: str, address: int, size: int) -> None:
    writers, readers = allowed(layout, name, "rw"), allowed(layout, name, "r", "rw")
    for writer, reader in itertools.product(writers, readers):
        data = pattern(size, (name, writer, reader))
        machine.write_by(writer, address, data)
        assert machine.read_by(reader, address, size) == data, f"{name}: {writer} wrote, {reader} read"


def all_objects(machine: Machine) -> dict[str, Any]:
    """One allocation on each linked device, all in one range, all of these devices may write all of it."""
    names = [f"gpu.{n}" for n in range(machine.linked)]
    return {
        "hipplan": 1,
        "devices": {"gpu": {"count": machine.linked}},
        "peers": "all",
        "allocations": {f"on_{n}": {"device": name, "size": SIZE} for n, name in enumerate(names)},
        "reservations": {
            "all": {
                "access": dict.fromkeys(names, "rw"),
                "mappings": [{"allocation": f"on_{n}"} for n in range(len(names))],
            }
        },
        "buffers": {f"own_{n}": {"kind": "device", "device": name, "size": SIZE} for n, name in enumerate(names)},
    }


def test_one_range_over_all_devices_written_and_read_by_each(pair: Machine) -> None:
    with hipplan.apply(all_objects(pair), runtime=pair.wanted) as layout:
        mappings = [r for r in layout.program.resources if r.kind == "mapping"]
        assert len(mappings) == pair.linked
        for mapping in mappings:
            address = layout[mapping.name].address
            check(pair, layout, mapping.name, address, SIZE)


def test_a_read_runs_from_one_devices_memory_into_the_next(pair: Machine) -> None:
    """The mappings lie back to back: one copy over all of them sees one array."""
    with hipplan.apply(all_objects(pair), runtime=pair.wanted) as layout:
        base = layout["all"].address
        assert base is not None
        whole = pattern(SIZE * pair.linked, "whole")
        for n in range(pair.linked):
            pair.write_by(n, base + n * SIZE, whole[n * SIZE : (n + 1) * SIZE])
        for n in range(pair.linked):
            assert pair.read_by(n, base + SIZE // 2, SIZE) == whole[SIZE // 2 : SIZE // 2 + SIZE]


def test_peer_copies_between_all_pairs(pair: Machine) -> None:
    """hipMemcpyPeer between buffers of hipMalloc, and between mappings."""
    with hipplan.apply(all_objects(pair), runtime=pair.wanted) as layout:
        base = layout["all"].address
        assert base is not None
        for source, to in itertools.permutations(range(pair.linked), 2):
            for kind in ("buffer", "mapping"):
                places = [layout[f"own_{n}"].address if kind == "buffer" else base + n * SIZE for n in (source, to)]
                assert None not in places
                data = pattern(SIZE, (source, to, kind))
                pair.write_by(source, places[0], data)  # type: ignore[arg-type]
                pair.runtime.copy_peer(places[1], to, places[0], source, SIZE)  # type: ignore[arg-type]
                assert pair.read_by(to, places[1], SIZE) == data, (source, to, kind)  # type: ignore[arg-type]


def test_host_memory_is_mapped_for_the_host_and_a_device(machine: Machine) -> None:
    machine.new_descriptors = True  # the simulator's file behind all of its host memory
    allocations: dict[str, Any] = {"any": {"device": "host", "size": SIZE}}
    if machine.chosen.kind == "cuda":  # elsewhere only the newest releases know nodes
        allocations["near"] = {"device": "host", "numa_node": 0, "size": SIZE}
    document = {
        "hipplan": 1,
        "devices": {"gpu": {"count": 1}},
        "allocations": allocations,
        "reservations": {
            "range": {"access": {"gpu.0": "rw", "host": "rw"}, "mappings": [{"allocation": a} for a in allocations]}
        },
    }
    try:
        layout = hipplan.apply(document, runtime=machine.wanted)
    except hipplan.MachineError as error:
        pytest.skip(str(error.diagnostics[0].summary))
    with layout:
        for number in range(len(allocations)):
            address = layout[f"range[{number}]"].address
            there, back = pattern(SIZE, ("host", number)), pattern(SIZE, ("device", number))
            ctypes.memmove(address, there, SIZE)
            assert machine.read_by(0, address, SIZE) == there
            machine.write_by(0, address, back)
            assert ctypes.string_at(address, SIZE) == back
