"""The steps that take mappings out, by descending offset: those of thousands of alike mappings are one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from operator import itemgetter

from hipplan.kinds.mapping.live import Map, TakeOut
from hipplan.program.mapped_runs import MappedRun
from hipplan.program.runs import AlikeSteps
from hipplan.program.series import Parts, Series
from hipplan.program.steps import Step


class TakeOutRun(AlikeSteps):
    """Steps that unmap what is at the same offsets of some ranges: from the last one on, in each range in turn."""

    __slots__ = ("columns",)

    def __init__(self, columns: Sequence[MappedRun]) -> None:
        """columns: the mappings of each range, which are equal in number, size and offsets."""
        self.columns = tuple(columns)

    def __len__(self) -> int:
        return len(self.columns) * len(self.columns[0].numbers)

    def item(self, number: int) -> Step:
        place, column = divmod(number, len(self.columns))
        mapped = self.columns[column]
        return _out(mapped, mapped.numbers[-1 - place])

    def same_as(self, other: TakeOutRun) -> bool:
        return len(self.columns) == len(other.columns) and all(
            mine.same_as(others) for mine, others in zip(self.columns, other.columns, strict=True)
        )

    def alike(self) -> Iterator[tuple[Step, int]]:
        for mapped in self.columns:
            for place in range(len(mapped.rights)):
                if numbers := mapped.numbers[place :: len(mapped.rights)]:
                    yield _out(mapped, numbers[0]), len(numbers)


def _out(mapped: MappedRun, number: int) -> TakeOut:
    return mapped.made(number).taken_out(mapped.access(number))


def downward(mappings: Sequence[Map | MappedRun], take_out: Callable[[Map], TakeOut]) -> Series[Step]:
    """The steps that take out all of these by descending offset, and in this order where offsets are equal. take_out:
    makes the step of a mapping that is in no run."""
    runs = [(number, mapped) for number, mapped in enumerate(mappings) if not isinstance(mapped, Map)]
    single: dict[int, list[tuple[int, Map]]] = {}
    for number, mapped in enumerate(mappings):
        if isinstance(mapped, Map):
            single.setdefault(mapped.offset, []).append((number, mapped))
    if not runs:
        alone = [step for steps in sorted(single.items(), reverse=True) for _, step in steps[1]]
        return Series([take_out(step) for step in alone])
    out: Parts[Step] = Parts()
    ends = {bound for _, mapped in runs for bound in (mapped.offset, mapped.end)}
    ends |= {bound for offset in single for bound in (offset, offset + 1)}
    for end, start in pairwise(sorted(ends, reverse=True)):
        here = [(number, part) for number, mapped in runs if (part := _within(mapped, start, end)) is not None]
        if start in single:  # its bounds are so close that nothing else is between them
            parts: list[tuple[int, Map | MappedRun]] = sorted([*here, *single[start]], key=itemgetter(0))
            out.extend(take_out(part) if isinstance(part, Map) else TakeOutRun([part])[0] for _, part in parts)
        elif len({(part.offset, part.size, len(part.numbers)) for _, part in here}) == 1:
            out.extend(TakeOutRun([part for _, part in here]))
        else:
            there = [(part, number) for _, part in here for number in part.numbers]
            there.sort(key=lambda placed: placed[0].offset_of(placed[1]), reverse=True)
            out.extend(_out(part, number) for part, number in there)
    return out.series()


def _within(mapped: MappedRun, start: int, end: int) -> MappedRun | None:
    """Returns its mappings whose offsets are from `start` on, before `end`; None if there is none."""
    first, last = (max(0, -((mapped.offset - bound) // mapped.size)) for bound in (start, end))
    last = min(last, len(mapped.numbers))
    return mapped.between(first, last) if first < last else None
