"""Regions grow and shrink at a fixed base; what stays keeps its bytes, its views and its handles."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan import _core
from hipplan.errors import ApplyError, LayoutInUse
from hipplan.layout.engine import carry_out
from hipplan.layout.layout import Layout
from hipplan.layout.options import Options
from hipplan.layout.verbs import Grow
from hipplan.program import extend, resize, sealing
from hipplan.program.difference import difference
from hipplan.program.program import Program
from tests.conftest import Simulator

MIB = 2**20
PLAN = """
hipplan: 1
devices: {gpu: {count: 2}}
regions:
  cache:
    device: gpu.1
    reserve: 64MiB
    chunk: 2MiB
    size: SIZE
    access: {gpu.1: rw, gpu.0: r}
    tensors:
      head: {dtype: f32, shape: [1024]}
      pages: {dtype: bf16, shape: [-1, 128]}
buffers:
  other: {kind: device, size: 1MiB}
"""


def plan(size: str) -> str:
    return PLAN.replace("SIZE", size)


def calls(sim: Simulator, trace: Path, act: Any) -> list[str]:
    """The driver calls that an act makes."""
    trace.touch()
    sim.runtime.trace_to(str(trace))
    act()
    sim.runtime.trace_to("")
    return [json.loads(line)["call"] for line in trace.read_text().splitlines()]


def facts(layout: Layout) -> dict[str, Any]:
    """All that a user sees, but for the addresses."""
    return {resource.name: resource for resource in layout.program.resources}


def test_a_grown_region_is_what_the_larger_plan_makes(sim: Simulator) -> None:
    with hipplan.apply(plan("4MiB"), runtime="sim") as grown, hipplan.apply(plan("10MiB"), runtime="sim") as fresh:
        grown.grow("cache", by="5MiB")  # three chunks

        assert facts(grown) == facts(fresh)
        assert {(c.name, c.what) for c in grown.verify()} == {(c.name, c.what) for c in fresh.verify()}
        assert grown.drift() == []
        grown.shrink("cache", by="7MiB")  # three chunks
        assert grown["cache"].size == 4 * MIB
        grown.grow("cache", to="9.5MiB")
        assert facts(grown) == facts(fresh)


def test_the_base_stays_and_so_do_bytes_and_views(sim: Simulator) -> None:
    with hipplan.apply(plan("4MiB"), runtime="sim") as layout:
        base = layout["cache"].address
        assert base is not None
        before = layout["cache.pages"]
        view = before.__dlpack__()
        sim.write(base + 3 * MIB, b"here")
        layout.grow("cache", to="16MiB")
        pages = layout["cache.pages"]

        assert layout["cache"].address == base
        assert (before.shape[0], pages.shape[0]) == (16368, 65520)
        assert pages.address == before.address
        assert sim.read(base + 3 * MIB, 4) == b"here"
        sim.write(base + 15 * MIB, b"there")
        assert sim.runtime.access(0, base + 15 * MIB) == 1
        layout.shrink("cache", to="4MiB")  # the view covers only what stays
        assert sim.read(base + 3 * MIB, 4) == b"here"
        del view


def test_memory_with_views_is_not_freed(sim: Simulator, tmp_path: Path) -> None:
    with hipplan.apply(plan("8MiB"), runtime="sim") as layout:
        view = layout["cache.pages"].__dlpack__()

        def shrink() -> None:
            with pytest.raises(LayoutInUse, match=r"HP409.*\n.*'cache.pages' \(1\)"):
                layout.shrink("cache", to="4MiB")

        assert calls(sim, tmp_path / "trace", shrink) == []
        assert layout["cache"].size == 8 * MIB
        del view
        stale = layout["cache.pages"]
        layout.shrink("cache", to="4MiB")
        with pytest.raises(BufferError, match="was freed"):
            stale.__dlpack__()
        layout.grow("cache", to="8MiB")
        with pytest.raises(BufferError, match="was freed"):
            stale.__dlpack__()  # other memory at the same addresses
        assert layout["cache.pages"].__dlpack__()


def test_growing_costs_three_calls_a_chunk_however_large_the_region_is(sim: Simulator, tmp_path: Path) -> None:
    with hipplan.apply(plan("40MiB"), runtime="sim") as layout:
        made = calls(sim, tmp_path / "trace", lambda: layout.grow("cache", by=1))
        changing = [call for call in made if call in ("hipMemCreate", "hipMemMap", "hipMemSetAccess")]

        assert changing == ["hipMemCreate", "hipMemMap", "hipMemSetAccess"]
        assert len(made) < 16  # and the reading back of one chunk
        assert "hipDeviceSynchronize" not in made
        assert calls(sim, tmp_path / "nothing", lambda: layout.grow("cache", to="1MiB")) == []


def test_what_is_only_more_is_the_same_difference_by_the_short_way(sim: Simulator) -> None:
    with hipplan.apply(plan("8MiB"), runtime="sim") as layout:
        old = layout.program
        new = resize.grown(old, ["cache"], by="4MiB")
        short, long = difference(old, new), difference(old, new, {"nothing"})

        assert short == long
        mapped = ["cache[4]", "cache[4]", "cache[5]", "cache[5]"]
        assert [step.name for step in short.additions] == ["cache#4", "cache#5", *mapped]


def test_a_small_change_of_a_large_region_is_seen(sim: Simulator) -> None:
    cache = {"size": "16GiB", "chunk": "2MiB", "reserve": "32GiB"}
    with hipplan.apply({"hipplan": 1, "regions": {"cache": cache}}, runtime="sim") as layout:
        assert str(layout.grow("cache", by="4MiB")).endswith("grows, 16GiB -> 16.0GiB (17,184,063,488 bytes)")
        assert "17,184,063,488 bytes) -> 16.0GiB (17,181,966,336 bytes" in str(layout.shrink("cache", by="2MiB"))


@pytest.mark.parametrize("chunks", [3, 64])
def test_regions_that_change_together_are_the_same_difference_by_the_short_way(chunks: int) -> None:
    cache = {"each": 4, "size": chunks * 2 * MIB, "chunk": "2MiB", "reserve": chunks * 4 * MIB}
    old = hipplan.compile({"hipplan": 1, "regions": {"cache": cache, "other": {"size": "4MiB"}}}, "sim-2")
    names = ["cache.1", "cache.3"]
    for new, steps in ((resize.grown(old, names, by="4MiB"), 12), (resize.shrunk(old, names, by="2MiB"), 4)):
        assert new.comes_from(old)
        short, long = difference(old, new), difference(old, new, {"nothing"})
        assert short == long
        assert len(short.additions) + len(short.gone) == steps


FACTS = ("makers", "slots", "owners", "taken", "range_sizes", "rights", "numbers")


@pytest.mark.parametrize("contents", [{}, {"table[2]": {"value": 1}, "counted[38]": {"value": 2}}])
@pytest.mark.parametrize("names", [["table"], ["counted"], ["table", "counted"], ["other"]])
@pytest.mark.parametrize("which", ["planned", "sealed", "grown"])
def test_reservations_that_shrink_are_the_same_difference_by_the_short_way(
    which: str, names: list[str], contents: dict[str, Any]
) -> None:
    """Memory that is mapped twice, of several sizes, of a count, sealed, and addresses that were added for growing."""
    memory = {"small": {"size": 2 * MIB}, "large": {"size": 6 * MIB}, "m": {"size": 2 * MIB, "count": 40}}
    ranges = {"table": ["small", "large", "small"], "other": ["large"], "counted": ["m.*"]}
    plan = {
        "hipplan": 1,
        "devices": {"gpu": {"count": 2}},
        "allocations": {name: {"device": "gpu.0", **fields} for name, fields in memory.items()},
        "reservations": {
            name: {"access": {"gpu.0": "rw"}, "mappings": [{"allocation": part} for part in mapped]}
            for name, mapped in ranges.items()
        },
        "contents": contents,
    }
    old = hipplan.compile(plan, "sim-2")
    if which == "grown":
        old = extend.grown(old, lives(old, ["table", "counted"]), by=8 * MIB)
    elif which == "sealed":
        old = sealing.sealed(old, ["table"])
    _ = [getattr(old, fact) for fact in FACTS]  # what the program before knows is carried on
    for size in (2 * MIB, 8 * MIB, 10 * MIB, 20 * MIB, 84 * MIB, 100 * MIB):
        new = extend.shrunk(old, lives(old, names), by=size)
        if new is old:
            continue
        short, long = difference(old, new), difference(old, new, {"nothing"})
        assert short == long
        assert [*short.gone] == [*long.gone]
        assert new.comes_from(old) == (not contents or new.contents == old.contents)
        again = replace(new)
        assert {fact: {**getattr(new, fact)} for fact in FACTS} == {fact: {**getattr(again, fact)} for fact in FACTS}
        assert {**new.sealed} == {name: rights for name, rights in old.sealed.items() if name in new.makers}


def test_passed_memory_that_loses_its_mapping_is_no_longer_asked_for() -> None:
    passed = {"size": "2MiB", "bind": "theirs", "shareable": "posix_fd", "device": "gpu.0"}
    mapped = {"access": {"gpu.0": "rw"}, "mappings": [{"allocation": "own"}, {"allocation": "passed"}]}
    old = hipplan.compile(
        {
            "hipplan": 1,
            "devices": {"gpu": {"count": 1}},
            "allocations": {"own": {"size": "2MiB"}, "passed": passed},
            "reservations": {"table": mapped},
        },
        "sim-2",
    )
    assert [step.name for step in old.bindings] == ["passed"]
    new = extend.shrunk(old, lives(old, ["table"]), by=2 * MIB)
    assert new.bindings == ()
    assert [step.name for step in difference(old, new).gone] == ["passed", "table[1]"]


def lives(program: Program, names: list[str]) -> dict[str, extend.LiveRange]:
    """Reservations as a layout would have them."""
    return {name: extend.LiveRange(1 << 40, lambda of: program.reservations[of].size) for name in names}


def test_regions_that_overflow_share_what_is_free(sim: Simulator) -> None:
    cache = {"each": 3, "size": "2MiB", "chunk": "2MiB", "reserve": "16MiB", "overflow": "host"}
    old = hipplan.compile({"hipplan": 1, "regions": {"cache": cache}}, "sim-2")
    new = resize.grown(old, ["cache.0", "cache.1", "cache.2"], by="4MiB", free={"gpu.0": 6 * MIB})
    devices = [[device for device, _ in region.chunks] for region in new.regions.values()]
    assert devices == [["gpu.0"] * 3, ["gpu.0", "gpu.0", "host"], ["gpu.0", "host", "host"]]


def test_regions_that_stay_on_their_device_come_first(sim: Simulator) -> None:
    cache = {"size": "2MiB", "chunk": "2MiB", "reserve": "16MiB"}
    regions = {"kv.a": cache | {"overflow": "host"}, "kv.b": cache}
    old = hipplan.compile({"hipplan": 1, "regions": regions}, "sim-2")
    new = resize.grown(old, ["kv.a", "kv.b"], by="4MiB", free={"gpu.0": 6 * MIB})
    devices = [[device for device, _ in region.chunks] for region in new.regions.values()]
    assert devices == [["gpu.0", "gpu.0", "host"], ["gpu.0"] * 3]
    made = [step.name for step in new.steps[len(old.steps) :] if step.makes == "allocation"]
    assert made == ["kv.a#1", "kv.a#2", "kv.b#1", "kv.b#2"]


def test_reservations_grow_with_regions_that_overflow(sim: Simulator) -> None:
    plan = {
        "hipplan": 1,
        "allocations": {"m": {"size": "2MiB"}},
        "reservations": {"kv.r": {"size": "8MiB", "mappings": [{"allocation": "m"}]}},
        "regions": {"kv.a": {"size": "2MiB", "chunk": "2MiB", "reserve": "16MiB", "overflow": "host"}},
    }
    with hipplan.apply(plan, runtime="sim") as layout:
        changed = str(layout.grow("kv.*", by="2MiB"))
        assert "region kv.a: grows, 2MiB -> 4MiB" in changed
        assert "reservation kv.r: grows, mapped 2MiB -> 4MiB" in changed


def test_an_interleaved_region_goes_on_with_the_next_device(sim: Simulator) -> None:
    text = """
