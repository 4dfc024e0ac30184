"""Growing, shrinking and remapping cost what they change, whatever is there: counted in calls, which no busy machine
changes."""

from __future__ import annotations

from pathlib import Path

import pytest

import hipplan
from hipplan.program.on_demand import LEAST
from tests.conftest import Simulator
from tests.faults.harness import as_release
from tests.python_calls import CHUNK, Calls, calls_of, instructions_of

RELEASES = ("6.4.43484", "7.2.53211", "7.15.0")


def layout_of(chunks: int) -> hipplan.Layout:
    region = {"device": "gpu.0", "size": chunks * CHUNK, "chunk": CHUNK, "reserve": (chunks + 64) * CHUNK}
    plan = {"hipplan": 1, "devices": {"gpu": {"count": 2}}, "regions": {"cache": region}}
    return hipplan.apply(plan, runtime="sim", answer=False)


@pytest.mark.parametrize("release", RELEASES)
def test_one_more_chunk_costs_the_same_beside_many(release: str, sim: Simulator) -> None:
    costs: dict[int, list[int]] = {}
    with as_release(sim, release):
        for chunks in (2, 2000):
            with layout_of(chunks) as layout:
                layout.grow("cache", by=CHUNK)  # the first one finds the facts that the others carry on
                costs[chunks] = [
                    calls_of(act).python
                    for act in (
                        lambda: layout.grow("cache", by=CHUNK),
                        lambda: layout.shrink("cache", by=CHUNK),
                        lambda end=chunks + 20: layout.grow("cache", to=end * CHUNK),
                    )
                ]
                assert layout.drift() == []
    for beside_two, beside_many in zip(*costs.values(), strict=True):
        assert beside_many <= 1.2 * beside_two


@pytest.mark.parametrize("release", RELEASES)
def test_a_region_that_has_not_grown_shrinks_at_the_same_cost(release: str, sim: Simulator) -> None:
    """Its last chunks are in the middle of all steps: the memory of all chunks comes before the first mapping."""
    costs: dict[int, list[Calls]] = {}
    with as_release(sim, release):
        for chunks in (2 * LEAST, 2000):
            with layout_of(chunks) as layout:
                first = calls_of(lambda layout=layout: layout.shrink("cache", by=CHUNK))
                costs[chunks] = [first, calls_of(lambda layout=layout: layout.shrink("cache", by=CHUNK))]
                assert layout.drift() == []
                assert layout["cache"].size == (chunks - 2) * CHUNK
    for beside_few, beside_many in zip(*costs.values(), strict=True):
        assert beside_many.python <= 1.2 * beside_few.python
        assert beside_many.builtin <= 1.2 * beside_few.builtin


@pytest.mark.parametrize("release", RELEASES)
def test_one_chunk_is_remapped_at_the_same_cost_beside_many(release: str, sim: Simulator) -> None:
    costs: dict[int, list[Calls]] = {}
    with as_release(sim, release):
        for chunks in (2, 2000):
            part = chunks // 2 * CHUNK, (chunks // 2 + 1) * CHUNK
            with layout_of(chunks) as layout:
                acts = [
                    lambda layout=layout, part=part, more=more: layout.remap("cache", part=part, **more)
                    for more in ({"keep_bytes": False}, {}, {"device": "gpu.1"}, {"device": "gpu.0"})
                ]
                for act in acts:  # the first ones find the facts that the others carry on
                    act()
                costs[chunks] = [calls_of(act) for act in acts]
                assert layout.drift() == []
                assert layout["cache"].devices == ("gpu.0",)
    for beside_two, beside_many in zip(*costs.values(), strict=True):
        assert beside_many.python <= 1.2 * beside_two.python
        assert beside_many.builtin <= 1.2 * beside_two.builtin


@pytest.mark.parametrize("release", RELEASES)
def test_a_region_is_sealed_and_remapped_at_the_same_cost_beside_many_chunks(release: str, sim: Simulator) -> None:
    costs: dict[int, list[Calls]] = {}
    with as_release(sim, release):
        for chunks in (2, 2000):
            regions = {name: {"device": "gpu.0", "size": size * CHUNK, "chunk": CHUNK}
                       for name, size in (("cache", chunks), ("weights", 3))}  # fmt: skip
            plan = {"hipplan": 1, "devices": {"gpu": {"count": 1}}, "regions": regions}
            with hipplan.apply(plan, runtime="sim", answer=False) as layout:
                acts = [
                    lambda layout=layout: layout.seal("weights"),
                    lambda layout=layout: layout.unseal("weights"),
                    lambda layout=layout: layout.remap("weights"),
                ]
                for act in acts:
                    act()
                costs[chunks] = [calls_of(act) for act in acts]
                layout.seal("weights")
                assert layout.drift() == []
                assert [layout[name].resource.sealed for name in ("weights", "cache")] == [True, False]
    for beside_two, beside_many in zip(*costs.values(), strict=True):
        assert beside_many.python <= 1.2 * beside_two.python
        assert beside_many.builtin <= 1.2 * beside_two.builtin


def test_many_single_remaps_do_not_make_the_next_one_dearer(sim: Simulator) -> None:
    with layout_of(64) as layout:

        def remap(number: int, device: str) -> None:
            layout.remap("cache", part=(number * CHUNK, (number + 1) * CHUNK), device=device, keep_bytes=False)

        remap(0, "gpu.1")
        first = calls_of(lambda: remap(1, "gpu.1")).python
        for number in (*range(2, 62), *range(20)):
            remap(number, f"gpu.{number % 2}")
        assert calls_of(lambda: remap(62, "gpu.1")).python <= 1.2 * first
        assert layout.drift() == []


