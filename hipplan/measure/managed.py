"""Managed memory: prefetches of it, and the first touch of each of its pages."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from hipplan import _core
from hipplan.language.loader import LoadedPlan, load
from hipplan.layout.layout import Layout
from hipplan.layout.options import Options
from hipplan.layout.prepare import prepare
from hipplan.layout.run import run
from hipplan.machines.machine import Machine
from hipplan.machines.runtimes import Chosen
from hipplan.measure.figures import GBS, Figure, Progress, figure, samples, seconds_of
from hipplan.measure.plain import plain_buffers
from hipplan.program.steps import CPU_ORDINAL

FIRST_TOUCHES = 5
"""Samples of a first touch, at most: each needs new memory."""


def prefetches(layout: Layout, chosen: Chosen, repeats: int, look: Progress) -> Iterator[Figure]:
    """Prefetches of each managed buffer to each device of the plan and to the host, from the place before in that
    order. Raises HipError, and as look()."""
    runtime, places = chosen.runtime, _places(layout.program.devices)
    buffers = [resource for resource in layout.program.resources if resource.kind == "managed"]
    for buffer in buffers:
        address, size = layout[buffer.name].address, buffer.size
        for number, (name, ordinal) in enumerate(places):
            source = places[number - 1][1]
            look(f"{buffer.name} to {name}")
            away = partial(runtime.prefetch, address, size, source, _queue(source, ordinal))
            there = partial(runtime.prefetch, address, size, ordinal, _queue(ordinal, source))
            taken = samples([partial(seconds_of, there, away)], repeats)
            yield figure("prefetch", f"{buffer.name} > {name}", GBS, size, taken, (ordinal, source))


def first_touches(
    plan: LoadedPlan, chosen: Chosen, profile: Machine | None, repeats: int, look: Progress
) -> Iterator[Figure]:
    """Writing each byte of new managed memory, by each device of the plan and by the host; beside it the same of an
    ordinary buffer. Makes and frees memory of its own. Raises as apply(), HipError, and as look()."""
    managed = {name: item.spec for name, item in plan.objects.buffers.items() if item.spec.kind == "managed"}
    devices = {name: device.model_dump(exclude_unset=True) for name, device in plan.plan.devices.items()}
    times = min(repeats, FIRST_TOUCHES)
    for name, spec in managed.items():
        document = {"hipplan": 1, "devices": devices, "buffers": {name: _alone(spec)}}
        if not devices:
            del document["devices"]
        program = prepare(load(document), chosen, profile)
        for place, ordinal in _places(prepare(plan, chosen, profile).devices):
            look(f"first touch of {name} by {place}")
            calls: list[Callable[[], float]] = [
                partial(_touched, lambda: run(program, chosen.runtime, Options(verify=False)), name, spec.size, ordinal)  # noqa: B023
            ]
            with plain_buffers(chosen, (ordinal, ordinal), spec.size) as plain:
                if plain is not None:
                    address = plain["to"].address
                    calls.append(partial(seconds_of, partial(_touch, chosen.runtime, address, spec.size, ordinal)))
                yield figure("first_touch", f"{name} by {place}", GBS, spec.size, samples(calls, times))


def _alone(spec: Any) -> dict[str, Any]:
    """A managed buffer without what needs other objects, or moves it before the touch."""
    return dict(spec.model_dump(exclude_unset=True, exclude={"prefetch", "attach_to", "count"}))


def _touched(make: Callable[[], Layout], name: str, size: int, ordinal: int) -> float:
    with make() as layout:
        return seconds_of(partial(_touch, layout.runtime, layout[name].address, size, ordinal))


def _touch(runtime: _core.Runtime, address: int, size: int, ordinal: int) -> None:
    if ordinal == CPU_ORDINAL:
        ctypes.memset(address, 1, size)
    else:
        runtime.fill_on(ordinal, address, 1, size)


def _places(devices: dict[str, int]) -> Sequence[tuple[str, int]]:
    return [*devices.items(), ("host", CPU_ORDINAL)]


def _queue(to: int, source: int) -> int:
    """The device whose null stream a prefetch is in: one of both ends."""
    return to if to != CPU_ORDINAL else max(source, 0)
