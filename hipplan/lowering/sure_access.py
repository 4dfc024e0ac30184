"""Whether HIP 7.0 to 7.2 accept each hipMemSetAccess of a change in every order of heap addresses (pieces.py).

The check replays the rows of the change and of its roll back, and tracks what is mapped where.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass

from hipplan.kinds.mapping.live import ChangeAccess, Map, SetAccess, TakeOut
from hipplan.kinds.reservation.live import Reserve
from hipplan.machines.machine import Machine
from hipplan.program.change import Change
from hipplan.program.program import Program
from hipplan.program.steps import Step

RightsSet = frozenset[tuple[int, str]]
"""(ordinal, right) of each device that may use a mapping."""


def concerned(machine: Machine | None) -> bool:
    """Whether a machine has such a release."""
    return machine is not None and machine.runtime != "cuda" and (7, 0) <= machine.version < (7, 3)


def right_sets(some_steps: Iterable[Step]) -> dict[str, RightsSet]:
    """Mapping -> who may use it; without mappings that no device may use."""
    given = [step for step in some_steps if isinstance(step, SetAccess)]
    kinds = {rights: frozenset(rights) for rights in {step.rights for step in given}}
    return {step.name: kinds[step.rights] for step in given}


@dataclass(slots=True)
class _Mapped:
    size: int
    rights: RightsSet


class Ranges:
    """What is mapped where, and who may use it, at one moment of a change."""

    def __init__(self, program: Program) -> None:
        self._pieces: dict[str, dict[int, _Mapped]] = {}
        self._sizes: dict[str, Counter[int]] = {}
        rights = right_sets(program.steps)
        for step in program.mappings():
            self.map(step, rights.get(step.name, frozenset()))

    def begin(self, name: str) -> None:
        """Add an empty range."""
        self._pieces[name], self._sizes[name] = {}, Counter()

    def map(self, step: Map, rights: RightsSet = frozenset()) -> None:
        self._pieces.setdefault(step.reservation, {})[step.offset] = _Mapped(step.size, rights)
        self._sizes.setdefault(step.reservation, Counter())[step.size] += 1

    def unmap(self, name: str, at: int) -> None:
        gone, sizes = self._pieces[name].pop(at), self._sizes[name]
        sizes[gone.size] -= 1
        if not sizes[gone.size]:
            del sizes[gone.size]

    def is_sure(self, name: str, at: int, allowed: Set[RightsSet], *, together: bool) -> bool:
        """Whether access to a piece is accepted in every order, and gives no device more than elsewhere."""
        pieces = self._pieces[name]
        if len(self._sizes[name]) == 1 and not together:
            return True
        first, last = min(pieces), max(pieces)
        whole = last + pieces[last].size - first == sum(piece.size for piece in pieces.values())
        return together and whole and all(piece.rights in allowed for place, piece in pieces.items() if place != at)

    def set(self, name: str, at: int, rights: RightsSet, *, together: bool) -> None:
        pieces = self._pieces[name]
        for piece in pieces.values() if together else (pieces[at],):
            piece.rights = rights


def unsure(change: Change) -> Iterator[Step]:
    """Steps of a change for which hipMemSetAccess may be refused, when they are made or undone."""
    change = change.about
    ranges = Ranges(change.old)
    before = {step.name: (step.reservation, step.offset) for step in change.old.mappings()}
    now = {step.name: (step.reservation, step.offset) for step in change.new.mappings()}
    for step in change.all_steps:
        if isinstance(step, Reserve):
            ranges.begin(step.name)
        elif isinstance(step, Map):
            ranges.map(step)
            now[step.name] = (step.reservation, step.offset)
        elif isinstance(step, TakeOut):
            rights = frozenset(step.rights)
            if rights and not ranges.is_sure(*before[step.name], {rights}, together=step.together):
                yield step
            ranges.unmap(*before[step.name])
        elif isinstance(step, (SetAccess, ChangeAccess)):
            rights = _given(step.now if isinstance(step, ChangeAccess) else step.rights)
            was = _given(step.before) if isinstance(step, ChangeAccess) else rights
            if not ranges.is_sure(*now[step.name], {rights, was}, together=step.together):
                yield step
            ranges.set(*now[step.name], rights, together=step.together)


def _given(rights: Iterable[tuple[int, str]]) -> RightsSet:
    return frozenset((who, right) for who, right in rights if right != "none")
