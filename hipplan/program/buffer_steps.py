"""The steps of a plan's buffers, each made by its kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter

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

    def all_steps(self, buffers: Iterable[ResolvedBuffer]) -> list[steps.Step]:
        """The steps of each buffer. Those of one line of the plan, which `count` makes, differ only in their name."""
        made: list[steps.Step] = []
        for _, of_line in groupby(buffers, attrgetter("path")):
            first, *others = of_line
            of_first = [*BUFFERS[first.spec.kind].steps_of(first, self)]
            made += of_first
            if others:
                makers = [*map(steps.named, of_first)]
                made += [make(buffer.name) for buffer in others for make in makers]
            self.alike.append((of_first[0], 1 + len(others)))
        return made
