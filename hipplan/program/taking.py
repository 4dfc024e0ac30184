"""The memory that a step takes from a device or the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast, get_args

from hipplan.machines.machine import Machine
from hipplan.program import steps
from hipplan.program.runs import alike as alike_steps

Taking = (
    steps.CreateAllocation
    | steps.CreateDeviceBuffer
    | steps.CreatePinnedBuffer
    | steps.RegisterBuffer
    | steps.CreateManagedBuffer
)
"""Steps that may need free memory."""
_TAKERS = frozenset(get_args(Taking))


def takers(some_steps: Sequence[steps.Step]) -> list[tuple[Taking, int]]:
    """(step, how many like it) for those of some steps that may need free memory."""
    return cast(list[tuple[Taking, int]], [alike for alike in alike_steps(some_steps) if type(alike[0]) in _TAKERS])


def ordinal_taken(step: Taking, machine: Machine | None) -> int | None:
    """The ordinal of the device that a step takes its `size` bytes from, CPU_ORDINAL for the host; None: from none, or
    from wherever managed memory moves to."""
    if isinstance(step, steps.CreateAllocation):
        return step.device if step.location == "device" else steps.CPU_ORDINAL
    if isinstance(step, steps.CreateDeviceBuffer):
        return step.device
    if isinstance(step, steps.CreateManagedBuffer):
        # Without page faults it is host memory.
        is_on_host = machine is not None and machine.runtime != "cuda" and machine.devices[step.device].xnack is False
        return steps.CPU_ORDINAL if is_on_host else None
    return steps.CPU_ORDINAL if isinstance(step, (steps.CreatePinnedBuffer, steps.RegisterBuffer)) else None


def taken_by(some_steps: Sequence[steps.Step], machine: Machine | None) -> dict[int, int]:
    """Ordinal -> bytes that steps take from that device, CPU_ORDINAL for the host."""
    taken: dict[int, int] = {}
    for step, many in takers(some_steps):
        ordinal = ordinal_taken(step, machine)
        if ordinal is not None:
            taken[ordinal] = taken.get(ordinal, 0) + many * step.size
    return taken


def sums(before: Mapping[int, int], other: Mapping[int, int], sign: int) -> dict[int, int]:
    """The bytes of both by ordinal, where there are any: `before` and, with their sign, `other`."""
    both = {ordinal: before.get(ordinal, 0) + sign * other.get(ordinal, 0) for ordinal in {**before, **other}}
    return {ordinal: size for ordinal, size in both.items() if size}
