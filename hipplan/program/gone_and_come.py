"""The change to a program that has the steps of the one before, but for some that go, and others behind them: so one
falls asleep, and wakes. What stays is neither compared nor looked at one by one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from operator import is_
from typing import NamedTuple, TypeAlias

from hipplan.kinds.lives import BUFFERS
from hipplan.kinds.mapping.live import Map, SetAccess
from hipplan.program.mapped_runs import MappedRun
from hipplan.program.numbered import prefixes_of
from hipplan.program.program import Program
from hipplan.program.runs import Run
from hipplan.program.series import Parts, Series, segments
from hipplan.program.steps import Step

Item: TypeAlias = Step | Run
"""A step by itself, or all of a run."""

_KINDS = frozenset({"allocation", "mapping", "stream", *BUFFERS})
"""What may go and come. A range of addresses may not: other objects lie in it. Streams and pinned memory are those of
lanes: nothing else uses them."""


class GoneAndCome(NamedTuple):
    """What differs between two programs."""

    gone: Sequence[Item]
    """What the new one lacks, in the order of the old one."""
    come: Sequence[Item]
    """What only the new one has, in its order."""

    def makers_gone(self, *, mapped: bool = True) -> Series[Step]:
        """The steps that made what goes. mapped: mappings too."""
        made: Parts[Step] = Parts()
        for item in self.gone:
            if isinstance(item, MappedRun):
                made.extend(item.without_rights() if mapped else ())
            elif isinstance(item, Run):
                made.extend(item)
            elif item.makes and (mapped or not isinstance(item, Map)):
                made.append(item)
        return made.series()

    @property
    def runs_come(self) -> list[Run]:
        """The runs that come."""
        return [item for item in self.come if isinstance(item, Run)]

    @property
    def mappings(self) -> list[Map | MappedRun]:
        """The mappings that go, range by range."""
        by_range: dict[str, list[Map | MappedRun]] = {}
        for item in self.gone:
            if isinstance(item, (Map, MappedRun)):
                by_range.setdefault(_range_of(item), []).append(item)
        return [*chain.from_iterable(by_range.values())]

    @property
    def rights(self) -> dict[str, SetAccess]:
        """Mapping that goes, and is in no run -> the step that gave it its rights."""
        return {item.name: item for item in self.gone if isinstance(item, SetAccess)}


def gone_and_come(old: Program, new: Program) -> GoneAndCome | None:
    """Finds what differs. None: they differ in another way, or something of what stays depends on what differs."""
    before, after = _items(old.steps), _items(new.steps)
    there = {*map(id, after)}
    stays = [item for item in before if id(item) in there]
    if not after or not all(map(is_, stays, after)):
        return None
    gone, come = [item for item in before if id(item) not in there], after[len(stays) :]
    is_apart = _is_complete(gone) and _is_complete(come) and not _meet(gone, come)
    return GoneAndCome(gone, come) if is_apart and not _need(stays, gone) and _is_upward(come) else None


def _items(some_steps: Sequence[Step]) -> list[Item]:
    items: list[Item] = []
    for part in segments(some_steps):
        if isinstance(part, Run):
            items.append(part)
        else:
            items += part
    return items


def _range_of(item: Map | MappedRun) -> str:
    return item.of if isinstance(item, MappedRun) else item.reservation


def _is_complete(items: Sequence[Item]) -> bool:
    """Whether all of these steps make something that may go or come, or give rights on it."""
    made = {item.name for item in items if isinstance(item, Step) and item.makes}
    return all(
        item.makes in _KINDS if item.makes else isinstance(item, SetAccess) and item.name in made for item in items
    )


def _names(items: Iterable[Item]) -> set[str]:
    return {item.name for item in items if isinstance(item, Step)}


def _stems(items: Iterable[Item]) -> set[str]:
    return {item.of for item in items if isinstance(item, Run)}


def _meet(gone: Sequence[Item], come: Sequence[Item]) -> bool:
    """Whether something goes and comes again, or comes into a range from which something goes."""
    names, stems = (_names(gone), _names(come)), (_stems(gone), _stems(come))
    ranges = [{_range_of(item) for item in items if isinstance(item, (Map, MappedRun))} for items in (gone, come)]
    return not (
        names[0].isdisjoint(names[1])
        and stems[0].isdisjoint(stems[1])
        and stems[0].isdisjoint(chain.from_iterable(map(prefixes_of, names[1])))
        and stems[1].isdisjoint(chain.from_iterable(map(prefixes_of, names[0])))
        and ranges[0].isdisjoint(ranges[1])
    )


def _need(stays: Sequence[Item], gone: Sequence[Item]) -> bool:
    """Whether something that stays maps memory that goes."""
    names, stems = _names(gone), _stems(gone)
    mapped = {item.allocation for item in stays if isinstance(item, Map)}
    in_runs = {item.memory.of for item in stays if isinstance(item, MappedRun)}
    if not (names.isdisjoint(mapped) and stems.isdisjoint(in_runs)):
        return True
    if stems and not stems.isdisjoint(chain.from_iterable(map(prefixes_of, mapped))):
        return True
    return bool(in_runs) and not in_runs.isdisjoint(chain.from_iterable(map(prefixes_of, names)))


def _is_upward(come: Sequence[Item]) -> bool:
    """Whether the runs that come to each range are in the order of their addresses."""
    mapped: dict[str, list[MappedRun]] = {}
    for item in come:
        if isinstance(item, MappedRun):
            mapped.setdefault(item.of, []).append(item)
    return all(low.end <= high.offset for runs in mapped.values() for low, high in pairwise(runs))
