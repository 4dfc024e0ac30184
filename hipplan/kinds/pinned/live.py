"""Page-locked host memory (hipHostMalloc), as a step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from hipplan.kinds.live import Buffer, Lack, flags_of
from hipplan.program.checks import Check, Reading, check_kind, check_pages
from hipplan.program.steps import Step, step_data
from hipplan.units import short_size

if TYPE_CHECKING:
    from hipplan.kinds.making import Making
    from hipplan.kinds.pinned.plan import PinnedBuffer
    from hipplan.language.objects import ResolvedBuffer
    from hipplan.machines.machine import Machine


_REPORTED_FLAGS = frozenset({"mapped"})
"""The flags of hipHostMalloc that hipHostGetFlags returns on every runtime: CUDA does not return portable if several
devices are in use."""


@step_data
class CreatePinnedBuffer(Buffer):
    call = "hipHostMalloc"
    makes = "pinned"
    lies = "host"
    row = ("create pinned buffer", "device", "size", "flags", "numa_node")
    compared = ("device", "size", "flags", "numa_node", "near", "simulated_node")
    why_awake = "it is host memory"
    why_not_held = "the driver frees pinned memory when its process ends"

    flags: tuple[str, ...] = ()
    """The flags of hipHostMalloc."""
    numa_node: int = -1
    """The preferred node for the memory; -1: the runtime chooses."""
    near: bool = False
    """The plan requires that node, so it is read back."""
    simulated_node: bool = False
    """The simulator plays the node: there is nothing to read back."""

    def describe(self) -> str:
        place = f"NUMA node {self.numa_node}" if self.near and self.numa_node >= 0 else "the host"
        return f"{short_size(self.size)} on {place}, device {self.device} current"

    @classmethod
    def steps_of(cls, buffer: ResolvedBuffer, making: Making) -> Iterator[Step]:
        spec = cast("PinnedBuffer", buffer.spec)
        device = making.devices[buffer.device]
        node, near = making.numa_node(spec, device), spec.numa is not None
        coherency = {None: (), True: ("coherent",), False: ("non_coherent",)}[spec.coherent]
        flags = (*flags_of(spec, "portable", "mapped", "write_combined", "uncached", "numa_user"), *coherency)
        simulated = making.is_simulated(node)
        yield cls(buffer.name, making.span(*buffer.path), device, spec.size, flags, node, near, simulated)

    def checks(self, reading: Reading) -> Iterator[Check]:
        address = reading.address_of(self.name)
        yield check_kind(self.name, "host", address, reading)
        if asked := _REPORTED_FLAGS.intersection(self.flags):
            # Runtimes do not report the other flags, and may set more flags than requested.
            have = asked.intersection(reading.runtime.host_flags(address))
            yield Check(self.name, "flags", ", ".join(sorted(asked)), ", ".join(sorted(have)) or "none")
        if self.near and not self.simulated_node:
            yield from check_pages(self.name, self.numa_node, reading)

    @staticmethod
    def lacks(spec: Any, machine: Machine, name: str, ordinal: int) -> Iterator[Lack]:
        if spec.uncached and machine.version and machine.version < (7, 0):
            yield Lack("HP309", "uncached pinned memory needs HIP 7.0", ("uncached",))
