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
from hipplan.program.count_runs import CountRun
from hipplan.program.on_demand import are_many
from hipplan.program.series import Parts, Series


class Buffers(Making):
    """Makes the steps of a plan's buffers."""

    def waits(self) -> Iterator[steps.Step]:
        """The waits for what the steps so far enqueue."""
        return (AwaitStream(stream, None, on=device) for stream, device in self.enqueued)

    def all_steps(self, buffers: Iterable[ResolvedBuffer]) -> Series[steps.Step]:
        """The steps of each buffer. Those of one line of the plan, which `count` makes, differ only in their name."""
        made: Parts[steps.Step] = Parts()
        for (_, of), of_line in groupby(buffers, attrgetter("path")):
            first, *others = of_line
            of_first = [*BUFFERS[first.spec.kind].steps_of(first, self)]
            count = 1 + len(others)
            if are_many(count) and len(of_first) == 1:
                made.extend(CountRun(of, range(count), of_first[0]))
            else:
                makers = [*map(steps.named, of_first)] if others else []
                made.extend([*of_first, *(make(buffer.name) for buffer in others for make in makers)])
            self.alike.append((of_first[0], count))
        return made.series()
