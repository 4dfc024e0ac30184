"""What is known of all steps of a program, by name or in sum. Runs are never written out for it."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Any, TypeAlias

from hipplan.kinds.allocation.live import CreateAllocation
from hipplan.kinds.mapping.live import Map, SetAccess
from hipplan.program.by_name import ByName, OfMember
from hipplan.program.mapped_runs import MappedRun
from hipplan.program.runs import Run, runs, written_out
from hipplan.program.series import segments
from hipplan.program.steps import Step

Steps = Sequence[Step]

NumberKey: TypeAlias = tuple[str, bool]
"""(name, whether it gives the mapping of this name its rights) of a step."""

Owners = Mapping[str, int]
"""Allocation or mapping -> the device whose memory it is: an ordinal; CPU_ORDINAL; UNSEEN if it may be any device's."""

_THOUSANDS = frozenset({CreateAllocation, Map, SetAccess})
_READ_TOGETHER = frozenset({"allocation", "mapping"})


def makers_of(steps: Steps) -> Mapping[str, Step]:
    """The step that makes each object, by the object's name."""
    known = {step.name: step for step in _written_out(steps) if step.makes}
    return _by_name(known, [(run, type(run).made) for _, run in runs(steps)])


def slots_of(steps: Steps) -> Mapping[str, int]:
    """A number for each object, in the order of the steps that make them."""
    known: dict[str, int] = {}
    of_runs: list[tuple[Run, OfMember]] = []
    slot = 0
    for segment in segments(steps):
        if isinstance(segment, Run):
            of_runs.append((segment, _From(slot)))
            slot += len(segment.numbers)
        else:
            made = [step.name for step in segment if step.makes]
            known |= zip(made, count(slot))
            slot += len(made)
    return _by_name(known, of_runs)


def made_slots(some_steps: Steps, slots: Mapping[str, int]) -> list[int]:
    """The slots of the objects that some steps make. slots: of all of the program's objects."""
    made: list[int] = []
    for part in segments(some_steps):
        if isinstance(part, Run):
            first = slots[part.name_of(part.numbers.start)]
            made += range(first, first + len(part.numbers))
        else:
            made += [slots[step.name] for step in part if step.makes]
    return made


def owners_of(some_steps: Iterable[Step], known: Owners) -> dict[str, int]:
    """Owners of what these steps make. known: of what was made before."""
    owners: dict[str, int] = {}
    for step in some_steps:
        if isinstance(step, Map):
            memory = step.allocation
            owners[step.name] = owners[memory] if memory in owners else known[memory]
        elif step.makes == "allocation" and (owner := step.owner) is not None:
            owners[step.name] = owner
    return owners


def owners_by_name(steps: Steps) -> Owners:
    """Allocation or mapping -> the device whose memory it is, as of Owners."""
    known: dict[str, int] = {}
    there = [run for _, run in runs(steps)]
    of_memory: list[tuple[Run, OfMember]] = [(run, type(run).owner) for run in there if run.makes == "allocation"]
    memory: Mapping[str, int] = ChainMap(known, ByName({}, of_memory))  # type: ignore[arg-type]  # only read

    def mapped(run: MappedRun, number: int) -> int:
        return memory[run.memory_name(number)]  # of the run of mappings, some memory may have moved since

    of_runs = [*of_memory, *((run, mapped) for run in there if isinstance(run, MappedRun))]
    both = ChainMap(known, ByName({}, of_runs))  # type: ignore[arg-type]  # only read
    for _, part in written_out(steps):
        known |= owners_of(part, both)
    return _by_name(known, of_runs)


def rights_by_mapping(steps: Steps) -> Mapping[str, SetAccess]:
    """The step that gives a mapping its rights, by the mapping's name."""
    known = {step.name: step for step in _written_out(steps) if isinstance(step, SetAccess)}
    given = [run for _, run in runs(steps) if isinstance(run, MappedRun) and run.rights[0]]
    return _by_name(known, [(run, MappedRun.access) for run in given])


