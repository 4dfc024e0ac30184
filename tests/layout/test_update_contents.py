"""What an update fills: bytes that are new, wherever they are, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest

import hipplan
from hipplan.errors import ApplyError
from hipplan.layout.layout import Layout
from hipplan.program.contents import staging_name
from tests.conftest import Simulator

MIB = 2**20


def plan(contents: dict[str, Any], devices: int = 2, **nouns: Any) -> dict[str, Any]:
    return {"hipplan": 1, "devices": {"gpu": {"count": devices}}, **nouns, "contents": contents}


def region(**keys: Any) -> dict[str, Any]:
    return {"chunk": "2MiB", "reserve": "16MiB", "access": {"gpu.0": "rw", "gpu.1": "rw"}, **keys}


def bytes_of(layout: Layout, name: str) -> list[int]:
    """Which bytes there are, from the first to the last, runs told once."""
    piece = layout[name]
    data = numpy.frombuffer(layout.runtime.read(piece.address, piece.nbytes), "u1")
    return data[numpy.flatnonzero(numpy.diff(data, prepend=-1))].tolist()


VALUE = {"r": {"value": 7}}


@pytest.mark.parametrize("noun", ["buffers", "regions"])
def test_what_moves_to_another_device_is_filled_there(noun: str, sim: Simulator) -> None:
    def on(device: str) -> dict[str, Any]:
        what = region(size="4MiB") if noun == "regions" else {"kind": "device", "size": "4MiB"}
        return plan(VALUE, **{noun: {"r": {**what, "device": device}}})

    with hipplan.apply(on("gpu.0"), runtime="sim") as layout:
        layout.update(on("gpu.1"), lose="*")

        assert bytes_of(layout, "r") == [7]


def test_of_a_region_that_grows_only_the_new_memory_is_filled(sim: Simulator) -> None:
    def of(size: str) -> dict[str, Any]:
        return plan(VALUE, regions={"r": region(size=size)})

    with hipplan.apply(of("2MiB"), runtime="sim") as layout:
        layout.fill("r", 1)
        layout.update(of("6MiB"))

        assert bytes_of(layout, "r") == [1, 7]
        layout.update(of("6MiB"))
        assert bytes_of(layout, "r") == [1, 7]
        layout.grow("r", by="2MiB")
        layout.fill("r", 2)
        layout.remap("r")
        assert bytes_of(layout, "r") == [2]
        layout.update(of("6MiB"), lose="*")
        assert bytes_of(layout, "r") == [2]


def test_every_other_chunk_that_moves_is_filled_with_its_own_bytes_of_a_file(sim: Simulator, tmp_path: Path) -> None:
    numbers = numpy.arange(MIB, dtype="u4")
    numpy.save(tmp_path / "t.npy", numbers)
    regions = {"r": region(tensors={"t": {"dtype": "u32", "shape": [MIB]}}), "s": region(size="4MiB")}

    def over(*devices: str) -> dict[str, Any]:
        spread: dict[str, Any] = {"devices": list(devices), "spread": "interleave"} if len(devices) > 1 else {}
        both = {name: {**one, **spread, "size": "4MiB"} for name, one in regions.items()}
        contents = {"r.t": {"file": str(tmp_path / "t.npy")}, "s": {"copy_of": "r"}}
        return plan(contents, regions=both)

    with hipplan.apply(over("gpu.0"), runtime="sim") as layout:
        base, other = layout["r"].address, layout["s"].address
        for name in "rs":
            layout.fill(name, 255)
        layout.update(over("gpu.0", "gpu.1"), lose="*")

        assert layout.runtime.read(base, 2 * MIB) == b"\xff" * 2 * MIB
        assert layout.runtime.read(base + 2 * MIB, 2 * MIB) == numbers.tobytes()[2 * MIB :]
        assert layout.runtime.read(other, 2 * MIB) == b"\xff" * 2 * MIB
        assert layout.runtime.read(other + 2 * MIB, 2 * MIB) == numbers.tobytes()[2 * MIB :]


def of_tensors(value: dict[str, int], **tensors: Any) -> dict[str, Any]:
    contents = {f"r.{name}": {"value": number} for name, number in value.items()}
    return plan(contents, regions={"r": region(size="2MiB", tensors=tensors)})


def test_a_new_tensor_of_a_region_is_filled_and_its_neighbours_stay(sim: Simulator) -> None:
    u8 = {"dtype": "u8", "shape": [4096]}
    with hipplan.apply(of_tensors({"a": 1}, a=u8), runtime="sim") as layout:
        layout.fill("r.a", 5)
        layout.update(of_tensors({"a": 1, "b": 7}, a=u8, b=u8, c=u8), lose="*")

        assert [bytes_of(layout, f"r.{name}") for name in "abc"] == [[5], [7], [0]]


@pytest.mark.parametrize(
    ("was", "now", "filled"),
    [
        ({"dtype": "u8", "shape": [64, 8]}, {"dtype": "u8", "shape": [64, 8]}, [5]),
        ({"dtype": "u8", "shape": [64, 8]}, {"dtype": "u8", "shape": [96, 8]}, [5, 7]),
        ({"dtype": "u8", "shape": [64, 8]}, {"dtype": "u8", "shape": [32, 8]}, [5]),
        ({"dtype": "u8", "shape": [64, 8]}, {"dtype": "u8", "shape": [32, 16]}, [7]),
        ({"dtype": "u8", "shape": [64]}, {"dtype": "i8", "shape": [64]}, [7]),
        ({"dtype": "u8", "shape": [64]}, {"dtype": "u8", "shape": [64], "alignment": 8192}, [7]),
    ],
)
def test_elements_that_lie_where_they_lay_stay(was: Any, now: Any, filled: list[int], sim: Simulator) -> None:
    first = {"dtype": "u8", "shape": [1]}
    with hipplan.apply(of_tensors({"t": 1}, first=first, t=was), runtime="sim") as layout:
        layout.fill("r.t", 5)
        layout.update(of_tensors({"t": 7}, first=first, t=now), lose="*")

        assert bytes_of(layout, "r.t") == filled


def test_a_device_that_is_new_gets_what_moves_bytes_to_it(sim: Simulator) -> None:
    one = {"a": {"kind": "device", "size": 4096}}
    with hipplan.apply(plan({"a": {"value": 1}}, devices=1, buffers=one), runtime="sim") as layout:
        two = {**one, "b": {"kind": "device", "device": "gpu.1", "size": 4096}}
        layout.update(plan({"a": {"value": 1}, "b": {"value": 2}}, buffers=two))

        assert bytes_of(layout, "b") == [2]


def test_files_are_looked_at_before_anything_else(sim: Simulator, tmp_path: Path) -> None:
    small = {"a": {"kind": "pinned", "size": 64}}
    with hipplan.apply(plan({}, buffers=small), runtime="sim") as layout:
        calls: list[str] = []
        with pytest.raises(ApplyError, match="HP405"):
            layout.update(
                plan({"b": {"file": str(tmp_path / "none.bin")}}, buffers={**small, "b": small["a"]}),
                on_step=lambda _, step: calls.append(step.call),
            )
        assert calls == []


@pytest.mark.parametrize("contents", [{}, {"a": {"value": 1}}])
def test_what_moves_bytes_stays_until_the_layout_closes(contents: dict[str, Any], sim: Simulator) -> None:
    buffers = {"a": {"kind": "device", "size": 4096}, "b": {"kind": "device", "device": "gpu.1", "size": 4096}}
    with hipplan.apply(plan(contents, buffers=buffers), runtime="sim") as layout:
        layout.fill("a", 2)
        layout.fill("b", 2)
        alive, addresses = sim.alive(), [layout[staging_name(device)].address for device in (0, 1)]
        same = layout.update(plan({}, buffers=buffers))

        assert same.empty
        assert str(same) == "no changes"
        layout.update(plan({"b": {"value": 1}}, buffers={**buffers, "c": {"kind": "pinned", "size": 4096}}))
        layout.update(plan(contents, buffers=buffers), lose="*")
        assert sim.alive() == alive
        assert [layout[staging_name(device)].address for device in (0, 1)] == addresses


def test_what_moves_bytes_goes_with_its_device(sim: Simulator) -> None:
    one = {"a": {"kind": "device", "size": 4096}}
    two = {**one, "b": {"kind": "device", "device": "gpu.1", "size": 4096}}
    with hipplan.apply(plan({}, buffers=two), runtime="sim") as layout:
        layout.fill("b", 2)
        change = layout.update(plan({}, devices=1, buffers=one), lose="*")

        assert str(change) == "- device b: 4KiB; loses its bytes"
        assert staging_name(1) not in layout
        layout.update(plan({}, buffers=two))
        layout.fill("b", 3)
        assert bytes_of(layout, "b") == [3]


def of_mappings(*mappings: dict[str, str], contents: dict[str, Any]) -> dict[str, Any]:
    """Each of an allocation of 4 MiB; there are a and b."""
    allocations = {name: {"size": "4MiB", "granularity": "minimum"} for name in "ab"}
    reservation = {"size": "16MiB", "access": {"gpu.0": "rw"}, "mappings": list(mappings)}
    return plan(contents, allocations=allocations, reservations={"range": reservation})


A, B, HALF = {"allocation": "a"}, {"allocation": "b"}, {"allocation": "a", "size": "2MiB"}
BOTH = {"range[0]": {"value": 1}, "range[1]": {"value": 2}}


@pytest.mark.parametrize(
    ("was", "now", "filled"),
    [
        ((A, B), (A, B), [[8], [9]]),
        ((A, B), (B, A), [[1], [2]]),
        ((A,), (A, B), [[8], [2]]),
        ((A, B), (A, {**B, "at": "8MiB"}), [[8], [9]]),
        ((HALF, B), (A, B), [[8, 1], [9]]),
        ((A, B), (HALF, B), [[8], [9]]),
    ],
    ids=["same", "swapped", "more", "moved", "grown", "shrunk"],
)
def test_what_a_mapping_did_not_map_is_filled(was: Any, now: Any, filled: list[list[int]], sim: Simulator) -> None:
    there = {name: BOTH[name] for name in list(BOTH)[: len(was)]}
    with hipplan.apply(of_mappings(*was, contents=there), runtime="sim") as layout:
        for number, name in enumerate(there):
            layout.fill(name, 8 + number)
        layout.update(of_mappings(*now, contents=BOTH), lose="*")

        assert [bytes_of(layout, name) for name in BOTH] == filled


def test_contents_where_none_were_are_reported_and_make_nothing(sim: Simulator) -> None:
    buffers = {"a": {"kind": "device", "size": 4096}}
    with hipplan.apply(plan({}, buffers=buffers), runtime="sim") as layout:
        alive = sim.alive()
        change = layout.update(plan({"a": {"value": 7}}, buffers=buffers))

        assert str(change) == "no changes\nnote: other contents of a are not loaded: their bytes stay unchanged"
        assert not change
        assert sim.alive() == alive
        more = {**buffers, "b": {"kind": "device", "size": 4096}, "c": {"kind": "pinned", "size": 4096}}
        layout.update(plan({name: {"value": 7} for name in more}, buffers=more))
        assert [bytes_of(layout, name) for name in more] == [[0], [7], [7]]


@pytest.mark.parametrize("noun", ["regions", "buffers", "reservations"])
def test_the_name_contents_is_a_name_as_any_other(noun: str, sim: Simulator) -> None:
    mapped = {"size": "8MiB", "access": {"gpu.0": "rw"}, "mappings": [{"allocation": "a"}]}
    what = {
        "regions": region(size="2MiB"), "buffers": {"kind": "device", "size": 4096}, "reservations": mapped
    }[noun]  # fmt: skip
    allocations = {"a": {"size": "2MiB"}} if noun == "reservations" else {}
    name = "contents[0]" if noun == "reservations" else "contents"
    document = plan({name: {"value": 1}}, allocations=allocations, **{noun: {"contents": what}})
    with hipplan.apply(document, runtime="sim") as layout:
        assert bytes_of(layout, name) == [1]
        if noun != "buffers":
            layout.grow("contents", by="2MiB")
        layout.fill(name, 2)
        assert bytes_of(layout, name) == [2]
        assert layout.drift() == []


@pytest.mark.parametrize("to", ["host", "drop"])
def test_contents_for_memory_that_sleeps_are_refused(to: str, sim: Simulator) -> None:
    def plan(size: int, **more: int) -> dict[str, Any]:
        tensors = {name: {"dtype": "u8", "shape": [bytes_]} for name, bytes_ in {"h": size, **more}.items()}
        region = {"size": "4MiB", "chunk": "2MiB", "tensors": tensors}
        return {"hipplan": 1, "regions": {"c": region}, "contents": {f"c.{name}": {"value": 3} for name in tensors}}

    with hipplan.apply(plan(1000), runtime="sim") as layout:
        layout.sleep("c", to=to)
        for new in (plan(2000), plan(1000, k=50)):
            with pytest.raises(hipplan.ApplyError, match=r"HP441.*'c', or part of it, is asleep"):
                layout.update(new, lose="*")
        layout.wake()
        assert set(layout.read("c.h")) == {3}
        layout.update(plan(1000, k=50), lose="*")
        assert set(layout.read("c.k")) == {3}