hipplan: 1
devices: {gpu: {count: 2}}
regions:
  hot: {devices: [gpu.*], spread: interleave, chunk: 2MiB, size: 6MiB, reserve: 32MiB,
        tensors: {rows: {dtype: u8, shape: [-1]}}}
"""
    with (
        hipplan.apply(text, runtime="sim") as layout,
        hipplan.apply(text.replace("size: 6MiB", "size: 10MiB"), runtime="sim") as fresh,
    ):
        layout.grow("hot", to="10MiB")
        assert facts(layout) == facts(fresh)
        assert dict(layout["hot"].resource.bytes_by_device) == {"gpu.0": 6 * MIB, "gpu.1": 4 * MIB}


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda layout: layout.grow("cache", to="1GiB"), "it reserves 64MiB"),
        (lambda layout: layout.grow("cash", by="1MiB"), "did you mean 'cache'"),
        (lambda layout: layout.grow("cache"), "either by= or to="),
        (lambda layout: layout.grow("cache", by="1MB ", to="2"), "either by= or to="),
        (lambda layout: layout.grow("cache", by="much"), "not a size"),
        (lambda layout: layout.grow("cache", by=0), "must be more than 0 bytes"),
        (lambda layout: layout.shrink("cache", by="4MiB"), "'cache.head' is in the removed part"),
    ],
)
def test_impossible_changes_are_refused_with_nothing_changed(
    act: Any, says: str, sim: Simulator, tmp_path: Path
) -> None:
    with hipplan.apply(plan("4MiB"), runtime="sim") as layout:

        def refused() -> None:
            with pytest.raises(ApplyError, match=says) as caught:
                act(layout)
            assert caught.value.diagnostics[0].code == "HP420"

        assert calls(sim, tmp_path / "trace", refused) == []


def test_a_closed_layout_does_not_change(sim: Simulator) -> None:
    layout = hipplan.apply(plan("4MiB"), runtime="sim")
    layout.close()
    with pytest.raises(ValueError, match="closed"):
        layout.grow("cache", by=1)


def test_a_change_cannot_begin_inside_of_a_change(sim: Simulator) -> None:
    with hipplan.apply(plan("4MiB"), runtime="sim") as layout:
        with pytest.raises(ApplyError, match="being changed already"):
            options = Options(on_step=lambda number, step: layout.grow("cache", by=1))  # type: ignore[arg-type,return-value]
            carry_out(layout._holding, Grow("cache", by=1, to=None), options)
        assert layout["cache"].size == 4 * MIB
        layout.grow("cache", by=1)


@pytest.mark.parametrize("lasting", ["", "+"])
@pytest.mark.parametrize("act", ["grow", "shrink"])
def test_a_failure_at_any_call_leaves_the_old_or_the_new_size(act: str, lasting: str, sim: Simulator) -> None:
    n, fired = 0, 1
    while fired:
        n += 1
        layout = hipplan.apply(plan("8MiB"), runtime="sim")
        base = layout["cache"].address
        sim.write(base + MIB, b"mine")
        before = sim.alive()
        sim.runtime.arm_faults(f"*@{n}{lasting}=hipErrorUnknown")
        error: Any = None
        try:
            layout.grow("cache", to="12MiB") if act == "grow" else layout.shrink("cache", to="4MiB")
        except hipplan.HipplanError as raised:
            error = raised
        fired = sim.runtime.faults_fired()
        sim.runtime.arm_faults("")
        after = 12 * MIB if act == "grow" else 4 * MIB
        changed = error is None or isinstance(error, hipplan.LeakError)
        assert layout["cache"].size == (after if changed else 8 * MIB)
        if error is not None and not changed and not error.leaks:
            assert sim.alive() == before
        assert layout["cache"].address == base
        assert sim.read(base + MIB, 4) == b"mine"
        assert layout.drift() == []
        if error is not None and error.leaks:  # a mapping that is lost keeps its reservation
            with suppress(hipplan.LeakError):
                layout.close()
            sim.free_everything()
            _core.take_leaks()  # what could not set the current device back
        else:
            layout.close()
            assert sim.alive() == set()
    assert n > 8


def test_a_region_grows_to_no_more_chunks_than_a_plan_may_have(sim: Simulator) -> None:
    """Half a million of them took minutes and gigabytes before the first driver call."""
    region = {"size": "2MiB", "chunk": "2MiB", "reserve": "1TiB"}
    with hipplan.apply({"hipplan": 1, "regions": {"c": region}}, runtime="sim") as layout:
        with pytest.raises(hipplan.ApplyError, match="that would be 524,288 chunks"):
            layout.grow("c", to="1TiB")
        assert layout["c"].size == 2 << 20


def test_more_than_the_device_has_is_refused_before_the_first_call(sim: Simulator, tmp_path: Path) -> None:
    region = {"device": "gpu.0", "size": "100GiB", "chunk": "1GiB", "reserve": "400GiB", "access": {"gpu.*": "rw"}}
    with_both = {"hipplan": 1, "devices": {"gpu": {"count": 2}}, "regions": {"kv": region}}
    with hipplan.apply(with_both, runtime="sim") as layout:

        def refused() -> None:
            with pytest.raises(ApplyError, match=r"HP420.*gpu\.0 has 192GiB, 8GiB too little\n.*100GiB are added"):
                layout.grow("kv", by="100GiB")

        assert calls(sim, tmp_path / "trace", refused) == []
        layout.remap("kv", device="gpu.1", keep_bytes=False)
