"""The memory that a step takes from a device or the host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hipplan.kinds.allocation.live import CreateAllocation
from hipplan.kinds.live import Buffer
from hipplan.machines.machine import Machine
from hipplan.program import steps
from hipplan.program.runs import alike

Taking = CreateAllocation | Buffer
"""Steps that may need free memory."""


def takers(some_steps: Iterable[tuple[steps.Step, int]]) -> list[tuple[Taking, int]]:
    """Returns the steps, each with how many are like it, that may need free memory."""
    return [(step, many) for step, many in some_steps if isinstance(step, Taking)]


def taken_by(some_steps: Sequence[steps.Step], machine: Machine | None) -> dict[int, int]:
    """Ordinal -> bytes that steps take from that device, CPU_ORDINAL for the host."""
    taken: dict[int, int] = {}
    for step, many in takers(alike(some_steps)):
        ordinal = step.taken_from(machine)
        if ordinal is not None:
            taken[ordinal] = taken.get(ordinal, 0) + many * step.size
    return taken


def sums(before: Mapping[int, int], other: Mapping[int, int], sign: int) -> dict[int, int]:
    """The bytes of both by ordinal, where there are any: `before` and, with their sign, `other`."""
    both = {ordinal: before.get(ordinal, 0) + sign * other.get(ordinal, 0) for ordinal in {**before, **other}}
    return {ordinal: size for ordinal, size in both.items() if size}
