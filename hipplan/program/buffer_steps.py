"""The steps of a plan's buffers, each made by its kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hipplan.kinds.lives import BUFFERS
from hipplan.kinds.making import Making
from hipplan.kinds.stream.live import AwaitStream
from hipplan.language.objects import ResolvedBuffer
from hipplan.program import steps


class Buffers(Making):
    """Makes the steps of a plan's buffers."""

    def waits(self) -> Iterator[steps.Step]:
        """The waits for what the steps so far enqueue."""
        return (AwaitStream(stream, None, on=device) for stream, device in self.enqueued)

    def steps_of(self, buffer: ResolvedBuffer) -> Iterable[steps.Step]:
        """The steps of one buffer."""
        return BUFFERS[buffer.spec.kind].steps_of(buffer, self)
