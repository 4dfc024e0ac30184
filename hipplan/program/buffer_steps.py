"""The steps of a plan's buffers, each made by its kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from hipplan.kinds.lives import BUFFERS
from hipplan.kinds.making import Making
from hipplan.kinds.stream.live import AwaitStream
from hipplan.language.objects import Path, ResolvedBuffer
from hipplan.program import steps


class Buffers(Making):
    """Makes the steps of a plan's buffers."""

    def waits(self) -> Iterator[steps.Step]:
        """The waits for what the steps so far enqueue."""
        return (AwaitStream(stream, None, on=device) for stream, device in self.enqueued)

    def all_steps(self, buffers: Iterable[ResolvedBuffer]) -> list[steps.Step]:
        """The steps of each buffer. Those of one line of the plan, which `count` makes, differ only in their name."""
        made: list[steps.Step] = []
        line: Path = ()
        of_first: list[steps.Step] = []
        makers: list[Callable[[str], steps.Step]] = []
        for buffer in buffers:
            if buffer.path is line:
                makers = makers or [*map(steps.named, of_first)]
                made += [make(buffer.name) for make in makers]
            else:
                line, makers = buffer.path, []
                of_first = [*BUFFERS[buffer.spec.kind].steps_of(buffer, self)]
                made += of_first
        return made
