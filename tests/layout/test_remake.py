"""Mapped memory that is sealed, recreated under its addresses, or continued behind the end of its reservation."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy
import pytest

import hipplan
from hipplan.errors import ApplyError, LayoutInUse
from hipplan.layout.layout import Layout
from hipplan.show.summary import how_many, resources_by_kind
from tests.conftest import Simulator, not_under_tsan

MIB = 2**20
BASE = 0x7E0000000000
PLAN = """
hipplan: 1
devices: {gpu: {count: 2}}
allocations:
  part: {device: gpu.0, size: 2MiB, count: 2}
  other: {device: gpu.1, size: 4MiB}
reservations:
  full: {size: 6MiB, address: 0x7e0000000000, access: {gpu.0: rw, gpu.1: r}, mappings: [{allocation: part.*}]}
  twice: {mappings: [{allocation: other, access: {gpu.1: rw}}, {allocation: other, access: {gpu.0: r}}]}
regions:
  cache:
    device: gpu.0
    size: 6MiB
    chunk: 2MiB
    reserve: 64MiB
    access: {gpu.0: rw, gpu.1: r}
    tensors: {head: {dtype: u8, shape: [100]}, pages: {dtype: u8, shape: [-1]}}
"""


def access_of(layout: Layout, name: str) -> list[int]:
    return [layout.runtime.access(device, layout[name].address) for device in (0, 1)]


def places(layout: Layout, name: str) -> list[tuple[int, int]]:
    """(offset, bytes) of each mapping of a reservation."""
    results = [
        resource for resource in layout.program.resources if resource.kind == "mapping" and resource.inside == name
    ]
    base = layout[name].address
    assert [layout[one.name].address for one in results] == [base + item.offset for item in results]
    return [(item.offset, item.size) for item in results]


@not_under_tsan
def test_a_reservation_grows_inside_of_its_size_first_and_then_behind_it(layout: Layout, sim: Simulator) -> None:
    layout.grow("full", by="1MiB")  # rounded up; there are 2 MiB left
    assert places(layout, "full") == [(0, 2 * MIB), (2 * MIB, 2 * MIB), (4 * MIB, MIB)]
    layout.grow("full", to="10MiB")
    assert places(layout, "full")[3:] == [(5 * MIB, MIB), (6 * MIB, 4 * MIB)]
    assert layout["full"].address == BASE
    assert layout["full"].size == 10 * MIB
    assert [
        reservation["address"] for reservation in sim.ledger()["reservations"] if reservation["address"] > hex(BASE)
    ][:1] == [hex(BASE + 6 * MIB)]
    pattern = bytes(range(256))
    sim.write(BASE + 9 * MIB, pattern)
    assert sim.read(BASE + 9 * MIB, 256) == pattern
    assert access_of(layout, "full[4]") == [3, 1]
    assert layout.drift() == []
    layout.grow("full", by="2MiB")  # behind what was added
    assert layout["full"].size == 12 * MIB
    layout.shrink("full", to="6MiB")
    assert places(layout, "full")[-1] == (5 * MIB, MIB)
    assert layout["full"].size == 6 * MIB
    assert (
        len([reservation for reservation in sim.ledger()["reservations"] if reservation["address"] >= hex(BASE)]) <= 3
    )
    layout.update(PLAN, lose="*")
    assert places(layout, "full") == [(0, 2 * MIB), (2 * MIB, 2 * MIB)]
    assert layout.drift() == []


@contextmanager
def somebody_at(sim: Simulator, address: int) -> Iterator[None]:
    """Addresses that another part of the program holds."""
    hip = ctypes.CDLL(sim.runtime.path)
    got = ctypes.c_void_p()
    assert hip.hipMemAddressReserve(ctypes.byref(got), ctypes.c_size_t(2 * MIB), ctypes.c_size_t(0),
                                    ctypes.c_void_p(address), ctypes.c_ulonglong(0)) == 0  # fmt: skip
    assert got.value == address
    yield
    assert hip.hipMemAddressFree(got, ctypes.c_size_t(2 * MIB)) == 0


@not_under_tsan
def test_addresses_that_hip_places_elsewhere_are_freed(layout: Layout, sim: Simulator) -> None:
    with somebody_at(sim, BASE + 6 * MIB):
        before = sim.alive()
        with pytest.raises(
            ApplyError, match=r"HP420.*'full' cannot grow where it is\n.*0x7e0000600000.* cannot be had: the driver"
        ):
            layout.grow("full", to="8MiB")
        assert sim.alive() == before
        assert layout["full"].size == 6 * MIB
        layout.grow("full", to="6MiB")  # inside there is room
        assert layout.drift() == []


def test_shrinking_a_reservation_frees_memory_that_nothing_maps_any_more(layout: Layout) -> None:
    layout.shrink("twice", by="4MiB")
    assert "other" in layout  # mapped once more
    layout.shrink("twice", by="4MiB")
    assert "other" not in layout
    assert places(layout, "twice") == []
    with pytest.raises(ApplyError, match="has no mapping"):
        layout.grow("twice", by="2MiB")


@pytest.mark.parametrize("device", [None, "gpu.1"])
def test_remap_keeps_addresses_bytes_and_access(device: str | None, layout: Layout, sim: Simulator) -> None:
    base = layout["cache"].address
    content = numpy.random.default_rng(1).integers(0, 256, 6 * MIB, "u1").tobytes()
    sim.write(base, content)
    handles = {layout._holding.state.handle_of(f"cache#{number}") for number in range(3)}
    free = [sim.runtime.memory_info(item)[0] for item in (0, 1)]
    change = layout.remap("cache", device=device)

    assert "3 of 3 chunks are recreated" in str(change) and str(change).endswith(", with their bytes")
    assert layout["cache"].address == base
    assert sim.read(base, 6 * MIB) == content
    assert handles.isdisjoint(layout._holding.state.handle_of(f"cache#{number}") for number in range(3))
    assert access_of(layout, "cache") == [3, 1]
    assert layout.drift() == []
    moved = 6 * MIB if device else 0
    assert [sim.runtime.memory_info(item)[0] for item in (0, 1)] == [free[0] + moved, free[1] - moved]
    assert layout["cache"].resource.device == (device or "gpu.0")
    layout.grow("cache", by="2MiB")  # where the rest is now
    assert layout["cache#3"].resource.device == (device or "gpu.0")
    back = layout.update(PLAN, lose="*")
    assert ("loses its bytes" in str(back)) == (device is not None)
    assert layout.drift() == []


def test_remap_without_the_bytes_copies_nothing(layout: Layout, sim: Simulator) -> None:
    base = layout["full"].address
    sim.write(base, b"old")
    change = layout.remap("full", keep_bytes=False)
    assert change.carries == ()
    assert sim.read(base, 3) == bytes(3)
    assert "-/+ allocation part.0: is recreated, 2MiB; loses its bytes" in str(change)
    again = layout.remap("full")
    assert "-/+ allocation part.0: is recreated, 2MiB, with its bytes" in str(again)


def test_remap_of_memory_without_read_access_or_with_two_mappings(layout: Layout, sim: Simulator) -> None:
    first = layout["twice[0]"].address
    sim.write(first, b"here")
    layout.remap("twice[1]")  # one memory, two places
    assert sim.read(first, 4) == b"here"
    assert layout.drift() == []


def test_memory_with_views_is_not_recreated(layout: Layout) -> None:
    view = layout["cache.head"].__dlpack__(max_version=(1, 0))
    with pytest.raises(LayoutInUse, match=r"'cache.head'"):
        layout.remap("cache")
    layout.remap("full")
    del view
    layout.remap("cache")


def test_sealed_memory_is_read_only_for_everybody_until_it_is_unsealed(layout: Layout, sim: Simulator) -> None:
    base = layout["cache"].address
    sim.write(base, b"weights")
    view = layout["cache.head"].__dlpack__(max_version=(1, 0))  # does not stand in the way
    change = layout.seal("cache")

    access = "access (gpu.0: rw, gpu.1: r) -> (gpu.0: r, gpu.1: r, sealed)"
    assert str(change) == f"~ region cache: {access}; gpu.0 loses write access"
    assert access_of(layout, "cache") == [1, 1]
    assert layout["cache.pages"].read_only
    assert {c.current for c in layout.checks if c.what.startswith("access")} == {"r"}
    with pytest.raises(hipplan._core.HipError):
        sim.write(base, b"x")
    assert sim.read(base, 7) == b"weights"
    assert layout.seal("cache").empty
    layout.unseal("cache")
    assert access_of(layout, "cache") == [3, 1]
    assert not layout["cache.pages"].read_only
    sim.write(base, b"x")
    assert layout.unseal("cache").empty
    del view


def test_what_is_left_of_a_sealed_region_stays_sealed(layout: Layout) -> None:
    layout.seal("cache")
    change = layout.shrink("cache", to="2MiB")

    assert "access" not in str(change)
    assert layout["cache"].read_only
    assert layout["cache.pages"].read_only
    layout.unseal("cache")
    assert access_of(layout, "cache") == [3, 1]
    assert not layout["cache.pages"].read_only


def test_a_seal_is_for_what_was_named_and_an_update_takes_it_away(layout: Layout) -> None:
    layout.seal("full[0]")
    assert (access_of(layout, "full[0]"), access_of(layout, "full[1]")) == ([1, 1], [3, 1])
    layout.seal("full")
    layout.unseal("full[1]")
    assert (access_of(layout, "full[0]"), access_of(layout, "full[1]")) == ([1, 1], [3, 1])
    layout.remap("full[0]")
    assert access_of(layout, "full[0]") == [1, 1]
    layout.seal("cache")
    layout.shrink("cache", to="2MiB")
    layout.update(PLAN)
    assert (access_of(layout, "full[0]"), access_of(layout, "cache")) == ([3, 1], [3, 1])
    assert layout.unseal("full").empty


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda layout: (layout.seal("cache"), layout.grow("cache", by=1)), "'cache[0]' is sealed"),
        (lambda layout: (layout.seal("full"), layout.grow("full", by=1)), "'full[1]' is sealed"),
        (lambda layout: layout.seal("cache[0]"), "is a piece of the region 'cache'"),
        (lambda layout: layout.seal("cache.head"), "there is no region or reservation or mapping or allocation"),
        (lambda layout: layout.seal("other"), "has no address"),
        (lambda layout: layout.remap("cache", device="gpu.7"), "there is no device 'gpu.7'"),
        (lambda layout: layout.remap("nothing"), "there is no region"),
        (lambda layout: layout.remap("cache#0", device="gpu.1"), "'cache#0' is a piece of the region 'cache'"),
        (lambda layout: layout.shrink("full", by="1 parsec"), "is not a unit"),
    ],
)
def test_impossible_remaps_are_refused(act: Any, says: str, layout: Layout) -> None:
    with pytest.raises(ApplyError) as caught:
        act(layout)
    assert caught.value.diagnostics[0].code == "HP420"
    assert says in str(caught.value)


def test_imported_memory_is_not_recreated(layout: Layout, sim: Simulator) -> None:
    shared = {"hipplan": 1, "allocations": {"mine": {"size": "2MiB", "shareable": "posix_fd"}}}
    import_it = {
        "hipplan": 1,
        "allocations": {"theirs": {"size": "2MiB", "shareable": "posix_fd", "bind": "theirs"}},
        "reservations": {"r": {"size": "8MiB", "access": {"gpu.0": "rw"}, "mappings": [{"allocation": "theirs"}]}},
    }
    with hipplan.apply(shared, runtime="sim") as first:
        descriptor = first.export("mine")
        with hipplan.apply(import_it, runtime="sim", bind={"theirs": descriptor}) as second:
            with pytest.raises(ApplyError, match="'theirs' is imported"):
                second.remap("r")
            with pytest.raises(ApplyError, match="'theirs' is imported"):
                second.grow("r", by="2MiB")
    os.close(descriptor)


@pytest.mark.parametrize(
    ("name", "device", "sealed", "maps"),
    [
        ("cache", None, False, 3 + 3),
        ("cache", None, True, 3 + 3),
        ("cache", "gpu.1", False, 3 + 3 + 3),  # it may read there, and HIP 7.2 would make that rw by the copy
        ("full", None, False, 2 + 2),
        ("twice", None, False, 2 + 1),
        ("twice", "gpu.0", False, 2 + 2),
    ],
)
def test_what_is_copied_is_read_where_it_is_if_its_device_may(
    name: str, device: str | None, sealed: bool, maps: int, layout: Layout, sim: Simulator, tmp_path: Path
) -> None:
    """Else it is mapped a second time; what is new always is."""
    size = places(layout, name)[-1][0] + places(layout, name)[-1][1]
    data = numpy.random.default_rng(1).bytes(size if name != "twice" else size // 2)
    address = layout[name].address
    sim.write(address, data)
    if sealed:
        layout.seal(name)
    layout.runtime.trace_to(str(tmp_path / "trace"))
    try:
        layout.remap(name, device=device)
    finally:
        layout.runtime.trace_to("")
    calls = [json.loads(line)["call"] for line in (tmp_path / "trace").read_text().splitlines()]

    assert calls.count("hipMemMap") == maps
    if (name, device) == ("twice", "gpu.0"):
        address += len(data)  # where that one may read
    assert sim.read(address, len(data)) == data


def test_objects_are_counted_where_the_memory_of_a_run_of_mappings_has_moved(sim: Simulator) -> None:
    plan = {
        "hipplan": 1,
        "devices": {"gpu": {"count": 2}},
        "allocations": {"m": {"device": "gpu.0", "size": "2MiB", "count": 40}},
        "reservations": {"r": {"access": {"gpu.0": "rw", "gpu.1": "rw"}, "mappings": [{"allocation": "m.*"}]}},
        "buffers": {"s": {"kind": "pinned", "size": "4KiB", "count": 40}},
        "regions": {"kv": {"size": "400MiB", "chunk": "2MiB"}},
    }
    with hipplan.apply(plan, runtime="sim") as layout:
        before = how_many(resources_by_kind(layout.program))
        for number in range(40):
            layout.remap(f"m.{number}", device="gpu.1")
        assert how_many(resources_by_kind(layout.program)) == before == 522
