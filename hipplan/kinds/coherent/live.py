"""Memory of one device that others see at once (hipExtMallocWithFlags), as a step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from hipplan.kinds.live import Buffer, Lack
from hipplan.program.checks import Check, Reading, check_kind, check_place
from hipplan.program.steps import step_data
from hipplan.units import short_size

if TYPE_CHECKING:
    from hipplan.kinds.coherent.plan import CoherentBuffer
    from hipplan.kinds.making import Making
    from hipplan.language.objects import ResolvedBuffer
    from hipplan.machines.machine import Machine


@step_data
class CreateCoherentBuffer(Buffer):
    call = "hipExtMallocWithFlags"
    makes = "coherent"
    lies = "device"
    row = ("create coherent buffer", "device", "size", "uncached")
    compared = ("device", "size", "uncached")
    why_awake = "memory of hipExtMallocWithFlags is freed only together with its addresses"
    why_not_held = "the driver frees coherent memory when its process ends"

    uncached: bool
    """Whether the device's caches hold none of it."""

    def describe(self) -> str:
        return f"{short_size(self.size)} on device {self.device}" + ", uncached" * self.uncached

    @classmethod
    def steps_of(cls, buffer: ResolvedBuffer, making: Making) -> Iterator[Buffer]:
        spec = cast("CoherentBuffer", buffer.spec)
        yield cls(buffer.name, making.span(*buffer.path), making.devices[buffer.device], spec.size, spec.uncached)

    def checks(self, reading: Reading) -> Iterator[Check]:
        address = reading.address_of(self.name)
        yield check_kind(self.name, "device", address, reading)
        yield from check_place(self.name, self.device, self.size, address, reading)

    @staticmethod
    def lacks(spec: Any, machine: Machine, name: str, ordinal: int) -> Iterator[Lack]:
        if spec.uncached and machine.runtime == "cuda":
            why = "CUDA has no cache control, and all of its memory is fine-grained"
            yield Lack("HP309", f"{name} has no uncached memory", ("uncached",), why, "remove uncached")
