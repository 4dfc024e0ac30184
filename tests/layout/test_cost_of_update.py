"""An update compares what differs: what is equal in both programs is set aside first. Work is counted in calls, which
no busy machine changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan.kinds.reservation.live import Reserve
from hipplan.lowering.compiler import compile as compile_plan
from hipplan.program import listing
from hipplan.program.change import Change
from hipplan.program.difference import _Comparison, _on_old_ranges, difference
from hipplan.program.losses import losses
from hipplan.program.program import Program
from hipplan.program.touched import touched
from tests.conftest import Simulator
from tests.frozen import pairs
from tests.frozen.stage import RELEASES
from tests.layout.test_runs_or_written_out import CHANGES as COUNTED
from tests.python_calls import CHUNK, calls_of, instructions_of

CALLS_OF_BUFFER_MAX = 25
"""Python calls of a whole update for each buffer that stays: compiling the plan makes most of them."""
CALLS_OF_REGION_MAX = 28
"""Python calls that set aside a region which both programs share: to compare it makes 14 more."""
CALLS_OF_CHUNKS_MAX = 20
"""Python calls that a thousand more chunks may add."""


def many_chunks(count: int, more: int) -> hipplan.LoadedPlan:
    region = {"device": "gpu.0", "size": count * CHUNK, "chunk": CHUNK}
    return plan({"regions": {"cache": region}}, {f"b{number}": "64KiB" for number in range(1 + more)})


def many_chunks_in_blocks(count: int, more: int) -> hipplan.LoadedPlan:
    region = {"devices": ["gpu.*"], "spread": "blocks", "size": count * CHUNK, "chunk": CHUNK}
    return plan({"regions": {"cache": region}}, {f"b{number}": "64KiB" for number in range(1 + more)})


ON_TWO = {"devices": ["gpu.*"], "spread": "interleave", "access": {"owner": "rw", "others": "r"}}


def more_chunks(count: int, more: int) -> hipplan.LoadedPlan:
    region = {"device": "gpu.0", "size": (count + more) * CHUNK, "chunk": CHUNK, "reserve": (count + 8) * CHUNK}
    return plan({"regions": {"cache": region}}, {"b": "64KiB"})


def more_chunks_on_two(count: int, more: int) -> hipplan.LoadedPlan:
    region = {"size": (count + more) * CHUNK, "chunk": CHUNK, "reserve": (count + 8) * CHUNK, **ON_TWO}
    return plan({"regions": {"cache": region}}, {"b": "64KiB"})


def counted(count: int, more: int) -> hipplan.LoadedPlan:
    """Memory that `count:` makes, in a range that has room for more."""
    memory = {"device": "gpu.1", "size": CHUNK, "count": count + more}
    unmapped = {"device": "gpu.0", "size": CHUNK, "count": count}
    lines = [{"allocation": "m.*"}]
    ranges = {"r": {"size": (count + 8) * CHUNK, "access": {"gpu.*": "rw"}, "mappings": lines}}
    return plan({"allocations": {"m": memory, "n": unmapped}, "reservations": ranges}, {"b": f"{64 + more}KiB"})


def many_buffers(count: int, more: int) -> hipplan.LoadedPlan:
    sizes = {f"b{number}": "64KiB" for number in range(count)}
    return plan({}, sizes | {f"b{count // 2}": f"{64 + more}KiB"})


def plan(more: dict[str, Any], sizes: dict[str, str]) -> hipplan.LoadedPlan:
    buffers = {name: {"kind": "device", "device": "gpu.0", "size": size} for name, size in sizes.items()}
    return hipplan.load({"hipplan": 1, "devices": {"gpu": {"count": 2}}, "buffers": buffers, **more})


@pytest.mark.parametrize(
    ("make", "most"),
    [
        (many_chunks, CALLS_OF_CHUNKS_MAX),
        (many_chunks_in_blocks, CALLS_OF_CHUNKS_MAX),
        (more_chunks, CALLS_OF_CHUNKS_MAX),
        (more_chunks_on_two, CALLS_OF_CHUNKS_MAX),
        (counted, CALLS_OF_CHUNKS_MAX),
        (many_buffers, 1000 * CALLS_OF_BUFFER_MAX),
    ],
)
def test_an_update_makes_few_calls_for_what_stays(make: Any, most: int, sim: Simulator) -> None:
    costs = []
    for count in (100, 1100):
        with hipplan.apply(make(count, 0), runtime="sim", answer=False) as layout:
            layout.update(make(count, 1), lose="*")
            layout.update(make(count, 0), lose="*")
            new = make(count, 1)
            costs.append(calls_of(lambda new=new, layout=layout: layout.update(new, lose="*")).python)
            assert layout.drift() == []
    assert costs[1] - costs[0] <= most


@pytest.mark.parametrize("make", [many_chunks, many_chunks_in_blocks, more_chunks_on_two, counted])
def test_an_apply_makes_no_calls_for_a_chunk(make: Any, sim: Simulator) -> None:
    """From the text to the layout, with all of it read back."""
    costs = []
    for count in (100, 1100, 100, 1100):  # the first two also pay for what is known from then on
        text = json.dumps(make(count, 0).plan.model_dump(mode="json", exclude_unset=True)) + "\n"

        def applied(text: str = text) -> None:
            hipplan.apply(hipplan.load(text), runtime="sim", answer=False).close()

        costs.append(calls_of(applied).python)
    assert abs(costs[3] - costs[2]) <= CALLS_OF_CHUNKS_MAX


@pytest.mark.parametrize(
    ("buffer", "most"),
    [
        ({"kind": "pinned", "size": "4KiB"}, 0),
        ({"kind": "managed", "size": "64KiB", "advice": [{"advise": "read_mostly"}]}, 15),
    ],
)
def test_a_buffer_of_a_count_costs_few_calls(buffer: dict[str, Any], most: int, sim: Simulator) -> None:
    """Its kind and the rules about the machine are asked once for all of them."""
    costs = []
    for count in (100, 100, 1100):  # the first one also pays for what is imported
        document = {"hipplan": 1, "devices": {"gpu": {}}, "buffers": {"b": {**buffer, "count": count}}}
        costs.append(calls_of(lambda document=document: compile_plan(hipplan.load(document), "mi300x-8")).python)
    assert costs[2] - costs[1] <= 1000 * most + CALLS_OF_CHUNKS_MAX


def test_memory_that_is_mapped_often_is_compared_at_the_same_cost_for_each(sim: Simulator) -> None:
    """Where each of its bytes is then is found once, not once for each mapping."""
    costs = []
    for count in (40, 40, 400):  # the first one also pays for what is imported
        shared = {"access": {"gpu.0": "rw"}, "mappings": [{"allocation": "shared"}] * count}
        memory = {"allocations": {"shared": {"device": "gpu.0", "size": CHUNK}}, "reservations": {"table": shared}}
        same = plan(memory, {})
        with hipplan.apply(same, runtime="sim", answer=False) as layout:
            costs.append(instructions_of(lambda same=same, layout=layout: layout.update(same)))
            assert layout.drift() == []
    assert costs[2] <= 1.2 * 10 * costs[1]


def test_regions_that_a_change_hands_on_are_not_compared() -> None:
    costs = []
    for count in (40, 440):
        regions = {f"r{number}": {"device": "gpu.0", "size": CHUNK} for number in range(count)}
        old = hipplan.compile(plan({"regions": regions}, {}), "sim-2")
        new = replace(old)
        costs.append(calls_of(lambda old=old, new=new: touched(old, new, frozenset())).python)
        assert touched(old, new, frozenset()).regions == regions.keys()
    assert costs[1] - costs[0] <= 400 * CALLS_OF_REGION_MAX


def test_a_region_that_has_slept_does_not_make_others_dearer(sim: Simulator) -> None:
    costs = []
    for count in (100, 100, 1100):  # the first one also pays for what is imported
        first, second = (many_chunks(count, more).plan.model_dump(mode="json", exclude_unset=True) for more in (0, 1))
        other = {"weights": {"device": "gpu.0", "size": 3 * CHUNK, "chunk": CHUNK}}
        for given in (first, second):
            given["regions"] |= other
        with hipplan.apply(first, runtime="sim", answer=False) as layout:
            layout.sleep("weights")
            layout.wake()
            costs.append(calls_of(lambda layout=layout, second=second: layout.update(second, lose="*")).python)
            assert layout.drift() == []
    assert costs[2] - costs[1] <= CALLS_OF_CHUNKS_MAX


@pytest.mark.parametrize("make", [more_chunks, more_chunks_on_two])
def test_a_region_that_grew_and_shrank_is_compared_at_the_same_cost(make: Any, sim: Simulator) -> None:
    costs = []
    for count in (100, 100, 1100):  # the first one also pays for what is imported
        new = make(count, 0).plan.model_dump(mode="json", exclude_unset=True)
        new["buffers"]["c"] = new["buffers"]["b"]
        with hipplan.apply(make(count, 0), runtime="sim", answer=False) as layout:
            layout.grow("cache", by=2 * CHUNK)
            layout.shrink("cache", by=2 * CHUNK)
            costs.append(calls_of(lambda new=new, layout=layout: layout.update(new)).python)
            assert layout.drift() == []
    assert abs(costs[2] - costs[1]) <= CALLS_OF_CHUNKS_MAX


def test_a_recorded_and_watched_step_costs_the_same_beside_many(sim: Simulator, tmp_path: Path) -> None:
    costs = []
    for count in (100, 100, 1000):  # the first one also pays for what is imported

        def applied(count: int = count) -> None:
            hipplan.apply(
                many_chunks(count, 0),
                runtime="sim",
                record=tmp_path / "record",
                on_step=lambda number, step: None,
                answer=False,
            ).close()

        costs.append(calls_of(applied).python / count)
    assert costs[2] <= 1.2 * costs[1]


def test_a_region_that_shrinks_costs_the_same_beside_many_chunks(sim: Simulator) -> None:
    costs = []
    for count in (100, 100, 1100):  # the first one also pays for what is imported
        with hipplan.apply(more_chunks(count, 2), runtime="sim", answer=False) as layout:
            less = more_chunks(count, 0)
            costs.append(calls_of(lambda less=less, layout=layout: layout.update(less, lose="*")).python)
            assert layout.drift() == []
    assert abs(costs[2] - costs[1]) <= CALLS_OF_CHUNKS_MAX


@pytest.mark.parametrize("make", [many_chunks, many_chunks_in_blocks, many_buffers])
def test_comparing_sees_only_what_differs(make: Any) -> None:
    old, new = (compile_plan(make(1000, more), "mi300x-8") for more in (0, 1))
    change = difference(old, new)
    assert len(change.about.old.steps) + len(change.about.new.steps) <= 3
    assert len(change.kept) == len(old.makers) - (make is many_buffers)
    assert (change.old, change.new) == (old, new)


def programs(seed: int, release: str, folder: Path) -> tuple[Program, Program] | None:
    """Those of a generated pair of plans; None: this release cannot have them."""
    (folder / "data.bin").write_bytes(bytes(100_000))
    machine = hipplan.machine("mi300x-8").model_copy(update={"hip_version": release})
    made = []
    for name, given in zip(("before", "after"), pairs.pair(seed), strict=True):
        file = folder / f"{name}.yaml"
        file.write_text(json.dumps(given))
        try:
            made.append(compile_plan(hipplan.load(file), machine))
        except hipplan.MachineError:
            return None
    return made[0], made[1]


@pytest.mark.in_turns
def test_the_change_is_the_one_that_comparing_everything_finds(tmp_path: Path) -> None:
    set_aside = 0
    for seed in range(pairs.COUNT):
        both = programs(seed, [*RELEASES.values()][seed % len(RELEASES)], tmp_path)
        if both is not None:
            set_aside += sum(is_found_by_comparing_everything(both[0], to) for to in both)
    assert set_aside > 100


ACTS: dict[str, Callable[[hipplan.Layout], Any]] = {
    "untouched": lambda layout: None,
    "grown": lambda layout: layout.grow("cache", by=CHUNK),
    "grown and shrunk": lambda layout: (layout.grow("cache", by=CHUNK), layout.shrink("cache", by=CHUNK)),
    "shrunk": lambda layout: layout.shrink("cache", by=CHUNK),
    "sealed": lambda layout: layout.seal("cache"),
    "on the other device": lambda layout: layout.remap("cache", device="gpu.1"),
    "recreated": lambda layout: layout.remap("cache"),
    "asleep": lambda layout: layout.sleep("cache"),
    "awake again": lambda layout: (layout.sleep("cache", to="drop"), layout.wake("cache")),
}
CHANGES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "fewer addresses": {"reserve": 16 * CHUNK},
    "a chunk more": {"size": 5 * CHUNK},
    "many more": {"size": 29 * CHUNK, "tensors": {"t": {"dtype": "u8", "shape": [-1]}}},
    "two chunks less": {"size": 6 * CHUNK},
    "more and other rights": {"size": 12 * CHUNK, "access": {"gpu.0": "r", "gpu.1": "r"}},
    "more and fewer addresses": {"size": 9 * CHUNK, "reserve": 16 * CHUNK},
    "other rights": {"access": {"gpu.0": "rw", "gpu.1": "r"}},
    "rights of attached": {"attached": "rw"},
    "sealed": {"seal": True},
    "a tensor": {"tensors": {"t": {"dtype": "f32", "shape": [16]}}},
}


REGIONS: dict[str, dict[str, Any]] = {
    "few": {"device": "gpu.0", "size": 4 * CHUNK, "reserve": 64 * CHUNK},
    "on one": {"device": "gpu.0", "size": 8 * CHUNK, "reserve": 64 * CHUNK},
    "on two": {"size": 9 * CHUNK, "reserve": 64 * CHUNK, **ON_TWO},
    "in blocks": {"devices": ["gpu.0", "gpu.1"], "spread": "blocks", "size": 16 * CHUNK},
}


@pytest.mark.in_parts
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("to", CHANGES)
@pytest.mark.parametrize("what", REGIONS)
def test_it_is_so_for_a_region_that_a_layout_has_changed(act: str, to: str, what: str, sim: Simulator) -> None:
    region = {**REGIONS[what], "chunk": CHUNK}
    if what == "in blocks" and ("grown" in act or "reserve" in CHANGES[to]):
        return  # such a region cannot grow
    first, second = (plan({"regions": {"cache": region | more}}, {"b": "64KiB"}) for more in ({}, CHANGES[to]))
    with hipplan.apply(first, runtime="sim", answer=False) as layout:
        ACTS[act](layout)
        measured = layout.program.measured
        assert measured is not None
        is_found_by_comparing_everything(layout.program, compile_plan(second, measured))


@pytest.mark.parametrize("which", COUNTED)
def test_it_is_so_for_what_count_makes(which: str) -> None:
    old, new = (compile_plan(plan({"buffers": buffers}, {}), "mi300x-8") for buffers in COUNTED[which])
    assert is_found_by_comparing_everything(old, new) == is_found_by_comparing_everything(new, old)


def test_what_stays_counts_once_where_the_new_program_is_made_again() -> None:
    """As after contents, which change what is known to be unwritten: a shrink of 88MiB was reported as one of 164."""

    def counted(count: int) -> Program:
        range_ = {"size": 100 * CHUNK, "mappings": [{"allocation": "m.*"}]}
        memory = {"device": "gpu.0", "size": CHUNK, "count": count}
        return compile_plan(plan({"allocations": {"m": memory}, "reservations": {"range": range_}}, {}), "mi300x-8")

    change = difference(counted(44), counted(40), {"nothing"})
    assert change.part is not None
    again = replace(change, new=replace(change.new, unwritten=frozenset({"range[0]"})))
    assert [line.text for line in listing.lines(again) if line.name == "range"] == ["shrinks, mapped 88MiB -> 80MiB"]


def test_a_range_that_a_lock_places_elsewhere_is_reserved_again() -> None:
    old, new = (compile_plan(many_chunks(4, more), "mi300x-8") for more in (0, 1))
    placed = (replace(s, address=1 << 40, exact=True) if isinstance(s, Reserve) else s for s in new.steps)
    moved = replace(new, steps=tuple(placed))
    is_found_by_comparing_everything(old, moved)
    assert ("reservation", "cache") not in difference(old, moved).kept


def staying(change: Change) -> dict[int, int]:
    """Slot in the new program -> slot in the old one, of the objects that stay."""
    same, again, others = change.kept_slots()
    stays = {slot: slot for slot in range(same) if slot not in again}
    return stays | {new + n: old + n for new, old, many in others for n in range(many)}


def is_found_by_comparing_everything(old: Program, to: Program) -> bool:
    """Asserts that the difference is what comparing all objects finds; returns whether some were set aside."""
    new = _on_old_ranges(old, to, frozenset())
    for fills in (False, True):
        change, whole = difference(old, new, fills=fills), _Comparison(old, new, frozenset()).result(fills, False)
        assert {*change.kept} == {*whole.kept} and len(change.kept) == len(whole.kept)
        for field in ("additions", "changes", "gone", "released", "renamed", "changed", "contents"):
            assert getattr(change, field) == getattr(whole, field), field
        if change.about is not change:
            assert staying(change) == staying(whole)
        assert listing.lines(change) == listing.lines(whole)
        assert losses(change) == losses(whole)
        assert {*change.to_read_back(new)} == {*whole.to_read_back(new)}
    return change.about is not change
