"""The memory that a step takes from a device or the host."""

from __future__ import annotations

from hipplan.machines.machine import Machine
from hipplan.program import steps

Taking = (
    steps.CreateAllocation
    | steps.CreateDeviceBuffer
    | steps.CreatePinnedBuffer
    | steps.RegisterBuffer
    | steps.CreateManagedBuffer
)
"""Steps that may need free memory."""


def ordinal_taken(step: steps.Step, machine: Machine | None) -> int | None:
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
