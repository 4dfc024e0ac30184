"""A stream (hipStreamCreateWithFlags), and the wait for its work, as steps."""

from __future__ import annotations

from hipplan.program.steps import Step, step_data


@step_data
class CreateStream(Step):
    call = "hipStreamCreateWithFlags"
    makes = "stream"
    why_awake = "it has no memory"
    why_not_held = "a stream belongs to one process"
    device: int

    def describe(self) -> str:
        return f"on device {self.device}"


@step_data
class AwaitStream(Step):
    """Waits until enqueued work is done. `name` is the stream's; empty: the null stream of `on`."""

    call = "hipStreamSynchronize"
    awaits_stream = True
    on: int
    """The device that the stream belongs to, current in the call."""

    @property
    def stream_used(self) -> tuple[str, int]:
        return self.name, self.on

    def describe(self) -> str:
        return "until it is idle" if self.name else f"until the null stream of device {self.on} is idle"
