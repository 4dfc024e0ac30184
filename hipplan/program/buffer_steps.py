"""The steps of a plan's buffers, each made by its kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from hipplan.kinds.lives import BUFFERS
from hipplan.kinds.making import Making
from hipplan.kinds.stream.live import AwaitStream
from hipplan.language.objects import BufferLine
from hipplan.program import steps
from hipplan.program.count_runs import CountRun
from hipplan.program.on_demand import are_many
from hipplan.program.series import Series


class Buffers(Making):
    """Makes the steps of a plan's buffers."""

    def waits(self) -> Iterator[steps.Step]:
        """The waits for what the steps so far enqueue."""
        return (AwaitStream(stream, None, on=device) for stream, device in self.enqueued)

    def all_steps(self, lines: Iterable[BufferLine]) -> Series[steps.Step]:
        """The steps of each buffer. Those of one line of the plan, which `count` makes, differ only in their name."""
        single: list[steps.Step] = []
        parts: list[Sequence[steps.Step]] = [single]
        for first, names in lines:
            of_first = [*BUFFERS[first.spec.kind].steps_of(first, self)]
            if not isinstance(names, list) and are_many(len(names)) and len(of_first) == 1:
                single = []
                parts += [CountRun(names.of, range(len(names)), of_first[0]), single]
            else:
                single += of_first
                if len(names) > 1:
                    makers = [*map(steps.named, of_first)]
                    single += [make(name) for name in names[1:] for make in makers]
            self.alike.append((of_first[0], len(names)))
        return Series.joined(parts)
