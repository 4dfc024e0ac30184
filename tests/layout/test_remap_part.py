"""layout.remap(part=): whole chunks of a region, or mappings of a reservation, get new memory, here or elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

import hipplan
from hipplan.errors import ApplyError, LayoutInUse
from hipplan.layout.layout import Layout
from hipplan.program import written
from tests.conftest import Simulator
from tests.faults.harness import as_release

MIB = 2**20
RELEASES = ("6.2.41134", "6.4.43484", "7.2.53211", "7.15.0")
RIGHTS = {0: "none", 1: "r", 3: "rw"}
TENSORS = {"head": {"dtype": "u8", "shape": [100]}, "pages": {"dtype": "u8", "shape": [-1]}}


def plan(**keys: Any) -> dict[str, Any]:
    """A region of four chunks on gpu.0."""
    region = {"device": "gpu.0", "size": "8MiB", "chunk": "2MiB", "reserve": "32MiB", "tensors": TENSORS, **keys}
    return {"hipplan": 1, "devices": {"gpu": {"count": 2}}, "regions": {"cache": region}}


def spread(**keys: Any) -> dict[str, Any]:
    """A region whose four chunks alternate between both GPUs."""
    made = plan(devices=["gpu.*"], spread="interleave", **keys)
    del made["regions"]["cache"]["device"]
    return made


MAPPED: dict[str, Any] = {
    "hipplan": 1,
    "devices": {"gpu": {"count": 2}},
    "allocations": {
        "part": {"device": "gpu.0", "size": "2MiB", "count": 3},
        "twice": {"device": "gpu.0", "size": "2MiB"},
    },
    "reservations": {
        "full": {
            "size": "16MiB",
            "access": {"gpu.0": "rw", "gpu.1": "rw"},
            "mappings": [
                {"allocation": "part.0"},
                {"allocation": "part.1", "at": "4MiB"},
                {"allocation": "part.2", "at": "6MiB"},
                {"allocation": "twice", "at": "12MiB"},
            ],
        },
        "empty": {"size": "4MiB"},
        "again": {"access": {"gpu.0": "rw"}, "mappings": [{"allocation": "twice"}]},
    },
}


@pytest.fixture
def layout(sim: Simulator) -> Iterator[Layout]:
    with hipplan.apply(plan(), runtime="sim") as made:
        yield made
    assert sim.alive() == set()


def handles(layout: Layout, name: str = "cache") -> list[int]:
    mapped = [r.memory for r in layout.program.resources if r.kind == "mapping" and r.inside == name]
    return [layout._holding.state.handle_of(memory) for memory in mapped]


def devices(layout: Layout, name: str = "cache") -> list[int]:
    """The device of each chunk, as the driver has it."""
    where = [layout.runtime.properties_of(handle).device for handle in handles(layout, name)]
    planned = [r.device for r in layout.program.resources if r.kind == "mapping" and r.inside == name]
    assert [f"gpu.{ordinal}" for ordinal in where] == planned
    return where


def rights(layout: Layout, name: str = "cache") -> list[str]:
    """What gpu.0 and gpu.1 may do with each chunk, as the driver has it."""
    mapped = [r.name for r in layout.program.resources if r.kind == "mapping" and r.inside == name]
    return [
        " ".join(RIGHTS[layout.runtime.access(device, layout[piece].address)] for device in (0, 1)) for piece in mapped
    ]


def filled(layout: Layout, sim: Simulator, name: str = "cache") -> bytes:
    """Bytes that are written to all of a region."""
    content = numpy.random.default_rng(1).bytes(layout[name].size)
    sim.write(layout[name].address, content)
    return content


@pytest.mark.parametrize("part", ["2MiB..6MiB", slice(2 * MIB, 6 * MIB), (2 * MIB, "6MiB"), " 2MiB .. 6MiB "])
def test_only_these_chunks_get_new_memory_and_all_keep_their_bytes(part: Any, layout: Layout, sim: Simulator) -> None:
    content, before, base = filled(layout, sim), handles(layout), layout["cache"].address
    change = layout.remap("cache", part=part)

    after = handles(layout)
    assert [was == now for was, now in zip(before, after, strict=True)] == [True, False, False, True]
    assert str(change) == "-/+ region cache: 2 of 4 chunks are recreated, with their bytes"
    assert layout["cache"].address == base
    assert sim.read(base, 8 * MIB) == content
    assert layout.drift() == []


@pytest.mark.parametrize(
    ("part", "chunks"), [("..4MiB", [0, 1]), ("6MiB..", [3]), (slice(None, None), [0, 1, 2, 3]), ((None, 2 * MIB), [0])]
)
def test_what_is_left_out_is_the_start_or_the_end(part: Any, chunks: list[int], layout: Layout) -> None:
    before = handles(layout)
    layout.remap("cache", part=part, keep_bytes=False)
    assert [number for number, handle in enumerate(handles(layout)) if handle != before[number]] == chunks


def test_without_the_bytes_those_of_the_part_are_lost_and_the_others_stay(layout: Layout, sim: Simulator) -> None:
    content, base = filled(layout, sim), layout["cache"].address
    change = layout.remap("cache", part="2MiB..4MiB", keep_bytes=False)
    assert "loses 2MiB of its bytes" in str(change)
    assert sim.read(base, 2 * MIB) == content[: 2 * MIB]
    assert sim.read(base + 2 * MIB, 2 * MIB) == bytes(2 * MIB)
    assert sim.read(base + 4 * MIB, 4 * MIB) == content[4 * MIB :]


@pytest.mark.parametrize("release", RELEASES)
def test_a_part_on_another_gpu_is_reported_verified_and_changed_like_any_region(release: str, sim: Simulator) -> None:
    with as_release(sim, release), hipplan.apply(plan(access={"owner": "rw"}), runtime="sim") as layout:
        content = filled(layout, sim)
        change = layout.remap("cache", part="2MiB..6MiB", device="gpu.1")
        moved = "2 of 4 chunks are recreated, gpu.0 -> gpu.1, with their bytes"
        access = "access (gpu.0: rw) -> (owner: rw, others: none)"
        assert str(change) == f"-/+ region cache: {moved}, {access}; gpu.0 loses access"
        assert devices(layout) == [0, 1, 1, 0]
        assert rights(layout) == ["rw none", "none rw", "none rw", "rw none"]
        assert layout["cache"].devices == ("gpu.0", "gpu.1")
        assert dict(layout["cache.pages"].resource.bytes_by_device) == {"gpu.0": 4 * MIB - 256, "gpu.1": 4 * MIB}
        assert layout["cache.head"].devices == ("gpu.0",)
        assert layout.read("cache").tobytes() == content
        assert layout.drift() == []
        assert layout.program.bytes_by_device() == {"gpu.0": 4 * MIB, "gpu.1": 4 * MIB}

        layout.grow("cache", by="2MiB")  # where the plan has the region
        assert devices(layout) == [0, 1, 1, 0, 0]
        layout.seal("cache")
        layout.remap("cache", part="6MiB..8MiB", device="gpu.1")
        assert rights(layout) == ["r none", "none r", "none r", "none r", "r none"]
        layout.unseal("cache")
        assert rights(layout) == ["rw none", "none rw", "none rw", "none rw", "rw none"]
        layout.sleep("cache")
        layout.wake()
        assert (devices(layout), layout.drift()) == ([0, 1, 1, 1, 0], [])
        assert layout.read("cache").tobytes()[: 8 * MIB] == content
        layout.shrink("cache", to="4MiB")
        assert (devices(layout), layout["cache"].devices) == ([0, 1], ("gpu.0", "gpu.1"))
        layout.shrink("cache", to="2MiB")
        assert layout["cache"].devices == ("gpu.0",)
        assert layout.drift() == []
    assert sim.alive() == set()


@pytest.mark.parametrize(
    ("access", "there", "moved"),
    [
        (None, "rw none", "none rw"),
        ({"owner": "rw", "gpu.1": "r"}, "rw r", "none rw"),
        ({"owner": "rw", "gpu.0": "r"}, "r none", "r rw"),
        ({"gpu.0": "rw", "gpu.1": "r"}, "rw r", "rw r"),
    ],
    ids=str,
)
def test_the_access_of_a_part_follows_its_owner_and_comes_back(
    access: dict[str, str] | None, there: str, moved: str, sim: Simulator
) -> None:
    keys = {"access": access} if access else {}
    with hipplan.apply(plan(**keys), runtime="sim") as layout:
        assert rights(layout) == [there] * 4
        layout.remap("cache", part="2MiB..4MiB", device="gpu.1")
        expected = moved if access != {"owner": "rw", "gpu.1": "r"} else "none r"  # a name is more exact than `owner`
        assert rights(layout) == [there, expected, there, there]
        layout.seal("cache")
        layout.unseal("cache")
        assert rights(layout) == [there, expected, there, there]
        layout.remap("cache", part="2MiB..4MiB", device="gpu.0")
        assert rights(layout) == [there] * 4
        assert layout["cache"].devices == ("gpu.0",)
        assert layout.drift() == []


def test_a_device_that_had_no_rights_gets_them_with_its_part_and_loses_them(sim: Simulator) -> None:
    """A mapping without any right has no step that sets rights."""
    with hipplan.apply(plan(access={"owner": "none", "gpu.1": "r"}), runtime="sim") as layout:
        layout.remap("cache", part="2MiB..4MiB", device="gpu.1", keep_bytes=False)
        assert rights(layout) == ["none r"] * 4
        layout.remap("cache", part="2MiB..4MiB", device="gpu.0", keep_bytes=False)
        assert layout.drift() == []
    with hipplan.apply(plan(access={"owner": "rw", "gpu.1": "none"}), runtime="sim") as layout:
        layout.remap("cache", part="2MiB..4MiB", device="gpu.1")
        assert rights(layout) == ["rw none", "none none", "rw none", "rw none"]
        layout.remap("cache", part="2MiB..4MiB", device="gpu.0")
        assert rights(layout) == ["rw none"] * 4
        assert layout.drift() == []


def test_a_part_moves_only_to_a_device_with_access(sim: Simulator) -> None:
    with hipplan.apply(plan(access={"gpu.0": "rw"}), runtime="sim") as layout:
        before = sim.alive()
        with pytest.raises(ApplyError, match=r"no access to 'cache' for gpu\.1[^!]*access: {owner: rw}"):
            layout.remap("cache", part="..2MiB", device="gpu.1")
        with pytest.raises(ApplyError, match=r"there is no device 'gpu\.2'"):
            layout.remap("cache", part="..2MiB", device="gpu.2")
        assert sim.alive() == before


def test_a_chunk_of_a_region_over_two_gpus_moves_between_them(sim: Simulator) -> None:
    with hipplan.apply(spread(access={"owner": "rw", "others": "r"}), runtime="sim") as layout:
        assert (devices(layout), rights(layout)) == ([0, 1, 0, 1], ["rw r", "r rw", "rw r", "r rw"])
        change = layout.remap("cache", part="..2MiB", device="gpu.1")
        assert "1 of 4 chunks is recreated, gpu.0 -> gpu.1" in str(change)
        assert (devices(layout), rights(layout)) == ([1, 1, 0, 1], ["r rw", "r rw", "rw r", "r rw"])
        assert layout["cache"].devices == ("gpu.1", "gpu.0")
        layout.grow("cache", by="2MiB")
        assert devices(layout) == [1, 1, 0, 1, 0]
        assert layout.drift() == []


@pytest.mark.parametrize("make", [plan, spread])
def test_all_of_a_region_as_a_part_is_the_region(make: Any, sim: Simulator) -> None:
    with hipplan.apply(make(), runtime="sim") as layout, hipplan.apply(make(), runtime="sim") as other:
        assert str(layout.remap("cache", part="..", device="gpu.1")) == str(other.remap("cache", device="gpu.1"))
        assert layout["cache"].resource == other["cache"].resource
        for changed in (layout, other):
            changed.grow("cache", by="2MiB")
        assert devices(layout) == devices(other) == [1] * 5
        assert rights(layout) == rights(other)


def test_a_region_in_parts_is_moved_as_a_whole_and_updated_to_its_plan(sim: Simulator) -> None:
    with hipplan.apply(plan(), runtime="sim") as layout:
        content = filled(layout, sim)
        layout.remap("cache", part="2MiB..4MiB", device="gpu.1")
        with pytest.raises(ApplyError, match="HP423"):
            layout.update(plan())
        change = layout.update(plan(), lose="cache")
        assert "1 of 4 chunks is recreated, gpu.1 -> gpu.0" in str(change)
        layout.remap("cache", part="2MiB..4MiB", device="gpu.1")
        layout.remap("cache")
        assert devices(layout) == [0, 1, 0, 0]
        layout.remap("cache", device="gpu.1")
        assert (devices(layout), layout["cache"].device) == ([1] * 4, "gpu.1")
        assert sim.read(layout["cache"].address, 2 * MIB) == content[: 2 * MIB]
        assert layout.drift() == []


def test_a_region_in_parts_is_written_read_and_drawn(layout: Layout) -> None:
    layout.remap("cache", part="2MiB..4MiB", device="gpu.1")
    again = written.read(written.write(layout.program))
    assert again == layout.program
    assert again.resources == layout.program.resources
    assert again.owners == layout.program.owners
    assert again.taken == layout.program.taken
    assert again.numbers == layout.program.numbers
    assert "gpu.0, gpu.1" in layout.draw().svg
    change = layout.remap("cache", part="2MiB..4MiB", device="gpu.0")
    assert "gpu.1" in hipplan.draw(change).svg


def test_views_of_the_part_are_in_the_way_and_views_of_the_rest_are_not(layout: Layout) -> None:
    view = layout["cache.head"].__dlpack__(max_version=(1, 0))  # in the first chunk
    layout.remap("cache", part="2MiB..", device="gpu.1")
    with pytest.raises(LayoutInUse, match=r"'cache.head'"):
        layout.remap("cache", part="..2MiB")
    del view
    piece = layout["cache"]
    layout.remap("cache", part="..2MiB")
    with pytest.raises(BufferError):
        memoryview(piece)


def test_a_pattern_takes_the_part_of_each(sim: Simulator) -> None:
    source = plan()
    source["regions"] = {"kv": {"each": 2, **source["regions"]["cache"]}, "short": {"device": "gpu.0", "size": "2MiB"}}
    with hipplan.apply(source, runtime="sim") as layout:
        layout.remap("kv.*", part="2MiB..4MiB", device="gpu.1")
        assert devices(layout, "kv.0") == devices(layout, "kv.1") == [0, 1, 0, 0]
        with pytest.raises(ApplyError, match=r"2MiB\.\.4MiB goes past the end of 'short'"):
            layout.remap("*", part="2MiB..4MiB", device="gpu.0")
        assert devices(layout, "kv.0") == [0, 1, 0, 0]
        layout.remap("*", part="..2MiB", device="gpu.1")
        assert devices(layout, "kv.1") == [1, 1, 0, 0]
        assert devices(layout, "short") == [1]
        assert layout.drift() == []


def test_whole_mappings_of_a_reservation(sim: Simulator) -> None:
    with hipplan.apply(MAPPED, runtime="sim") as layout:
        before = handles(layout, "full")
        layout.fill("full[1]", 5)
        layout.remap("full", part="2MiB..8MiB", device="gpu.1")  # it begins in a hole
        assert devices(layout, "full") == [0, 1, 1, 0]
        assert [was == now for was, now in zip(before, handles(layout, "full"), strict=True)] == [
            True,
            False,
            False,
            True,
        ]
        assert set(rights(layout, "full")) == {"rw rw"}
        assert set(layout.read("full[1]").tobytes()) == {5}
        layout.fill("full[3]", 6)
        layout.remap("full", part="12MiB..")
        assert set(layout.read("again[0]").tobytes()) == {6}  # the same memory at another place
        layout.remap("full", part="..14MiB", device="gpu.0", keep_bytes=False)
        assert devices(layout, "full") == [0, 0, 0, 0]
        assert layout.drift() == []
    assert sim.alive() == set()


def test_a_reservation_that_has_grown_beyond_its_addresses(sim: Simulator) -> None:
    range_ = {"address": 0x7E0000000000, "access": {"gpu.*": "rw"}, "mappings": [{"allocation": "a"}]}
    source = {
        "hipplan": 1,
        "devices": {"gpu": {"count": 2}},
        "allocations": {"a": {"device": "gpu.0", "size": "2MiB"}},
        "reservations": {"r": range_},
    }
    with hipplan.apply(source, runtime="sim") as layout:
        layout.grow("r", by="4MiB")
        layout.fill("r[1]", 7)
        before = handles(layout, "r")
        layout.remap("r", part="2MiB..6MiB", device="gpu.1")
        after = handles(layout, "r")
        assert (after[0] == before[0], set(after[1:]) & set(before)) == (True, set())
        assert devices(layout, "r") == [0, *[1] * (len(after) - 1)]
        assert set(layout.read("r[1]").tobytes()) == {7}
        assert layout.drift() == []


UNEVEN = {
    "small": {"dtype": "u8", "shape": [2 * MIB], "device": "gpu.0"},
    "large": {"dtype": "u8", "shape": [6 * MIB], "device": "gpu.1"},
}


@pytest.mark.parametrize("release", RELEASES[1:])
def test_parts_of_unequal_sizes_on_each_release(release: str, sim: Simulator) -> None:
    """HIP 7.0 to 7.2 have the large one in pieces."""
    data = spread(access={"owner": "rw", "others": "r"}, tensors=UNEVEN)
    data["regions"]["cache"] = {
        key: item for key, item in data["regions"]["cache"].items() if key not in ("size", "chunk", "reserve", "spread")
    }
    defects = ["set_access_sums_in_heap_order"] if release.startswith("7.2") else []
    with as_release(sim, release, *defects), hipplan.apply(data, runtime="sim") as layout:
        layout.fill("cache.large", 3)
        with pytest.raises(ApplyError, match="4MiB is between its borders at 2MiB and 8MiB"):
            layout.remap("cache", part="2MiB..4MiB")
        layout.remap("cache", part="2MiB..8MiB", device="gpu.0")
        assert layout["cache"].devices == ("gpu.0",) or dict(layout["cache"].resource.bytes_by_device) == {
            "gpu.0": 8 * MIB
        }
        assert set(layout.read("cache.large").tobytes()) == {3}
        assert rights(layout) == ["rw r"] * 2
        layout.remap("cache", part="..2MiB", device="gpu.1")
        assert rights(layout) == ["r rw", "rw r"]
        assert layout.drift() == []
    assert sim.alive() == set()


@pytest.mark.parametrize("part", ["..2MiB", "2MiB..8MiB", "8MiB..", "2MiB.."])
def test_a_part_is_found_among_chunks_of_unequal_sizes(part: str, sim: Simulator) -> None:
    sizes = {"gpu.0": 2 * MIB, "gpu.1": 6 * MIB, "gpu.2": 2 * MIB}
    tensors = {f"on-{device[-1]}": {"dtype": "u8", "shape": [size], "device": device} for device, size in sizes.items()}
    region = {"devices": [*sizes], "tensors": tensors}
    source = {"hipplan": 1, "devices": {"gpu": {"count": 3}}, "regions": {"r": region}}
    with hipplan.apply(source, runtime="sim", machine="mi300x-8") as layout:
        content, before = filled(layout, sim, "r"), handles(layout, "r")
        layout.remap("r", part=part)
        begins, ends = (text.removesuffix("MiB") for text in part.split(".."))
        inside = [int(begins or 0) <= at and end <= int(ends or 10) for at, end in ((0, 2), (2, 8), (8, 10))]
        assert [was != now for was, now in zip(before, handles(layout, "r"), strict=True)] == inside
        assert sim.read(layout["r"].address, 10 * MIB) == content
        assert layout.drift() == []


def test_a_region_whose_chunks_have_all_moved_is_where_they_are(layout: Layout) -> None:
    layout.remap("cache", part="..4MiB", device="gpu.1")
    layout.remap("cache", part="4MiB..", device="gpu.1")
    assert (layout["cache"].resource.device, layout["cache"].devices) == ("gpu.1", ("gpu.1",))
    assert layout["cache"].resource.access == (("gpu.1", "rw"),)
    layout.grow("cache", by="2MiB")
    assert layout["cache"].devices == ("gpu.1", "gpu.0")


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ("1MiB..4MiB", "1MiB..4MiB is not whole chunks of 'cache'\n.*1MiB is between its borders at 0B and 2MiB\n"),
        ("2MiB..5MiB", '5MiB is between its borders at 4MiB and 6MiB\n.*hint: part="2MiB..6MiB"'),
        ("3MiB..5MiB", "3MiB is between its borders at 2MiB and 4MiB; 5MiB is between .* 4MiB and 6MiB"),
        ("1..2", "2B is between its borders at 0B and 2MiB"),
        ("2MiB..10MiB", "2MiB..10MiB goes past the end of 'cache'\n.*8MiB are mapped"),
        ("8MiB..", "8MiB..8MiB of 'cache' has no bytes"),
        ("4MiB..2MiB", "4MiB..2MiB of 'cache' has no bytes"),
        ("4MiB", "part='4MiB' is no part of a range"),
        ("", "part='' is no part of a range"),
        ("0..1 parsec", "'parsec' is not a unit of bytes"),
        ("0..2MiB..4MiB", "'2MiB..4MiB' is not a size"),
        ((0, -1), "-1 is negative"),
        ((0, 2**70), "past every address space"),
        ((0.5, None), "not a fraction"),
        ((True, None), "not true or false"),
        ((1, 2, 3), "part is a range of bytes, not a tuple"),
        (slice(0, 4, 2), "not a slice with a step"),
        (5, "part is a range of bytes, not an integer"),
    ],
)
def test_what_is_no_whole_part_is_refused(part: Any, says: str, layout: Layout, sim: Simulator) -> None:
    before = sim.alive()
    with pytest.raises(ApplyError, match=says) as caught:
        layout.remap("cache", part=part)
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == ["HP420"]
    assert sim.alive() == before


@pytest.mark.parametrize(
    ("name", "part", "says"),
    [
        ("full", "..1MiB", "0B..1MiB is not whole mappings of 'full'"),
        ("full", "5MiB..7MiB", "5MiB is between its borders at 4MiB and 6MiB; 7MiB is .* 6MiB and 8MiB"),
        ("full", "2MiB..4MiB", "nothing is mapped in 2MiB..4MiB of 'full'"),
        ("full", "..16MiB", "goes past the end of 'full'"),
        ("empty", "..", "has no bytes"),
        ("full[0]", "..", "there is no region or reservation 'full\\[0\\]' to change"),
        ("part.0", "..", "there is no region or reservation 'part.0'"),
        ("part.*", "..", "no region or reservation is called 'part.\\*'"),
        ("twice", "..2MiB", "there is no region or reservation 'twice'"),
    ],
)
def test_only_whole_mappings_of_a_reservation(name: str, part: str, says: str, sim: Simulator) -> None:
    with hipplan.apply(MAPPED, runtime="sim") as layout, pytest.raises(ApplyError, match=says) as caught:
        layout.remap(name, part=part)
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == ["HP420"]


def test_a_part_of_a_region_that_sleeps_is_refused(layout: Layout) -> None:
    layout.sleep("cache", to="drop")
    with pytest.raises(ApplyError, match="HP441"):
        layout.remap("cache", part="..2MiB")


def test_imported_memory_in_the_part_is_refused_and_beside_it_is_not(sim: Simulator) -> None:
    shared = {"hipplan": 1, "allocations": {"mine": {"size": "2MiB", "shareable": "posix_fd"}}}
    both = [{"allocation": "theirs"}, {"allocation": "own"}]
    importing = {
        "hipplan": 1,
        "allocations": {
            "theirs": {"size": "2MiB", "shareable": "posix_fd", "bind": "theirs"},
            "own": {"size": "2MiB", "shareable": "posix_fd"},
        },
        "reservations": {"r": {"access": {"gpu.0": "rw"}, "mappings": both}},
    }
    with hipplan.apply(shared, runtime="sim") as first:
        descriptor = first.export("mine")
        with hipplan.apply(importing, runtime="sim", bind={"theirs": descriptor}) as second:
            with pytest.raises(ApplyError, match="'theirs' is imported"):
                second.remap("r", part="..2MiB")
            second.remap("r", part="2MiB..")
            assert second.drift() == []
            os.close(second.export("own"))  # the new memory
    os.close(descriptor)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_carried_on_is_what_is_found_out_again(seed: int, sim: Simulator) -> None:
    """A region of which parts move, grow and shrink at random, against its program read from text."""
    numbers = numpy.random.default_rng(seed)
    with hipplan.apply(plan(access={"gpu.0": "rw", "gpu.1": "r"}), runtime="sim") as layout:
        for _ in range(12):
            act, chunks = numbers.integers(4), layout["cache"].size // (2 * MIB)
            if act == 0 and chunks < 16:
                layout.grow("cache", by="2MiB")
            elif act == 1 and chunks > 1:
                layout.shrink("cache", by="2MiB")
            else:
                first = int(numbers.integers(chunks))
                end = int(numbers.integers(first, chunks)) + 1
                where = [None, "gpu.0", "gpu.1"][numbers.integers(3)]
                layout.remap("cache", part=(first * 2 * MIB, end * 2 * MIB), device=where, keep_bytes=bool(act == 2))
            program = layout.program
            again = written.read(written.write(program))
            for fact in ("makers", "rights", "owners", "taken", "range_sizes", "numbers", "bindings", "contents"):
                assert getattr(program, fact) == getattr(again, fact), fact
            assert program.regions["cache"].devices == again.regions["cache"].devices
            assert layout["cache"].resource == next(r for r in again.resources if r.name == "cache")
            assert layout.drift() == []
    assert sim.alive() == set()
