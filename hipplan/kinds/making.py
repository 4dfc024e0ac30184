"""What the steps of buffers are made with: the ordinals, places and NUMA nodes behind the words of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hipplan.language.host import HOST
from hipplan.program.steps import CPU_ORDINAL, Step

if TYPE_CHECKING:
    from hipplan.language.loader import LoadedPlan  # attaching reads no plan
    from hipplan.machines.machine import Machine


class Making:
    """The plan and the machine that buffers are made for, and the work that is enqueued on the way."""

    def __init__(self, plan: LoadedPlan, machine: Machine, devices: Mapping[str, int]) -> None:
        """devices: the ordinals."""
        self._plan = plan
        self._machine = machine
        self.devices = devices
        """Name -> ordinal."""
        self.span = plan.span
        """The place of a path in the plan."""
        self._simulated_nodes = {known.node for known in machine.numa_nodes if known.simulated}
        self.enqueued: dict[tuple[str, int], None] = {}
        """(stream or empty for the null stream, its device) with work to wait for, in order."""
        self.alike: list[tuple[Step, int]] = []
        """(step, how many like it) of the steps that make memory."""

    def ordinal(self, device: str) -> int:
        """The ordinal of a device; CPU_ORDINAL of the host."""
        return CPU_ORDINAL if device == HOST else self.devices[device]

    def queue_device(self, stream: str, target: int = CPU_ORDINAL) -> int:
        """The ordinal of the device that a stream belongs to. Empty: the null stream of the target; the host has none,
        so for it that of the plan's first device."""
        if stream:
            return self.devices[self._plan.objects.streams[stream].device]
        return next(iter(self.devices.values())) if target == CPU_ORDINAL else target

    def path(self, file: str) -> str:
        """The path of a file that the plan names."""
        return self._plan.path_from_here(file)

    def numa_node(self, pages: object, device: int) -> int:
        """The NUMA node that a model's numa or numa_node means; -1: the plan does not decide it, or it is unknown."""
        is_near = getattr(pages, "numa", None) is not None
        wanted = self._machine.devices[device].numa_node if is_near else getattr(pages, "numa_node", None)
        return -1 if wanted is None else wanted

    def is_simulated(self, node: int) -> bool:
        """Whether the simulator plays a NUMA node."""
        return node in self._simulated_nodes
