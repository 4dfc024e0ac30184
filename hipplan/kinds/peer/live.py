"""A link that lets one device reach buffers of another (hipDeviceEnablePeerAccess), as a step."""

from __future__ import annotations

from hipplan.program.steps import Key, Step, step_data


@step_data
class EnablePeer(Step):
    call = "hipDeviceEnablePeerAccess"
    makes = "peer"
    why_awake = "it has no memory"
    why_not_held = (
        "a peer link belongs to one process; access: names the devices that may use memory, and needs no link"
    )
    device: int
    peer: int

    @property
    def key(self) -> Key:
        return "peer", self.device, self.peer

    def describe(self) -> str:
        return f"device {self.device} may reach device {self.peer}"
