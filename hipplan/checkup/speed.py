"""Speeds: copies between devices and the host, and making memory, each beside ordinary memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hipplan.checkup.question import MIB, Bench, Question, Seen
from hipplan.language.loader import load
from hipplan.measure.measured import measured

REPEATS = 5
DEVICES_MAX = 8
SIZE = 64 * MIB


def _copies(bench: Bench) -> Seen:
    """Copies between a region of each device, a second one of the first, and pinned memory, where rights allow."""
    count = min(bench.devices, DEVICES_MAX)
    size = min(bench.memory // (2 * (count + 2)) // (2 * MIB) * 2 * MIB, SIZE)
    regions = {f"gpu_{owner}": _region(bench, owner, size) for owner in range(count)}
    plan = {
        "hipplan": 1,
        "devices": {"gpu": {"count": count}},
        "regions": {**regions, "second": _region(bench, 0, size)},
        "buffers": {"pinned": {"kind": "pinned", "size": size}},
    }
    return {"MiB": size // MIB, **_measured(bench, plan, ("copy", "latency"))}


def _region(bench: Bench, owner: int, size: int) -> dict[str, Any]:
    users = [user for user in range(bench.devices) if bench.reach(user, owner) and bench.reach(owner, user)]
    return {
        "device": f"gpu.{owner}", "size": size, "access": {f"gpu.{user}": "rw" for user in users if user < DEVICES_MAX},
    }  # fmt: skip


def _maps(bench: Bench) -> Seen:
    """Making and freeing a region of device 0: the driver's calls alone, beside hipMalloc and hipFree."""
    plan = {"hipplan": 1, "regions": {"region": {"size": min(bench.memory // 8, SIZE)}}}
    return _measured(bench, plan, ("map",))


def _measured(bench: Bench, plan: dict[str, Any], kinds: Sequence[str]) -> Seen:
    figures = measured(load(plan), bench.chosen, None, kinds, (), REPEATS, lambda _: None)
    return {f"{figure.key}, {figure.unit}": _rounded(figure.value, figure.plain) for figure in figures}


def _rounded(*values: float | None) -> list[float]:
    return [float(f"{value:.3g}") for value in values if value is not None]


QUESTIONS = (Question("copies", _copies, limit_s=90), Question("making memory", _maps, limit_s=60))
