"""Sleep that moves memory to the host, where it stays mapped; and memory of the host that is kept for the next time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest

import hipplan
from hipplan.errors import ApplyError, LayoutInUse, MachineError
from hipplan.layout.layout import Layout
from hipplan.program.written import read, write
from tests.conftest import Simulator
from tests.faults.harness import as_release

MIB = 2**20
PLAN: dict[str, Any] = {
    "hipplan": 1,
    "devices": {"gpu": {"count": 2}},
    "allocations": {"part": {"device": "gpu.0", "size": "2MiB"}},
    "reservations": {
        "twice": {
            "size": "16MiB",
            "mappings": [
                {"allocation": "part", "at": 0, "access": {"gpu.0": "rw"}},
                {"allocation": "part", "at": "8MiB", "access": {"gpu.1": "r"}},
            ],
        },
    },
    "regions": {
        "weights": {
            "devices": ["gpu.*"],
            "spread": "interleave",
            "size": "8MiB",
            "chunk": "2MiB",
            "seal": True,
            "access": {"owner": "rw", "others": "r"},
        },
        "cache": {"device": "gpu.1", "size": "4MiB", "chunk": "2MiB", "reserve": "64MiB"},
        "tail": {"devices": ["gpu.0", "host"], "sizes": ["2MiB", "2MiB"], "chunk": "2MiB"},
    },
    "buffers": {"plain": {"kind": "device", "size": "1MiB"}},
    "contents": {"weights": {"value": 7}},
}


def free(layout: Layout) -> list[int]:
    return [layout.runtime.memory_info(device)[0] for device in (0, 1)]


def on_device(layout: Layout) -> dict[str, int]:
    return layout.program.bytes_by_device()


def rights(layout: Layout, name: str) -> list[int]:
    return [layout.runtime.access(device, layout[name].address) for device in (0, 1)]


def hosted(sim: Simulator) -> set[str]:
    """The handles of memory on the host."""
    return {a["handle"] for a in sim.ledger()["allocations"] if a["device"] < 0 and a["references"]}


@pytest.mark.parametrize("release", ["7.2.53211", "7.15.0"])
def test_memory_moves_away_stays_in_use_and_comes_home(release: str, sim: Simulator) -> None:
    with as_release(sim, release), hipplan.apply(PLAN, runtime="sim") as layout:
        before = on_device(layout), free(layout), rights(layout, "weights[1]"), rights(layout, "twice[1]")
        places = {name: layout[name].address for name in ("weights", "twice[0]", "cache")}
        sim.write(places["twice[0]"], bytes(range(256)))
        change = layout.sleep(["weights", "twice", "cache"], to="mapped")

        assert "region weights: falls asleep, 8MiB, its bytes are on the host, still mapped" in str(change)
        assert layout.asleep == {"weights": "mapped", "part": "mapped", "cache": "mapped"}
        assert on_device(layout) == {"gpu.0": 3 * MIB, "gpu.1": 0}
        assert {name: layout[name].address for name in places} == places
        assert (layout.read("weights") == 7).all()
        assert layout.read("twice[0]")[:256].tobytes() == bytes(range(256))
        layout.fill("cache", 5)
        assert layout.drift() == []

        assert "region weights: wakes, 8MiB, with its bytes" in str(layout.wake())
        assert layout.asleep == {}
        assert (on_device(layout), free(layout), rights(layout, "weights[1]"), rights(layout, "twice[1]")) == before
        assert {name: layout[name].address for name in places} == places
        assert (layout.read("weights") == 7).all() and (layout.read("cache") == 5).all()
        assert layout["weights"].read_only
        assert layout.drift() == []
    assert sim.alive() == set()


def test_all_that_can_sleeps_and_a_part_of_it_wakes(layout: Layout) -> None:
    layout.sleep(to="mapped")
    assert layout.asleep == dict.fromkeys(("weights", "part", "cache", "tail"), "mapped")
    assert on_device(layout) == {"gpu.0": MIB, "gpu.1": 0}
    layout.wake("tail")
    assert layout["tail"].resource.bytes_by_device == (("gpu.0", 2 * MIB), ("host", 2 * MIB))
    assert "tail" not in layout.asleep
    layout.sleep(to="mapped")
    assert not layout.sleep(to="mapped")  # it is there already
    layout.wake("w*")
    assert layout.asleep == dict.fromkeys(("part", "cache", "tail"), "mapped")


def test_both_ways_to_sleep_wake_together(layout: Layout) -> None:
    layout.sleep("cache", to="mapped")
    layout.sleep("weights")
    assert layout.asleep == {"weights": "host", "cache": "mapped"}
    layout.fill("cache", 3)
    layout.wake()
    assert layout.asleep == {}
    assert (layout.read("cache") == 3).all() and (layout.read("weights") == 7).all()
    assert layout.drift() == []


def test_what_is_not_possible_meanwhile(layout: Layout) -> None:
    layout.sleep("cache", to="mapped")
    before = layout.program
    for use in (
        lambda: layout.grow("cache", by="2MiB"),
        lambda: layout.shrink("cache", by="2MiB"),
        lambda: layout.remap("cache", device="gpu.0"),
        lambda: layout.sleep("cache"),
        lambda: layout.sleep("cache", to="drop"),
    ):
        with pytest.raises(ApplyError, match=r"HP441.*'cache'.*asleep\n.*on the host until it wakes"):
            use()
    for more in ({"unchanged": "cache"}, {"checksum": True}):
        with pytest.raises(ApplyError, match=r"HP420.*is about a copy"):
            layout.sleep("weights", to="mapped", **more)
    with pytest.raises(ApplyError, match=r"HP440.*'plain' cannot sleep"):
        layout.sleep("plain", to="mapped")
    layout.sleep("weights")
    with pytest.raises(ApplyError, match=r"HP441.*'weights'"):
        layout.sleep("weights", to="mapped")
    layout.wake("weights")
    assert layout.program.away == before.away == {"cache#0": "gpu.1", "cache#1": "gpu.1"}


def test_an_update_leaves_it_there_and_refuses_to_change_it(layout: Layout) -> None:
    layout.fill("cache", 9)
    layout.sleep(["cache", "part"], to="mapped")
    layout.update({**PLAN, "buffers": {}}, lose="plain")
    assert layout.asleep == {"cache": "mapped", "part": "mapped"}
    cache = {**PLAN["regions"]["cache"], "size": "8MiB"}
    with pytest.raises(ApplyError, match=r"HP441.*'cache'.*\n.*the plan changes it or its place"):
        layout.update({**PLAN, "buffers": {}, "regions": {**PLAN["regions"], "cache": cache}})
    assert layout.drift() == []
    layout.wake()
    assert (layout.read("cache") == 9).all()
    layout.sleep("cache", to="mapped")
    rest = {name: region for name, region in PLAN["regions"].items() if name != "cache"}
    layout.update({**PLAN, "buffers": {}, "regions": rest}, lose="cache")
    assert layout.asleep == {} and layout.drift() == []


def test_a_release_without_such_memory_is_refused(sim: Simulator) -> None:
    for release, quirks, code in (("6.4", (), "HP309"), ("7.2.53211", ("free_memory_with_reservation",), "HP440")):
        with as_release(sim, release, *quirks):
            plan = {**PLAN, "regions": {"cache": PLAN["regions"]["cache"]}, "contents": {}}
            with hipplan.apply(plan, runtime="sim") as layout:
                before = sim.alive()
                with pytest.raises((ApplyError, MachineError), match=code):
                    layout.sleep("cache", to="mapped")
                assert (sim.alive(), layout.asleep) == (before, {})


def test_without_room_it_stays_asleep(layout: Layout, sim: Simulator) -> None:
    layout.sleep("cache", to="mapped")
    rest = free(layout)[1] - 2 * MIB
    other = {"all": {"kind": "device", "device": "gpu.1", "size": rest}}
    with hipplan.apply({"hipplan": 1, "devices": {"gpu": {"count": 2}}, "buffers": other}, runtime="sim"):
        with pytest.raises(ApplyError, match=r"HP442.*gpu.1 lacks"):
            layout.wake()
        assert layout.asleep == {"cache": "mapped"}
    layout.wake()


def test_callbacks_and_views(layout: Layout) -> None:
    events: list[str] = []
    view = layout["cache"].__dlpack__(max_version=(1, 0))
    layout.sleep(
        "cache", to="mapped", on_unmap=lambda names: events.append("unmap"), on_map=lambda names: events.append("map")
    )
    cpu = numpy.from_dlpack(layout["cache"].on("host"))
    with pytest.raises(LayoutInUse, match="'cache'"):
        layout.wake()
    assert (events, layout.asleep) == (["unmap"], {"cache": "mapped"})
    del cpu
    layout.wake()
    assert events == ["unmap", "map"]
    del view


def test_a_program_is_written_and_read_while_it_sleeps(layout: Layout) -> None:
    layout.sleep("cache", to="mapped")
    assert read(write(layout.program)) == layout.program
    layout.wake()


@pytest.mark.parametrize("how", ["remap", "sleep"])
def test_memory_of_the_host_is_kept_for_the_next_time(how: str, layout: Layout, sim: Simulator, tmp_path: Path) -> None:
    def away() -> None:
        layout.sleep("cache", to="mapped") if how == "sleep" else layout.remap("cache", device="host")

    def home(retain: bool) -> None:
        if how == "sleep":
            layout.wake(retain=retain)
        else:
            layout.remap("cache", device="gpu.1", retain=retain)

    others = hosted(sim)
    away()
    first = hosted(sim) - others
    home(True)
    assert hosted(sim) - others == first and len(first) == 2
    assert layout.retained == 4 * MIB
    layout.fill("cache", 4)
    sim.runtime.trace_to(str(trace := tmp_path / "trace"))
    away()
    sim.runtime.trace_to("")
    assert '"hipMemCreate"' not in trace.read_text()
    assert hosted(sim) - others == first
    assert (layout.read("cache") == 4).all() and layout.retained == 0
    assert layout.drift() == []
    home(False)
    assert hosted(sim) == others
    assert layout.drift() == []


def test_kept_memory_is_freed_by_the_next_move_without_retain_and_by_close(sim: Simulator) -> None:
    layout = hipplan.apply(PLAN, runtime="sim")
    others = hosted(sim)
    for _ in range(3):
        layout.remap("cache", device="host")
        layout.remap("cache", device="gpu.1", retain=True)
    assert layout.retained == 4 * MIB
    layout.sleep("weights", to="mapped")
    assert layout.retained == 0  # it has taken what is like its chunks
    layout.remap("cache", device="host")
    layout.remap("cache", device="gpu.0", retain=True)
    layout.wake()
    assert layout.retained == 0 and hosted(sim) == others
    layout.remap("cache", device="host")
    layout.remap("cache", device="gpu.0", retain=True)
    layout.close()
    assert sim.alive() == set()