def numbers_of(steps: Steps, first: int = 0) -> Mapping[NumberKey, int]:
    """The number of each step that makes an object, and of each that gives a mapping its rights. first: the number of
    the first of these steps."""
    known: dict[NumberKey, int] = {}
    for number, part in written_out(steps):
        numbered = enumerate(part, first + number)
        known |= {number_key(step): at for at, step in numbered if step.makes or type(step) is SetAccess}
    of_runs = [(first + number, run) for number, run in runs(steps)]
    return _NumbersOfRuns(known, of_runs) if of_runs else known


def number_key(step: Step) -> NumberKey:
    """The key of numbers_of()."""
    return step.name, type(step) is SetAccess


def single_steps(steps: Steps) -> Iterator[tuple[int, Step]]:
    """(number, step) of the steps in no run, but for kinds of which there are thousands."""
    return _of_few(chain.from_iterable(enumerate(part, number) for number, part in written_out(steps)))


def read_alone(steps: Steps) -> Iterator[tuple[int, Step]]:
    """(number, step) of the steps that are read back one by one: all but kinds of which there are thousands."""
    number = 0
    for part in segments(steps):
        if not isinstance(part, Run) or part.makes not in _READ_TOGETHER:
            yield from _of_few(enumerate(part, number))
        number += len(part)


def _of_few(numbered: Iterable[tuple[int, Step]]) -> Iterator[tuple[int, Step]]:
    return ((number, step) for number, step in numbered if type(step) not in _THOUSANDS)


def range_sizes_of(some_steps: Iterable[Step], known: Mapping[str, int]) -> Mapping[str, int]:
    """Range -> the size of each of its mappings, 0 if they differ. known: those of steps before these."""
    sizes: dict[str, int] = {}
    for step in some_steps:
        if isinstance(step, Map):
            size = sizes.get(step.reservation, known.get(step.reservation, step.size))
            if size != step.size:
                sizes[step.reservation] = 0
            elif step.reservation not in known:
                sizes[step.reservation] = size
    return {**known, **sizes} if sizes else known


def descriptors_of(some_steps: Iterable[tuple[Step, int]]) -> int:
    """Upper bound of the file descriptors that steps take. some_steps: (step, how many like it)."""
    return sum([many * step.descriptors for step, many in some_steps if step.makes == "allocation"])


def _written_out(steps: Steps) -> Iterator[Step]:
    return chain.from_iterable(part for _, part in written_out(steps))


def _by_name(known: dict[str, Any], of_runs: Sequence[tuple[Run, OfMember]]) -> Mapping[str, Any]:
    return ByName(known, of_runs) if of_runs else known


class _From:
    """The slots of a run's objects."""

    def __init__(self, first: int) -> None:
        self.first = first

    def __call__(self, run: Run, number: int, /) -> int:
        return self.first + number - run.numbers.start


class _NumbersOfRuns(Mapping[NumberKey, int]):
    """numbers_of() where there are runs."""

    def __init__(self, known: dict[NumberKey, int], of_runs: Iterable[tuple[int, Run]]) -> None:
        self._known = known
        made = [(run, _NumbersFrom(first)) for first, run in of_runs]
        self._made: ByName[int] = ByName({}, made)
        given = [(run, number_of) for run, number_of in made if isinstance(run, MappedRun) and run.rights[0]]
        self._given: ByName[int] = ByName({}, given)

    def __getitem__(self, key: NumberKey) -> int:
        if key in self._known:
            return self._known[key]
        name, is_access = key
        return self._given[name] + 1 if is_access else self._made[name]

    def __iter__(self) -> Iterator[NumberKey]:
        yield from self._known
        yield from ((name, False) for name in self._made)
        yield from ((name, True) for name in self._given)

    def __len__(self) -> int:
        return len(self._known) + len(self._made) + len(self._given)


class _NumbersFrom(_From):
    """The numbers of the steps that make a run's objects."""

    def __call__(self, run: Run, number: int, /) -> int:
        return self.first + run.number_of(number)
