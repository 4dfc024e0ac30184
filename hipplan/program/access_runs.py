"""Steps that change rights on mappings: those for the mappings of a run are one run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress, cycle
from operator import eq, ne

from hipplan.kinds.mapping.live import ChangeAccess, Rights, SetAccess
from hipplan.program.mapped_runs import MappedRun
from hipplan.program.origin import Given
from hipplan.program.runs import AlikeSteps
from hipplan.program.series import Parts, Series, segments
from hipplan.program.steps import Step


class AccessRun(AlikeSteps):
    """A step that changes the rights on each mapping of a run."""

    __slots__ = ("mapped", "rights")

    def __init__(self, mapped: MappedRun, before: Sequence[Rights]) -> None:
        """mapped: the mappings with their new rights. before: those on the first mappings, which the others repeat; as
        many as there are new ones."""
        self.mapped = mapped
        self.rights = tuple(map(now_and_before, mapped.rights, before))
        """(now, before) of ChangeAccess for the first mappings, which the others repeat."""

    def __len__(self) -> int:
        return len(self.mapped.numbers)

    def item(self, number: int) -> Step:
        name = self.mapped.name_of(self.mapped.numbers[number])
        return ChangeAccess(name, self.mapped.origin, *self.rights[number % len(self.rights)])

    def same_as(self, other: AccessRun) -> bool:
        return self.rights == other.rights and self.mapped.same_as(other.mapped)

    def alike(self) -> Iterator[tuple[Step, int]]:
        for place in range(len(self.rights)):
            if numbers := self.mapped.numbers[place :: len(self.rights)]:
                yield self.item(place), len(numbers)


def changed_rights(given: Iterable[tuple[Given, Given]]) -> Series[Step]:
    """The steps that change rights. given: (before, now) for what gives them to each mapping, or to those of a run."""
    made: Parts[Step] = Parts()
    for was, now in given:
        if isinstance(now, MappedRun) and isinstance(was, MappedRun):
            made.extend(AccessRun(now, was.rights))
        elif isinstance(now, SetAccess) and isinstance(was, SetAccess):
            made.append(ChangeAccess(now.name, now.origin, *now_and_before(now.rights, was.rights)))
    return made.series()


def now_and_before(now: Rights, before: Rights) -> tuple[Rights, Rights]:
    """The rights of all devices that have a right now or had one before."""
    after, was = dict(now), dict(before)
    who = dict.fromkeys([*after, *was])
    return tuple((device, after.get(device, "none")) for device in who), tuple(
        (device, was.get(device, "none")) for device in who
    )


def regiven_runs(some_steps: Sequence[Step], rights: Mapping[str, Rights]) -> Iterator[tuple[MappedRun, MappedRun]]:
    """(run, the same with its new rights) for the runs whose mappings all have rights, and get some in a pattern as
    long as theirs, though it may be the same. rights: mapping -> what it gets."""
    for run in segments(some_steps):
        if not isinstance(run, MappedRun) or not run.rights[0] or run.name_of(run.numbers.start) not in rights:
            continue
        given = [rights.get(name, ()) for name in map(run.name_of, run.numbers)]
        pattern = tuple(given[: len(run.rights)])
        if all(given) and all(map(eq, given, cycle(pattern))):
            yield run, run.with_pattern(pattern)


def that_differ(pairs: Mapping[int, tuple[Given, Given]]) -> Iterator[tuple[Given, Given]]:
    """(before, now) for what gives mappings other rights, in the order of the numbers of its steps. Where some mappings
    of a run keep theirs, the others come by themselves: the driver is not called for what stays."""
    for _, (was, now) in sorted(pairs.items()):
        differ = [*map(ne, was.rights, now.rights)] if isinstance(now, MappedRun) else []
        if isinstance(now, MappedRun) and isinstance(was, MappedRun) and not all(differ):
            for number in compress(now.numbers, cycle(differ)):
                yield was.access(number), now.access(number)
        else:
            yield was, now