def test_many_single_growths_do_not_make_the_next_one_dearer(sim: Simulator) -> None:
    with layout_of(2) as layout:
        layout.grow("cache", by=CHUNK)
        first = calls_of(lambda: layout.grow("cache", by=CHUNK)).python
        for _ in range(40):
            layout.grow("cache", by=CHUNK)
        assert calls_of(lambda: layout.grow("cache", by=CHUNK)).python <= 1.2 * first
        assert layout["cache"].size == 45 * CHUNK


def of_reservations(count: int) -> hipplan.Layout:
    """So many, in which one mapping fits besides what is there."""
    memory = {f"m{number}": {"device": "gpu.0", "size": CHUNK} for number in range(count)}
    ranges = {f"r{number}": {"size": 2 * CHUNK, "access": {"gpu.0": "rw"}, "mappings": [{"allocation": f"m{number}"}]}
              for number in range(count)}  # fmt: skip
    plan = {"hipplan": 1, "devices": {"gpu": {"count": 2}}, "allocations": memory, "reservations": ranges}
    return hipplan.apply(plan, runtime="sim", answer=False)


@pytest.mark.parametrize("release", RELEASES)
def test_many_reservations_change_at_the_same_cost_for_each(release: str, sim: Simulator) -> None:
    """What is mapped in them is found once, not once for each."""
    costs: dict[int, list[int]] = {}
    with as_release(sim, release):
        for count in (40, 400):
            with of_reservations(count) as layout:
                acts = (
                    lambda: layout.grow("r*", by=CHUNK),
                    lambda: layout.seal("r*"),
                    lambda: layout.unseal("r*"),
                    lambda: layout.shrink("r*", by=CHUNK),
                )
                costs[count] = [sum(calls_of(act)) for act in acts]
                assert layout.drift() == []
    for of_few, of_many in zip(*costs.values(), strict=True):
        assert of_many <= 1.2 * 10 * of_few


CALLS_OF_RESERVATION_MAX = 10
"""Python calls that each other reservation may add, beside which a reservation changes: comparing it makes 60."""


@pytest.mark.parametrize("release", RELEASES)
def test_a_reservation_grows_and_shrinks_without_a_comparison_of_others(release: str, sim: Simulator) -> None:
    costs: dict[int, list[int]] = {}
    with as_release(sim, release):
        for count in (40, 440):
            with of_reservations(count) as layout:
                acts = (lambda: layout.grow("r3", by=CHUNK), lambda: layout.shrink("r3", by=CHUNK))
                for act in acts:  # the first ones find the facts that the others carry on
                    act()
                costs[count] = [calls_of(act).python for act in acts]
                assert layout.drift() == []
    for beside_few, beside_many in zip(*costs.values(), strict=True):
        assert beside_many - beside_few <= 400 * CALLS_OF_RESERVATION_MAX


def test_a_change_of_many_reservations_is_shown_at_the_same_cost_for_each(sim: Simulator) -> None:
    """What is mapped in them, and which bytes are carried, is found once, not once for each line."""
    taken: dict[int, list[int]] = {}
    for count in (40, 400):
        with of_reservations(count) as layout:
            acts = (
                lambda: layout.remap("r*"),
                lambda: layout.grow("r*", by=CHUNK),
                lambda: layout.shrink("r*", by=CHUNK),
            )
            changes = [act() for act in acts]
            taken[count] = [instructions_of(change.lines) for change in changes]
            assert [len(change.lines()) for change in changes] == [2 * count] * 3
    for of_few, of_many in zip(*taken.values(), strict=True):
        assert of_many <= 1.2 * 10 * of_few


def test_a_seal_makes_no_steps_for_the_chunks_of_a_run(sim: Simulator) -> None:
    """Each chunk costs what asks for its name. A step, a row and a reading of each took 190 calls."""
    costs: dict[int, list[int]] = {}
    for chunks in (500, 2500):
        with layout_of(chunks) as layout:
            acts = (lambda: layout.seal("cache"), lambda: layout.unseal("cache"))
            costs[chunks] = [calls_of(act).python for act in acts]
            assert layout.drift() == []
    for of_few, of_many in zip(*costs.values(), strict=True):
        assert of_many - of_few <= 10 * 2000


@pytest.mark.parametrize("is_recorded", [False, True])
def test_what_people_read_of_a_growth_costs_the_same_beside_many_chunks(
    is_recorded: bool, sim: Simulator, tmp_path: Path
) -> None:
    """A record has that line of each change: a growth beside 12,000 chunks took 600 times as long with one."""
    costs = []
    for chunks in (2 * LEAST, 2000):
        region = {"device": "gpu.0", "size": chunks * CHUNK, "chunk": CHUNK, "reserve": (chunks + 64) * CHUNK}
        plan = {"hipplan": 1, "devices": {"gpu": {"count": 1}}, "regions": {"cache": region}}
        record = tmp_path / f"{chunks}" if is_recorded else None
        with hipplan.apply(plan, runtime="sim", answer=False, record=record) as layout:
            layout.grow("cache", by=CHUNK)
            costs.append(instructions_of(lambda layout=layout: str(layout.grow("cache", by=CHUNK))))
    assert costs[1] <= 1.2 * costs[0]


def test_it_costs_little_for_each_region_beside(sim: Simulator) -> None:
    costs = []
    for beside in (10, 210):
        regions = {f"r{n}": {"size": 2 * CHUNK, "chunk": CHUNK, "reserve": 8 * CHUNK} for n in range(beside)}
        with hipplan.apply({"hipplan": 1, "regions": regions}, runtime="sim", answer=False) as layout:
            layout.grow("r3", by=CHUNK)
            costs.append(instructions_of(lambda layout=layout: str(layout.grow("r3", by=CHUNK))))
    assert costs[1] - costs[0] <= 200 * 1000
