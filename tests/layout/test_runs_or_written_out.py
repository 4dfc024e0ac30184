"""A layout whose chunks are kept as runs is the layout whose chunks are written out: random acts on both make the same
calls, reports, records and errors."""

from __future__ import annotations

import gc
import json
import random
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan.layout.undo import wait_until_freed
from hipplan.program import on_demand
from hipplan.program.lookup import object_count, resource_of
from hipplan.program.mapped_runs import MappedRun
from hipplan.program.on_demand import LEAST
from hipplan.program.runs import runs
from tests.conftest import WHOLE, Simulator
from tests.faults.harness import as_release, same_calls_each_time
from tests.machines.test_releases import RELEASES as QUIRKS
from tests.python_calls import CHUNK

ACTS = 7
SEEDS = 60 if WHOLE else 2
NEVER = 1 << 40
RELEASES = {"6.2": "6.2.41133", "6.4": "6.4.43484", "7.2": "7.2.53211", "7.15": "7.15.0"}
THREADED = {"hipGetDevice", "hipSetDevice", "hipMemcpyAsync", "hipStreamSynchronize", "hipHostFree"}
"""Calls that several threads make at once in a sleep or behind a wake, in any order: they are counted."""
READS = {"hipMemGetAllocationPropertiesFromHandle", "hipMemGetAddressRange", "hipMemGetAccess"}
"""Calls that read back, in the order of the steps, which is another one where chunks were gathered: counted, too."""
OWN = ("at_us", "us", "started", "process", "provenance", "program")
"""Of a record: what differs each time."""
ADDRESS = re.compile(r"0x[0-9a-f]+")

Draw = random.Random
Plan = dict[str, Any]
Act = Callable[[hipplan.Layout], Any]


def region(draw: Draw, release: str) -> Plan:
    count = draw.choice((32, 33, 40, 67))
    both = draw.choice((["gpu.0", "gpu.1"], ["gpu.1", "gpu.0"]))
    size = {"size": count * CHUNK}
    room = {"reserve": (count + 90) * CHUNK}
    some: Plan = draw.choice(
        (
            {"device": draw.choice(both), **size, **room},
            {"devices": both, "spread": "blocks", **size},
            {"devices": both, "spread": "interleave", **size, **room},
            {"devices": both, "sizes": [count * CHUNK, draw.choice((3, 35)) * CHUNK]},
        )
    )
    if release == "6.2":  # which gives rights to one device
        some["access"] = {"owner": "rw"}
    elif release != "6.4":
        host = {"host": "rw"} if release == "7.15" else {}
        rights = (
            {"gpu.*": "rw"},
            {"owner": "rw"},
            {"owner": "rw", "gpu.0": "r"},
            {"gpu.0": "rw"},
            {"owner": "rw", **host},
        )
        some |= draw.choice(({}, {"access": draw.choice(rights)}))
    if draw.random() < 0.2:
        some["seal"] = True
    if draw.random() < 0.2:
        some["attached"] = "rw"
    if draw.random() < 0.3:
        some["tensors"] = {"t": {"dtype": "f32", "shape": [1024]}, "u": {"dtype": "f32", "shape": [-1, 512]}}
    return {"chunk": CHUNK, **some}


def plan(draw: Draw, regions: dict[str, Plan], release: str) -> Plan:
    buffer = {"kind": "device", "device": "gpu.0", "size": draw.choice(("64KiB", "128KiB"))}
    made: Plan = {"hipplan": 1, "devices": {"gpu": {"count": 2}}, "buffers": {"b": buffer}, "regions": regions}
    if draw.random() < 0.3:
        made["allocations"] = {"a": {"device": "gpu.1", "size": CHUNK}}
        made["reservations"] = {"own": {"size": 4 * CHUNK, "mappings": [{"allocation": "a"}]}}
    if draw.random() < 0.4:
        count = draw.choice((40, 44))
        made.setdefault("allocations", {})["m"] = {"device": "gpu.0", "size": CHUNK, "count": count}
        access = {"gpu.0": "rw"} | ({} if release == "6.2" else {"gpu.1": "rw"})
        own = {"size": 50 * CHUNK, "access": access, "mappings": [{"allocation": "m.*"}]}
        made.setdefault("reservations", {})["counted"] = own
    if draw.random() < 0.5 and "tensors" in (kv := regions.get("kv", {})) and "access" not in kv:
        made["contents"] = {"kv.t": {"value": 1.0}}
    return made


