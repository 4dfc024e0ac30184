"""The steps that take mappings out, by descending offset: those of thousands of alike chunks are one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from operator import itemgetter

from hipplan.kinds.mapping.live import Map, TakeOut
from hipplan.program.runs import AlikeSteps, MappingRun
from hipplan.program.series import Parts, Series
from hipplan.program.steps import Step


class TakeOutRun(AlikeSteps):
    """Steps that unmap chunks at the same offsets of some regions: from the last one on, in each region in turn."""

    __slots__ = ("columns",)

    def __init__(self, columns: Sequence[MappingRun]) -> None:
        """columns: the mappings of each region, which are equal in number, size and offsets."""
        self.columns = tuple(columns)

    def __len__(self) -> int:
        return len(self.columns) * len(self.columns[0].chunks)

    def item(self, number: int) -> Step:
        place, column = divmod(number, len(self.columns))
        mapped = self.columns[column]
        return _of_chunk(mapped, mapped.chunks[-1 - place])

    def same_as(self, other: TakeOutRun) -> bool:
        return len(self.columns) == len(other.columns) and all(
            mine.same_as(others) for mine, others in zip(self.columns, other.columns, strict=True)
        )

    def alike(self) -> Iterator[tuple[Step, int]]:
        for mapped in self.columns:
            for place in range(len(mapped.rights)):
                if chunks := mapped.chunks[place :: len(mapped.rights)]:
                    yield _of_chunk(mapped, chunks[0]), len(chunks)


def _of_chunk(mapped: MappingRun, chunk: int) -> TakeOut:
    return mapped.made(chunk).taken_out(mapped.access(chunk))


def downward(mappings: Sequence[Map | MappingRun], take_out: Callable[[Map], TakeOut]) -> Series[Step]:
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
    ends = {bound for _, mapped in runs for bound in (mapped.offset, mapped.offset + len(mapped.chunks) * mapped.size)}
    ends |= {bound for offset in single for bound in (offset, offset + 1)}
    for end, start in pairwise(sorted(ends, reverse=True)):
        here = [(number, part) for number, mapped in runs if (part := _within(mapped, start, end)) is not None]
        if start in single:  # its bounds are so close that nothing else is between them
            parts: list[tuple[int, Map | MappingRun]] = sorted([*here, *single[start]], key=itemgetter(0))
            out.extend(take_out(part) if isinstance(part, Map) else TakeOutRun([part])[0] for _, part in parts)
        elif len({(part.offset, part.size, len(part.chunks)) for _, part in here}) == 1:
            out.extend(TakeOutRun([part for _, part in here]))
        else:
            chunks = [(part, chunk) for _, part in here for chunk in part.chunks]
            chunks.sort(key=lambda placed: placed[0].offset_of(placed[1]), reverse=True)
            out.extend(_of_chunk(part, chunk) for part, chunk in chunks)
    return out.series()


def _within(mapped: MappingRun, start: int, end: int) -> MappingRun | None:
    """Returns its mappings whose offsets are from `start` on, before `end`; None if there is none."""
    first, last = (max(0, -((mapped.offset - bound) // mapped.size)) for bound in (start, end))
    last = min(last, len(mapped.chunks))
    return mapped.between(first, last) if first < last else None
