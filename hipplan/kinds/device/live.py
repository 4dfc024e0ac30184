"""Memory of one device (hipMalloc), as a step."""

from __future__ import annotations

from collections.abc import Iterator

from hipplan.kinds.live import Buffer
from hipplan.program.checks import Check, Reading, check_kind, check_place
from hipplan.program.steps import step_data
from hipplan.units import short_size


@step_data
class CreateDeviceBuffer(Buffer):
    call = "hipMalloc"
    makes = "device"
    lies = "device"
    row = ("create device buffer", "device", "size")
    compared = ("device", "size")
    why_awake = "memory of hipMalloc is freed only together with its addresses"
    instead_of_sleep = "put it into a region: its addresses are kept"
    why_not_held = "the driver frees hipMalloc's memory when its process ends"

    def describe(self) -> str:
        return f"{short_size(self.size)} on device {self.device}"

    def checks(self, reading: Reading) -> Iterator[Check]:
        address = reading.address_of(self.name)
        yield check_kind(self.name, "device", address, reading)
        yield from check_place(self.name, self.device, self.size, address, reading)
