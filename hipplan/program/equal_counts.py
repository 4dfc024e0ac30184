"""What `count:` makes and two programs have alike: a change need not compare it member by member. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from operator import attrgetter
from typing import Any, NamedTuple

from hipplan.kinds.allocation.live import CreateAllocation
from hipplan.kinds.lives import BUFFERS
from hipplan.kinds.mapping.live import Map
from hipplan.kinds.reservation.live import Reserve
from hipplan.program import steps
from hipplan.program.by_object import alike
from hipplan.program.count_runs import CountMappingRun, CountRun, count_mapping_runs
from hipplan.program.numbered import outer_name, stem_of
from hipplan.program.program import Program
from hipplan.program.runs import plain, runs

_COMPARED: dict[type[steps.Step], Callable[[steps.Step], Any]] = {
    kind: attrgetter(*kind.compared) for kind in BUFFERS.values() if kind.compared
}
"""Steps of buffers about which there is no other step -> what tells two of one name apart."""


class EqualMappings(NamedTuple):
    """Mappings of a line of the plan that are equal in both programs."""

    numbers: range
    offset: int
    """Of the first, in bytes."""
    size: int
    """Bytes of each."""

    def has(self, offset: int) -> bool:
        """Whether the mapping at this offset is one of them."""
        place, beside = divmod(offset - self.offset, self.size)
        return not beside and 0 <= place < len(self.numbers)


class EqualCounts(NamedTuple):
    """Members of lines with `count:` that are equal in both programs."""

    members: Mapping[str, range]
    """Name before the number -> the numbers of buffers or allocations."""
    mappings: Mapping[str, list[EqualMappings]]
    """Reservation -> the mappings of these allocations in it."""

    def outside(self, run: CountRun | CountMappingRun) -> Iterator[Sequence[steps.Step]]:
        """The steps of a run's other objects, in parts."""
        if isinstance(run, CountRun):
            equal = [self.members.get(run.of, range(0))]
        else:
            equal = [mappings.numbers for mappings in self.mappings.get(run.of, ())]
        return run.outside(next((numbers for numbers in equal if numbers and numbers.start in run.numbers), range(0)))


NOTHING_COUNTED = EqualCounts({}, {})


def is_equal_buffer(was: steps.Step, now: steps.Step) -> bool:
    """Whether two of one name make the same buffer, and no other step is about it."""
    compared = _COMPARED.get(type(now))
    return compared is not None and type(was) is type(now) and bool(compared(was) == compared(now))


def is_same_range(was: steps.Step | None, now: steps.Step | None) -> bool:
    """Whether two steps reserve the same addresses."""
    return isinstance(was, Reserve) and isinstance(now, Reserve) and alike(was, now)


def equal_counts(old: Program, new: Program, renewed: Set[str]) -> EqualCounts:
    """Finds them. renewed: names of objects that are recreated although they do not differ.

    Of allocations that are mapped the first and the last that both programs have are no part of it: their mappings tell
    who may use the range.
    """
    differ = set(_stems((*old.sealed, *new.sealed, *renewed)))
    before, after = _runs_alone(old), _runs_alone(new)
    members: dict[str, range] = {}
    allocations: dict[str, range] = {}
    for of, now in after.items():
        was = before.get(of)
        if of in differ or was is None:
            continue
        both = range(max(was.numbers.start, now.numbers.start), min(was.numbers.stop, now.numbers.stop))
        if both and is_equal_buffer(was.kind, now.kind):
            members[of] = both
        elif both and isinstance(now.kind, CreateAllocation) and alike(was.kind, now.kind):
            allocations[of] = both
    return _with_allocations(members, allocations, old, new, differ) if allocations else EqualCounts(members, {})


def _stems(names: Set[str] | tuple[str, ...]) -> Iterator[str]:
    """Names, and those of the ranges and of the lines that they are part of."""
    for name in names:
        yield from (name, outer_name(name), name.rpartition(".")[0])


def _runs_alone(program: Program) -> dict[str, CountRun]:
    """The runs of what `count:` makes, by the name before the numbers; without lines that have several."""
    there: dict[str, CountRun] = {}
    several = set()
    for _, run in runs(program.steps):
        if isinstance(run, CountRun) and there.setdefault(run.of, run) is not run:
            several.add(run.of)
    return {of: run for of, run in there.items() if of not in several}


def _with_allocations(
    members: Mapping[str, range], allocations: Mapping[str, range], old: Program, new: Program, differ: Set[str]
) -> EqualCounts:
    """allocations: the numbers of those that are equal, by lines. differ: ranges and lines with other differences."""
    mapped_alone = {*_mapped_alone(old), *_mapped_alone(new)}
    before, after = _by_memory(old), _by_memory(new)
    everything = dict(members)
    mappings: dict[str, list[EqualMappings]] = {}
    for of, numbers in allocations.items():
        pairs = _equal_pairs(before.get(of, []), after.get(of, []), old, new)
        if of in mapped_alone or pairs is None or any(now.of in differ for _, now in pairs):
            continue
        for was, now in pairs:
            stop = min(was.memory.numbers.stop, now.memory.numbers.stop) - 1
            numbers = range(max(numbers.start, now.memory.numbers.start + 1), min(numbers.stop, stop))
        if not numbers:
            continue
        everything[of] = numbers
        for _, now in pairs:
            first = numbers.start - now.memory.numbers.start + now.numbers.start
            equal = EqualMappings(range(first, first + len(numbers)), now.offset_of(first), now.size)
            mappings.setdefault(now.of, []).append(equal)
    return EqualCounts(everything, mappings)


def _mapped_alone(program: Program) -> Iterator[str]:
    """The names before the numbers of allocations that are mapped by steps in no run."""
    for step in plain(program.steps):
        if isinstance(step, Map) and (member := stem_of(step.allocation)) is not None:
            yield member[0][0]


def _by_memory(program: Program) -> dict[str, list[CountMappingRun]]:
    """Name before the numbers of allocations -> the runs that map them."""
    mapped: dict[str, list[CountMappingRun]] = {}
    for run in count_mapping_runs(program.steps):
        mapped.setdefault(run.memory.of, []).append(run)
    return mapped


def _equal_pairs(
    before: list[CountMappingRun], after: list[CountMappingRun], old: Program, new: Program
) -> list[tuple[CountMappingRun, CountMappingRun]] | None:
    """The runs of both programs that map the same memory, side by side; None if they map it differently."""
    if len(before) != len(after):
        return None
    pairs = [*zip(before, after, strict=True)]
    are_equal = all(
        _place(was) == _place(now) and is_same_range(old.makers.get(was.of), new.makers.get(now.of))
        for was, now in pairs
    )
    return pairs if are_equal else None


def _place(run: CountMappingRun) -> tuple[object, ...]:
    """What tells two such runs apart but for their length."""
    return run.of, run.numbers.start, run.memory.numbers.start, run.offset, run.size, run.rights
