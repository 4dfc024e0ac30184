"""Making and freeing the mapped memory of a plan: the driver's calls alone, beside hipMalloc and hipFree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from hipplan.language.loader import LoadedPlan, load
from hipplan.layout.options import Options
from hipplan.layout.prepare import prepare
from hipplan.layout.record import Recorder
from hipplan.layout.run import run
from hipplan.lowering.lowered import lowered
from hipplan.machines.machine import Machine
from hipplan.machines.runtimes import Chosen
from hipplan.measure.figures import US, Figure, Progress, figure, seconds_of
from hipplan.program import open_sizes
from hipplan.program.program import Program
from hipplan.program.steps import Step

_MAPPED = ("devices", "ranks", "allocations", "reservations", "regions", "vars")
MAPS = 20
"""Samples, at most: each makes all of the memory."""


class _Times(Recorder):
    """Adds up the times of the driver's calls, and writes no record."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self._file = None
        self._begun = True
        self._began_ns = 0

    def begin(self, program: Program, runtime: dict[str, Any], steps: int) -> None:
        """Nothing is written."""

    def step(self, step: Step, began_ns: int, took_ns: int, retries: int, error: BaseException | None) -> None:
        self.calls[step.call] += took_ns


def maps(plan: LoadedPlan, chosen: Chosen, profile: Machine | None, repeats: int, look: Progress) -> Iterator[Figure]:
    """Makes and frees the mapped memory of the plan, and ordinary buffers of the same sizes. Raises as apply(),
    LeakError, and as look()."""
    document = plan.plan.model_dump(exclude_unset=True, include=set(_MAPPED))
    if not any(document.get(noun) for noun in ("reservations", "regions")):
        return
    of_all = prepare(plan, chosen, profile) if open_sizes.open_sizes(plan.objects) else None
    sizes = {} if of_all is None else {decided.name: decided.size for decided in open_sizes.sizes_in(of_all)}
    program = prepare(load({"hipplan": 1, **document}), chosen, profile, sizes=sizes)
    made = [*lowered(program).own_memory()]
    buffers = {
        f"b{number}": {"kind": "device", "device": f"gpu.{step.device}", "size": step.size}
        if step.location == "device"
        else {"kind": "pinned", "size": step.size}
        for number, step in enumerate(made)
    }
    count = max((step.device for step in made), default=0) + 1
    ordinary = prepare(load({"hipplan": 1, "devices": {"gpu": {"count": count}}, "buffers": buffers}), chosen, profile)
    look("map and unmap")
    making: list[list[float]] = [[], []]
    freeing: list[list[float]] = [[], []]
    calls: list[Counter[str]] = []
    for number in range(min(repeats, MAPS) + 1):
        for which, of in enumerate((program, ordinary)):
            times = _Times()
            layout = run(of, chosen.runtime, Options(verify=False, record=times))
            freed = seconds_of(layout.close)
            if number:  # the first ones warm up
                making[which].append(sum(times.calls.values()) / 1e9)
                freeing[which].append(freed)
                calls += [times.calls] * (which == 0)
    size = sum(step.size for step in made)
    yield figure("map", "", US, size, making)
    for call in calls[0]:
        yield figure("map", call, US, size, [[times[call] / 1e9 for times in calls]])
    yield figure("unmap", "", US, size, freeing)