def other_plan(draw: Draw, regions: dict[str, Plan], release: str) -> Plan:
    now = dict(regions)
    for name, was in regions.items():
        chance = draw.random()
        if chance < 0.2:
            now[name] = region(draw, release)
        elif chance < 0.4 and "size" in was:
            now[name] = was | {"size": was["size"] + draw.choice((-1, 1, 5)) * CHUNK}
        elif chance < 0.5:
            del now[name]
    return plan(draw, now | ({"more": region(draw, release)} if draw.random() < 0.3 else {}), release)


def act(draw: Draw, regions: dict[str, Plan], release: str, folder: Path) -> tuple[str, Act]:
    """An act and its name."""
    name, size = draw.choice(("kv", "w", "kv", "w", "*", "counted")), draw.choice((1, 2, 5, 40)) * CHUNK
    device, keeps, retain = draw.choice((None, "gpu.0", "gpu.1", "host")), draw.random() < 0.7, draw.random() < 0.3
    first = draw.randrange(34)
    part = first * CHUNK, (first + draw.choice((1, 3, 30))) * CHUNK
    to, other, lose = (
        draw.choice(("host", "drop", folder / "asleep", "mapped")),
        other_plan(draw, regions, release),
        draw.choice("** "),
    )
    checksum = draw.choice((None, True, False))
    acts: list[tuple[int, str, Act]] = [
        (2, "grow", lambda layout: layout.grow(name, by=size)),
        (
            1,
            "remap one away",
            lambda layout: layout.remap(name, part=(first * CHUNK, (first + 1) * CHUNK), device="gpu.1"),
        ),
        (2, "grow one by one", lambda layout: [layout.grow(name, by=CHUNK) for _ in range(2 + 2 * size // CHUNK)]),
        (2, "shrink", lambda layout: layout.shrink(name, by=size)),
        (1, "remap", lambda layout: layout.remap(name, device=device, keep_bytes=keeps)),
        (2, "remap a part", lambda layout: layout.remap(name, part=part, device=device, keep_bytes=keeps)),
        (1, "seal", lambda layout: layout.seal(name)),
        (1, "unseal", lambda layout: layout.unseal(name)),
        (2, "sleep", lambda layout: layout.sleep(name, to=to, unchanged=name if retain else (), checksum=checksum)),
        (2, "wake", lambda layout: layout.wake(retain=retain)),
        (1, "wake some", lambda layout: layout.wake(name)),
        (2, "update", lambda layout: layout.update(other, lose=lose.strip())),
    ]
    ((_, title, chosen),) = draw.choices(acts, [often for often, _, _ in acts])
    return f"{title} {name}", chosen


class Player:
    """Plays random acts, and keeps what comes of each."""

    def __init__(self, seed: int, folder: Path, sim: Simulator) -> None:
        folder.mkdir()
        self.draw, self.folder, self.sim = Draw(seed), folder, sim
        self.lines: list[str] = []
        self.runs = 0
        """The number of runs of the first program."""
        self.calls: dict[str, int] = {}
        """Driver calls of each act, by its title."""

    def play(self) -> list[str]:
        release = self.draw.choice([*RELEASES])
        regions = {name: region(self.draw, release) for name in ("kv", "w")}
        first, record = plan(self.draw, regions, release), self.folder / "record"
        self.lines += [release, json.dumps(first)]
        with same_calls_each_time(), as_release(self.sim, RELEASES[release], *QUIRKS[release].split()):
            layout = self.done("apply", lambda: hipplan.apply(first, runtime="sim", answer=False, record=record))
            if layout is not None:
                self.runs = len([*runs(layout.program.steps)])
                with layout:
                    for _ in range(ACTS):
                        title, chosen = act(self.draw, regions, release, self.folder)
                        self.done(title, partial(chosen, layout))
                        self.look_at(layout)
                    self.done("close", layout.close)
            self.sim.free_everything()  # what calls that failed in an undo have left
        return self.told(record)

    def play_update(self, first: Plan, second: Plan, release: str, fails: tuple[int, int]) -> list[str]:
        """An apply, an update and a close. fails: the number of the call that fails in the apply, and in the update; 0:
        none."""
        record = self.folder / "record"
        record.unlink(missing_ok=True)
        self.lines, (in_apply, in_update) = [], (f"*@{n}=hipErrorOutOfMemory" if n else "" for n in fails)
        with same_calls_each_time(), as_release(self.sim, RELEASES[release], *QUIRKS[release].split()):
            made = partial(hipplan.apply, first, runtime="sim", answer=False, record=record)
            layout = self.observed("apply", made, in_apply)
            if layout is not None:
                with layout:
                    self.runs = len([*runs(layout.program.steps)])
                    self.look_at(layout)
                    self.observed("update", lambda: layout.update(second, lose="*"), in_update)
                    self.look_at(layout)
                    self.observed("close", layout.close)
            self.sim.free_everything()
        return self.told(record)

    def told(self, record: Path) -> list[str]:
        """All lines, with those of the record, without what differs each time."""
        events = map(json.loads, record.read_text().splitlines() if record.exists() else ())
        self.lines += [str({key: value for key, value in event.items() if key not in OWN}) for event in events]
        return [ADDRESS.sub("ADDRESS", line.replace(str(self.folder), "FOLDER")) for line in self.lines]

    def done(self, title: str, chosen: Callable[[], Any]) -> Any:
        """The result of an act, during which a call may fail; None after an error."""
        fails = self.draw.random() < 0.2 and not title.startswith(("apply", "sleep", "wake"))
        return self.observed(title, chosen, f"*@{self.draw.randrange(1, 400)}=hipErrorOutOfMemory" if fails else "")

    def observed(self, title: str, chosen: Callable[[], Any], faults: str = "") -> Any:
        """The result of an act with these faults; None after an error."""
        trace, made = self.folder / "trace", None
        trace.unlink(missing_ok=True)
        gc.collect()
        self.lines.append(f"=== {title} {faults}")
        self.sim.runtime.trace_to(str(trace))
        self.sim.runtime.arm_faults(faults)
        try:
            made = chosen()
            self.lines += [*str(made).splitlines(), repr(made)]
        except hipplan.HipplanError as error:
            self.lines += [*map(str, error.diagnostics), *str(error).splitlines()]
        wait_until_freed()
        self.sim.runtime.arm_faults("")
        self.sim.runtime.trace_to("")
        calls = [*map(json.loads, trace.read_text().splitlines())] if trace.exists() else []
        self.lines += [str((c["call"], c["args"], c["result"])) for c in calls if c["call"] not in THREADED | READS]
        self.lines.append(str(sorted(Counter(call["call"] for call in calls).items())))
        self.calls[title] = len(calls)
        return made

    def look_at(self, layout: hipplan.Layout) -> None:
        program = layout.program
        # Sorted: where chunks are gathered, their order changes.
        self.lines += sorted(f"{c.name}: {c.what}: {c.desired} {c.current}" for c in layout.verify())
        self.lines += [*sorted(map(str, program.resources)), *sorted(map(str, program.steps))]
        self.lines += [str(sorted(fact.items())) for fact in (program.owners, program.taken)]
        self.lines += [*sorted(program.slots), str(sorted(program.slots.values()))]
        self.lines.append(str((program.descriptors, program.range_sizes)))
        assert {name: resource_of(program, name) for name in program.by_name} == program.by_name
        assert object_count(program) == len(program.by_name)
        for _, run in runs(program.steps):
            if isinstance(run, MappedRun):
                memory = {number: run.memory_name(number) for number in run.numbers}
                assert {run.owner(number) - program.owners[name] for number, name in memory.items()} == {0}, run.of


@pytest.mark.parametrize("seed", range(SEEDS))
def test_runs_and_what_is_written_out_make_one_layout(
    seed: int, tmp_path: Path, sim: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = Player(seed, tmp_path / "runs", sim)
    lines = short.play()
    monkeypatch.setattr(on_demand, "LEAST", NEVER)
    written = Player(seed, tmp_path / "written out", sim)
    assert written.play() == lines
    assert short.runs > written.runs == 0


KINDS: dict[str, Plan] = {
    "device": {"kind": "device", "device": "gpu.1", "size": "4KiB"},
    "pinned": {"kind": "pinned", "size": "4KiB"},
    "coherent": {"kind": "coherent", "device": "gpu.0", "size": "4KiB"},
    "registered": {"kind": "registered", "anonymous": {"size": "4KiB"}},
    "managed": {"kind": "managed", "size": "4KiB"},
}
DEVICE, PINNED = KINDS["device"], KINDS["pinned"]


def counted(count: int, kind: str = "device", **more: Any) -> Plan:
    return {**KINDS[kind], **more, "count": count}


CHANGES: dict[str, tuple[Plan, Plan]] = {
    **{f"more of {kind}": ({"s": counted(40, kind)}, {"s": counted(43, kind)}) for kind in KINDS},
    **{f"fewer of {kind}": ({"s": counted(40, kind)}, {"s": counted(33, kind)}) for kind in KINDS},
    "many more": ({"s": counted(40)}, {"s": counted(80)}),
    "few are left": ({"s": counted(40)}, {"s": counted(5)}),
    "few become many": ({"s": counted(5)}, {"s": counted(40)}),
    "another size": ({"s": counted(40)}, {"s": counted(40, size="8KiB")}),
    "another kind": ({"s": counted(40)}, {"s": counted(41, "pinned")}),
    "another name": ({"s": counted(40)}, {"t": counted(40)}),
    "nothing else": ({"s": counted(40), "b": DEVICE}, {"s": counted(40)}),
    "two lines": (
        {"s": counted(40), "t": counted(35, "pinned")},
        {"t": counted(36, "pinned"), "b": DEVICE, "s": counted(39)},
    ),
    "alone": ({"s.7": DEVICE, "s.41": PINNED}, {"s": counted(40), "s.41": PINNED}),
}
"""What changes -> the buffers before and after."""


def mapped(count: int, *more: str, **lines: Any) -> Plan:
    """Counted allocations, mapped in a range that has room for more. more: allocations that are mapped behind them."""
    memory = {"device": "gpu.0", "size": CHUNK, "count": count}
    mappings = [{"allocation": "m.*", **lines}, *({"allocation": name} for name in more)]
    single = {name: {"device": "gpu.1", "size": CHUNK} for name in more}
    range_ = {"size": 100 * CHUNK, "access": {"gpu.0": "rw"}, "mappings": mappings}
    return {"allocations": {"m": memory, **single}, "reservations": {"range": range_}}


MAPPED: dict[str, tuple[Plan, Plan]] = {
    "more are mapped": (mapped(40), mapped(43)),
    "fewer are mapped": (mapped(40), mapped(33)),
    "few mappings are left": (mapped(40), mapped(5)),
    "mapped with one behind": (mapped(40), mapped(40, "b")),
    "mapped further down": (mapped(40), mapped(40, at=4 * CHUNK)),
    "with other access": (mapped(40), mapped(40, access={"gpu.0": "r"})),
    "without access": (mapped(40), mapped(40, access={"gpu.0": "none"})),
    "no longer mapped": (mapped(40), {"allocations": mapped(40)["allocations"]}),
    "gone": (mapped(40), {"buffers": {"b": DEVICE}}),
}
"""What changes -> the plans before and after, but for what is beside."""


def both_of(which: str) -> tuple[Plan, Plan]:
    if which in MAPPED:
        return MAPPED[which]
    before, after = CHANGES[which]
    return {"buffers": before}, {"buffers": after}


@pytest.mark.in_parts
@pytest.mark.parametrize("which", [*CHANGES, *MAPPED])
def test_counts_in_runs_and_written_out_make_one_layout(
    which: str, tmp_path: Path, sim: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever call fails."""
    monkeypatch.setattr(on_demand, "LEAST", LEAST)
    beside = {"hipplan": 1, "devices": {"gpu": {"count": 2}}, "regions": {"kv": {"size": 40 * CHUNK, "chunk": CHUNK}}}
    first, second = ({**beside, **plan} for plan in both_of(which))
    number = [*CHANGES, *MAPPED].index(which)
    release = [*RELEASES][number % len(RELEASES)]
    players = [Player(0, tmp_path / name, sim) for name in ("runs", "written out")]
    no_fault = players[0].play_update(first, second, release, (0, 0))
    calls = players[0].calls
    step = 7 if WHOLE else 197  # from another call on in each case
    fails = [(0, 0), *((n, 0) for n in range(1 + number % step, calls["apply"] + 1, step)),
             *((0, n) for n in range(1 + number % step, calls["update"] + 1, step))]  # fmt: skip
    in_runs = [players[0].play_update(first, second, release, some) for some in fails]
    assert in_runs[0] == no_fault and players[0].runs > 2 - (which in ("few become many", "alone"))
    monkeypatch.setattr(on_demand, "LEAST", NEVER)
    assert [players[1].play_update(first, second, release, some) for some in fails] == in_runs
    assert players[1].runs == 0
