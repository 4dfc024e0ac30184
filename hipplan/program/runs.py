"""Runs: the steps of alike objects, made when they are asked for.

Thousands of chunks of a region differ in their number and their offset, and in their device by a pattern
(chunk_runs.py); what `count:` makes differs in its number (count_runs.py). So a program keeps a run for them, and what
it knows of all steps (Program.makers, slots and others) is arithmetic for those of a run.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any, TypeAlias, cast

from hipplan.program.numbered import Stem
from hipplan.program.on_demand import OnDemand, are_many
from hipplan.program.series import Parts, Series, segments
from hipplan.program.steps import Step


class AlikeSteps(OnDemand[Step]):
    """Steps of which there are a few kinds."""

    __slots__ = ()

    @abstractmethod
    def alike(self) -> Iterator[tuple[Step, int]]:
        """(step, how many) of steps that differ from it only in name, memory and offset."""


class Run(AlikeSteps):
    """The steps of alike objects with consecutive numbers in their names."""

    __slots__ = ("numbers", "of")

    sign: str
    """What stands between the name and the number, as in the stems of stem_of()."""
    makes: str
    """What each step of it that makes an object makes, as of Step."""

    def __init__(self, of: str, numbers: range) -> None:
        """of: the name before the numbers."""
        self.of = of
        self.numbers = numbers

    @property
    def stem(self) -> Stem:
        """What the names of its objects have in common."""
        return self.of, self.sign

    @property
    def prefixes(self) -> tuple[str, ...]:
        """What stands before the numbers in the names of its objects, and of those that they map."""
        return (self.of,)

    @abstractmethod
    def name_of(self, number: int) -> str:
        """The name of an object."""

    @abstractmethod
    def made(self, number: int) -> Step:
        """The step that makes an object."""

    @abstractmethod
    def number_of(self, number: int) -> int:
        """The number of that step in the run."""

    @abstractmethod
    def as_made(self, made: Callable[[Step], Step]) -> Run:
        """The steps as a function makes them, which is called for one of each kind."""

    @abstractmethod
    def between(self, first: int, end: int) -> Run:
        """The steps of some of its objects. first, end: counted from its first one."""

    @abstractmethod
    def owner(self, number: int) -> int | None:
        """The device whose memory an object is, as of facts.Owners; None where it is neither an allocation nor a
        mapping."""

    def outside(self, numbers: range) -> Iterator[Sequence[Step]]:
        """The steps of its objects with other numbers, in parts. numbers: some of its own, or none."""
        if not numbers:
            yield self
            return
        low, high = numbers.start - self.numbers.start, numbers.stop - self.numbers.start
        each = len(self) // len(self.numbers)
        for first, end in ((0, low), (high, len(self.numbers))):
            yield self.between(first, end) if are_many(end - first) else self[first * each : end * each]


def alike(some_steps: Sequence[Step]) -> Iterator[tuple[Step, int]]:
    """(step, how many) for all steps: those of a run that differ only in name, memory and offset count as one."""
    parts = [zip(part, repeat(1)) if isinstance(part, _SINGLE) else part.alike() for part in _parts(some_steps)]
    return chain.from_iterable(parts)


def plain(some_steps: Sequence[Step]) -> Iterable[Step]:
    """The steps that are in no run."""
    parts = [part for part in _parts(some_steps) if isinstance(part, _SINGLE)]
    return parts[0] if len(parts) == 1 else chain.from_iterable(parts)


def written_out(some_steps: Sequence[Step]) -> Iterator[tuple[int, Sequence[Step]]]:
    """(number of the first, steps) for those that are in no run."""
    number = 0
    for part in _parts(some_steps):
        if isinstance(part, _SINGLE):
            yield number, part
        number += len(part)


_Part: TypeAlias = tuple[Step, ...] | list[Step] | AlikeSteps
_SINGLE = (tuple, list)
"""What parts are that are written out. To ask whether a part is of an abstract class would take longer."""


_parts: Callable[[Sequence[Step]], Iterable[_Part]] = cast(Any, segments)


def without(some_steps: Sequence[Step], goes: Callable[[Step], bool], regions: Container[str]) -> Series[Step]:
    """The steps that stay. goes: whether a step does not. regions: those whose runs may have such steps; other runs are
    not written out."""
    stay: Parts[Step] = Parts()
    for segment in segments(some_steps):
        whole = isinstance(segment, Run) and segment.of not in regions
        stay.extend(segment if whole else [step for step in segment if not goes(step)])
    return stay.series()


def without_contents(some_steps: Sequence[Step]) -> Sequence[Step]:
    """The steps that make and alter memory; the same sequence if none fills it."""
    if not any(step.is_content for step in plain(some_steps)):
        return some_steps
    return without(some_steps, lambda step: step.is_content, ())


def in_parts(
    some_steps: Sequence[Step],
    of_single: Callable[[Iterable[Step]], Iterable[Step]],
    of_run: Callable[[Any], Sequence[Step]],
) -> Sequence[Step]:
    """The steps that these make: of the steps that are in no run, and of each run."""
    made = [(*of_single(part),) if isinstance(part, _SINGLE) else of_run(part) for part in _parts(some_steps)]
    return made[0] if len(made) == 1 else Series.joined(made)


def each_as(made: Callable[[Step], Step], some_steps: Sequence[Step]) -> Series[Step]:
    """The steps as `made` makes them. What it changes may depend on a step's kind, device and rights, but not on its
    name or place: of a run it is called for one step of each kind."""
    parts = (
        segment.as_made(made) if isinstance(segment, Run) else [*map(made, segment)] for segment in segments(some_steps)
    )
    return Series.joined(parts)


def runs(some_steps: Sequence[Step]) -> Iterator[tuple[int, Run]]:
    """(number of its first step, run) for each run."""
    number = 0
    for part in _parts(some_steps):
        if not isinstance(part, _SINGLE) and isinstance(part, Run):
            yield number, part
        number += len(part)
