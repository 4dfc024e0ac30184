"""Pairs of plans made by a rule: the second has some of the first's objects, some of them changed, and others.

The parts are those of tests/faults/generated.py, and more that repeat: counts, `each:`, many chunks, members that
differ in one thing.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults import generated

COUNT = 200
Plan = dict[str, Any]
Part = Callable[[random.Random, Plan, Path], None]


def pair(seed: int) -> tuple[Plan, Plan]:
    """They bind `caller` and `shared`, and have a file data.bin beside them, as those of generated.plan()."""
    r = random.Random(f"pair {seed}")  # a text, so that no two seeds are alike
    chosen = r.sample([*generated.NOUNS, *REPEATED], 5)
    if seed % 4 == 0 and not {*chosen[:4]} & {*REPEATED}:
        chosen[0] = REPEATED[seed // 4 % len(REPEATED)]
    before = {part: r.getrandbits(32) for part in chosen[:4]}
    after: dict[Part, int] = {}
    for part, its_seed in before.items():
        fate = r.random()
        if fate < 0.85:
            after[part] = its_seed if fate < 0.5 else r.getrandbits(32)
    if r.random() < 0.5 or not after:
        after[chosen[4]] = r.getrandbits(32)
    return _plan(f"before-{seed}", before), _plan(f"after-{seed}", after)


def _plan(name: str, parts: dict[Part, int]) -> Plan:
    out: Plan = {"hipplan": 1, "name": name, "devices": {"gpu": {"count": 2}}}
    for part, seed in parts.items():
        part(random.Random(seed), out, Path())
    return out


def _counted(r: random.Random, out: Plan, folder: Path) -> None:
    """Many alike in one reservation, back to back or apart, with one right for all."""
    out.setdefault("allocations", {})["page"] = {
        "device": r.choice(generated.DEVICES),
        "size": r.choice(["2MiB", "4MiB"]),
        "count": r.choice([5, 8, 13]),
        "shareable": r.choice(["none", "posix_fd"]),
    }
    mapping: Plan = {"allocation": "page.*"}
    if r.random() < 0.3:
        mapping["at"] = "8MiB"
    access = {"gpu.0": "rw", "gpu.1": r.choice(["r", "rw"])}
    out.setdefault("reservations", {})["book"] = {"size": "128MiB", "access": access, "mappings": [mapping]}


def _each(r: random.Random, out: Plan, folder: Path) -> None:
    """Members by a pattern: devices in turns, places by a stride, contents of one of them."""
    n = r.choice([3, 6, 9])
    buffers = out.setdefault("buffers", {})
    buffers["lane.$(i)"] = {"each": {"i": n}, "kind": "device", "device": "gpu.$(i % 2)"}
    buffers["lane.$(i)"]["size"] = "$(4096 * (1 + i % 3))"
    out.setdefault("allocations", {})["shard.$(i)"] = {"each": {"i": n}, "device": "gpu.$(i % 2)", "size": "2MiB"}
    stride = r.choice([2, 4])
    mappings = [{"each": {"i": n}, "allocation": "shard.$(i)", "at": f"$({stride} * 1048576 * i)"}]
    if r.random() < 0.5:
        mappings[0]["access"] = {"gpu.$(i % 2)": "rw"}
    out.setdefault("reservations", {})["strided"] = {
        "size": "64MiB",
        "access": {"gpu.0": "rw", "gpu.1": "rw"},
        "mappings": mappings,
    }
    out.setdefault("contents", {})[f"lane.{r.randrange(n)}"] = {"value": r.randrange(100), "dtype": "i32"}


def _chunks(r: random.Random, out: Plan, folder: Path) -> None:
    """A region of many chunks, on one device or spread."""
    chunks = r.choice([4, 16, 24])
    region: Plan = {"chunk": "2MiB", "size": f"{2 * chunks}MiB", "reserve": "96MiB"}
    match r.choice(["one", "interleave", "read"]):
        case "one":
            region |= {"device": r.choice(generated.DEVICES)}
        case "interleave":
            region |= {"devices": ["gpu.*"], "spread": "interleave", "access": {"gpu.*": "rw"}}
        case _:
            region |= {"device": "gpu.0", "access": {"gpu.0": "rw", "gpu.1": "r"}}
    if r.random() < 0.5:
        region["tensors"] = {"rows": {"dtype": "u8", "shape": [-1]}}
    if r.random() < 0.3:
        region["seal"] = True
    out.setdefault("regions", {})["cache"] = region
    if r.random() < 0.3:
        out.setdefault("contents", {})["cache"] = {"value": r.randrange(256), "dtype": "u8"}


def _one_by_one(r: random.Random, out: Plan, folder: Path) -> None:
    """Buffers that are written out, of which some are alike."""
    buffers = out.setdefault("buffers", {})
    for name in r.sample(["north", "east", "south", "west", "up", "down"], 4):
        kind = r.choice(["device", "device", "pinned"])
        buffers[name] = {"kind": kind, "size": r.choice(["64KiB", "64KiB", "1MiB"])}
        if kind == "device":
            buffers[name]["device"] = r.choice(generated.DEVICES)


def _streams(r: random.Random, out: Plan, folder: Path) -> None:
    out.setdefault("streams", {})["queue.$(i)"] = {"each": {"i": r.randint(2, 5)}, "device": "gpu.$(i % 2)"}


REPEATED: tuple[Part, ...] = (_counted, _each, _chunks, _one_by_one, _streams)
