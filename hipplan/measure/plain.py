"""Ordinary buffers beside a plan's memory: what hipMalloc and hipHostMalloc give, on the same devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from hipplan import _core
from hipplan.errors import ApplyError, MachineError
from hipplan.language.loader import load
from hipplan.layout.layout import Layout
from hipplan.layout.prepare import prepare
from hipplan.layout.run import run
from hipplan.machines.runtimes import Chosen
from hipplan.measure.figures import GBS, US, Figure, Progress, figure, samples, seconds_of
from hipplan.program.steps import CPU_ORDINAL

Ends = tuple[int, int]
_WHAT = {GBS: "copy", US: "latency"}


def beside(figures: Sequence[Figure], chosen: Chosen, repeats: int, look: Progress) -> list[Figure]:
    """The figures of copies and prefetches, each with that of a copy between ordinary buffers of the same devices.

    Their memory is made afterwards, and not beside the plan's: a peer link would open that. What cannot be made has no
    figure. Raises HipError, LeakError, and as look().
    """
    known: dict[tuple[Ends, str, int], float | None] = {}
    compared = []
    for item in figures:
        if item.ends is None:
            compared.append(item)
            continue
        key = (item.ends, item.unit, item.bytes)
        if key not in known:
            look(f"ordinary buffers beside {item.name}")
            known[key] = _copied(chosen, item.ends, item.unit, item.bytes, repeats)
        compared.append(replace(item, plain=known[key]))
    return compared


def _copied(chosen: Chosen, ends: Ends, unit: str, size: int, repeats: int) -> float | None:
    to, source = ends
    with plain_buffers(chosen, ends, size) as buffers:
        if buffers is None:
            return None
        copy = partial(move, chosen.runtime, buffers["to"].address, to, buffers["from"].address, source, size)
        times = repeats if unit == GBS else repeats * 5
        return figure(_WHAT[unit], "", unit, size, samples([partial(seconds_of, copy)], times)).value


@contextmanager
def plain_buffers(chosen: Chosen, ends: Ends, size: int) -> Iterator[Layout | None]:
    """Ordinary buffers `to` and `from`; None where there is no room for them."""
    to, source = ends
    count = max(0, *ends) + 1
    plan: dict[str, Any] = {
        "hipplan": 1, "name": "plain", "devices": {"gpu": {"count": count}},
        "buffers": {"to": _buffer(to, size), "from": _buffer(source, size)},
    }  # fmt: skip
    if CPU_ORDINAL not in ends and to != source:
        links = ((to, source), (source, to))
        plan["peers"] = [
            {"device": f"gpu.{a}", "peer": f"gpu.{b}"} for a, b in links if chosen.runtime.can_access_peer(a, b)
        ]
    try:
        layout = run(prepare(load(plan), chosen, None), chosen.runtime)
    except (ApplyError, MachineError):
        yield None
        return
    with closing(layout):
        yield layout


def _buffer(ordinal: int, size: int) -> dict[str, Any]:
    place = {"kind": "pinned"} if ordinal == CPU_ORDINAL else {"kind": "device", "device": f"gpu.{ordinal}"}
    return {**place, "size": size}


def move(runtime: _core.Runtime, to: int, to_device: int, source: int, source_device: int, size: int) -> None:
    """A copy that is waited for. Raises HipError."""
    if CPU_ORDINAL in (to_device, source_device):
        runtime.copy(to, source, size)
    else:
        runtime.copy_peer(to, to_device, source, source_device, size)
