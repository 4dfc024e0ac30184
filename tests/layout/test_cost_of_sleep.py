"""A region in runs falls asleep and wakes as one: Python calls do not depend on the number of its chunks. Work is
counted in calls, which no busy machine changes."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import hipplan
from hipplan.program import on_demand
from tests.conftest import Simulator
from tests.faults.harness import as_release, same_calls_each_time
from tests.layout.test_runs_or_written_out import RELEASES
from tests.machines.test_releases import RELEASES as QUIRKS
from tests.python_calls import calls_of, instructions_of

CALLS_OF_CHUNKS_MAX = 20
"""Python calls that more chunks may add."""
CALLS_OF_PIECE_MAX = 12
"""Python calls that each chunk of an interleaved region adds: its bytes are a copy of their own."""
CALLS_OF_PIECE_IN_FILE_MAX = 16
"""The same where the copies are in a file."""

SMALL = 4 << 10
"""Bytes of each chunk: copies take real memory and real files."""
FEW = 50
MANY = {"host": 80, "drop": 450}
"""Copies of bytes take real memory, twice."""

LEAST = on_demand.LEAST

Act = Callable[[hipplan.Layout], Any]

SPREADS: dict[str, dict[str, Any]] = {
    "on one device": {"device": "gpu.0"},
    "in blocks": {"devices": ["gpu.*"], "spread": "blocks"},
    "interleaved": {"devices": ["gpu.*"], "spread": "interleave"},
}
NAMES: dict[str, Any] = {"all": None, "by name": "cache", "beside one that sleeps": "cache"}


@pytest.fixture(autouse=True)
def on_a_busy_machine_as_on_an_idle_one() -> Iterator[None]:
    with same_calls_each_time():
        yield


def applied(spread: str, count: int) -> hipplan.Layout:
    region = {"size": count * SMALL, "chunk": SMALL, **SPREADS[spread]}
    other = {"device": "gpu.1", "size": 40 * SMALL, "chunk": SMALL}
    plan = {"hipplan": 1, "devices": {"gpu": {"count": 2}}, "regions": {"cache": region, "other": other}}
    return hipplan.apply(plan, runtime="sim", answer=False)


def costs(spread: str, count: int, to: str, which: str) -> tuple[int, int]:
    """Python calls of a sleep and of a wake. The layout has slept before: nothing is found out for the first time."""
    names = {} if NAMES[which] is None else {"names": NAMES[which]}
    with applied(spread, count) as layout:
        layout.sleep(to=to)
        layout.wake()
        if "beside" in which:
            layout.sleep("other", to=to)
        asleep = calls_of(lambda: layout.sleep(to=to, **names)).python
        awake = calls_of(lambda: layout.wake(**names)).python
        layout.wake()
        assert layout.drift() == []
    return asleep, awake


@pytest.mark.in_parts
@pytest.mark.parametrize("which", NAMES)
@pytest.mark.parametrize("to", ["host", "drop"])
@pytest.mark.parametrize("spread", SPREADS)
def test_sleep_and_wake_make_no_calls_for_a_chunk(spread: str, to: str, which: str, sim: Simulator) -> None:
    costs(spread, 2, to, which)  # pays for what is imported
    few, many = costs(spread, FEW, to, which), costs(spread, MANY[to], to, which)
    is_in_pieces = spread == "interleaved" and to == "host"
    most = (MANY[to] - FEW) * CALLS_OF_PIECE_MAX if is_in_pieces else CALLS_OF_CHUNKS_MAX
    assert max(more - less for less, more in zip(few, many, strict=True)) <= most


KEPT: dict[str, tuple[Act, Act]] = {
    "with checksums": (lambda layout: layout.sleep("cache", checksum=True), lambda layout: layout.wake()),
    "in a file": (lambda layout: layout.sleep("cache", to="asleep.bin"), lambda layout: layout.wake()),
    "in a file without checksums": (
        lambda layout: layout.sleep("cache", to="asleep.bin", checksum=False),
        lambda layout: layout.wake(),
    ),
    "with a copy that is kept": (
        lambda layout: layout.sleep("cache", checksum=True),
        lambda layout: layout.wake(retain=True),
    ),
    "with a file that is kept": (
        lambda layout: layout.sleep("cache", to="asleep.bin"),
        lambda layout: layout.wake(retain=True),
    ),
    "unchanged in pinned memory": (
        lambda layout: layout.sleep("cache", checksum=True, unchanged="cache" if layout.program.backups else ()),
        lambda layout: layout.wake(retain=True),
    ),
    "unchanged in a file": (
        lambda layout: layout.sleep("cache", to="asleep.bin", unchanged="cache" if layout.program.backups else ()),
        lambda layout: layout.wake(retain=True),
    ),
}
"""Sleeps whose copies have checksums, are in files, or are kept -> (sleep, wake)."""


def kept_costs(how: str, spread: str, count: int) -> tuple[int, int]:
    """Python calls of a third sleep and a third wake."""
    sleep, wake = KEPT[how]
    region = {"size": count * SMALL, "chunk": SMALL, **SPREADS[spread]}
    plan = {"hipplan": 1, "devices": {"gpu": {"count": 2}}, "regions": {"cache": region}}
    with hipplan.apply(plan, runtime="sim", answer=False) as layout:
        assert len(layout.program.regions["cache"].chunks) == count
        for _ in range(2):
            sleep(layout)
            wake(layout)
        layout.fill("cache", 7)
        costs = calls_of(lambda: sleep(layout)).python, calls_of(lambda: wake(layout)).python
        assert layout.drift() == []
    return costs


@pytest.mark.in_parts
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("how", KEPT)
def test_copies_with_checksums_in_files_or_kept_make_no_calls_for_a_chunk(
    how: str, spread: str, sim: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kept_costs(how, spread, 100)  # pays for what is imported
    few, many = kept_costs(how, spread, 100), kept_costs(how, spread, 1000)
    most_of_piece = CALLS_OF_PIECE_IN_FILE_MAX if "file" in how else CALLS_OF_PIECE_MAX
    most = 900 * most_of_piece if spread == "interleaved" else CALLS_OF_CHUNKS_MAX
    assert max(more - less for less, more in zip(few, many, strict=True)) <= most


def test_a_chunk_that_was_added_does_not_make_the_others_dearer(sim: Simulator) -> None:
    counts = []
    for count in (FEW, FEW, MANY["host"]):
        region = {"device": "gpu.0", "size": count * SMALL, "chunk": SMALL, "reserve": (count + 8) * SMALL}
        with hipplan.apply({"hipplan": 1, "regions": {"cache": region}}, runtime="sim", answer=False) as layout:
            layout.grow("cache", by=SMALL)
            layout.sleep()
            layout.wake()
            counts.append(calls_of(lambda layout=layout: (layout.sleep(), layout.wake())).python)
            assert layout.drift() == []
    assert counts[2] - counts[1] <= 2 * CALLS_OF_CHUNKS_MAX


def times_called(act: Callable[[], Any], function: str) -> int:
    """How often a function of this name is called."""
    names: Counter[str] = Counter()
    before = sys.getprofile()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            names[frame.f_code.co_name] += 1

    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(before)
    return names[function]


IN_PIECES = {
    "hipplan": 1,
    "devices": {"gpu": {"count": 2}},
    "allocations": {"a": {"device": "gpu.0", "size": "4MiB"}, "b": {"device": "gpu.0", "size": "2MiB"}},
    "reservations": {
        "r": {
            "size": "16MiB",
            "mappings": [{"allocation": "a"}, {"allocation": "b", "access": {"gpu.0": "rw", "gpu.1": "r"}}],
        }
    },
}


def test_a_layout_in_pieces_is_lowered_once_for_each_change(sim: Simulator) -> None:
    release = "7.2"
    other = {**IN_PIECES, "buffers": {"c": {"kind": "device", "device": "gpu.0", "size": "64KiB"}}}
    plan = hipplan.load(other)
    acts: dict[str, Act] = {
        "update": lambda layout: layout.update(plan),
        "sleep": lambda layout: layout.sleep("r", to="drop"),
    }
    made = {}
    with (
        as_release(sim, RELEASES[release], *QUIRKS[release].split()),
        hipplan.apply(IN_PIECES, runtime="sim", answer=False) as layout,
    ):
        for name, act in acts.items():
            made[name] = times_called(lambda act=act: act(layout), "_in_pieces")
    assert made == {"update": 1, "sleep": 2}  # a sleep also finds out whether it can be woken


INSTRUCTIONS_OF_OTHER_MAX = 2_000
"""Instructions of Python that each object which stays adds to a sleep and a wake of one; they were 6,900 and more."""
AMONG: dict[str, tuple[Callable[[int], dict[str, Any]], str]] = {
    "allocations": (
        lambda count: {
            "allocations": {f"a{number}": {"device": "gpu.0", "size": SMALL} for number in range(count)},
            "reservations": {
                "r": {"access": {"gpu.0": "rw"}, "mappings": [{"allocation": f"a{number}"} for number in range(count)]}
            },
        },
        "a7",
    ),
    "a count": (
        lambda count: {
            "allocations": {"a": {"device": "gpu.0", "size": SMALL, "count": count}},
            "reservations": {"r": {"access": {"gpu.0": "rw"}, "mappings": [{"allocation": "a.*"}]}},
        },
        "a.7",
    ),
    "regions": (
        lambda count: {"regions": {"r": {"each": count, "device": "gpu.0", "size": SMALL, "chunk": SMALL}}},
        "r.7",
    ),
}


@pytest.mark.parametrize("to", ["host", "drop"])
@pytest.mark.parametrize("which", AMONG)
def test_one_among_many_sleeps_without_a_comparison_of_the_others(
    which: str, to: str, sim: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were all compared with themselves, and the wake was planned before each sleep."""
    monkeypatch.setattr(on_demand, "LEAST", LEAST)
    planned, name = AMONG[which]
    taken = []
    for count in (100, 500):
        plan = {"hipplan": 1, "devices": {"gpu": {"count": 2}}, **planned(count)}
        with hipplan.apply(plan, runtime="sim", answer=False) as layout:
            layout.sleep(name, to=to)
            layout.wake()
            taken.append(instructions_of(lambda layout=layout: (layout.sleep(name, to=to), layout.wake())))
            assert layout.drift() == []
    assert taken[1] - taken[0] <= 400 * INSTRUCTIONS_OF_OTHER_MAX


def test_what_asks_about_a_sleep_looks_at_no_objects_that_stay(
    sim: Simulator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A record, a list, layout.asleep and a watch: each listed all objects."""
    monkeypatch.setattr(on_demand, "LEAST", LEAST)
    planned, name = AMONG["regions"]
    taken = []
    for count in (100, 500):
        plan = {"hipplan": 1, "devices": {"gpu": {"count": 2}}, **planned(count)}
        with hipplan.apply(plan, runtime="sim", answer=False, record=tmp_path / f"{count}.jsonl") as layout:

            def sleep_and_ask(layout: hipplan.Layout = layout) -> None:
                change = layout.sleep(name, to="drop")
                assert str(change) == "~ region r.7: falls asleep, 4KiB, its bytes are dropped"
                assert layout.asleep == {name: "drop"}
                layout.wake()

            layout.watch("r.9", on_unmap=lambda name: None)
            sleep_and_ask()
            taken.append(instructions_of(sleep_and_ask))
    assert taken[1] - taken[0] <= 400 * INSTRUCTIONS_OF_OTHER_MAX * 2
