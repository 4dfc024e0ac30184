"""The decision on a change that several ranks make together: between a yes and the commit nothing may come."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from hipplan.errors import GroupInDoubt
from hipplan.layout.signals_wait import signals_wait
from hipplan.program.difference import Difference
from hipplan.program.steps import ImportAllocation


class PlacesTaken(Exception):
    """Ranges cannot be where all ranks were to have them: elsewhere, perhaps."""


class Together(Protocol):
    """What the ranks of a group say to each other about one change (hipplan.ranks.agreement)."""

    @property
    def to_place(self) -> Container[str]:
        """Names of the ranges that are to come to lie at the same addresses in all ranks: the first of the steps."""

    def placed(self, here: bool) -> bool:
        """here: they are where they are to be, in this rank. Returns whether they are in all ranks."""

    def elsewhere(self, way: Difference) -> Difference:
        """The same with another place for them. Raises GroupError: there is none."""

    def exchange(self, imports: Sequence[ImportAllocation], share: Callable[[str], int]) -> Mapping[str, int]:
        """All that this rank makes itself is there. Sends others what of it they map; returns the descriptors of what
        this one maps, by the names of its steps. The caller closes them. share: a new descriptor of an allocation."""

    def vote(self, deliver: Callable[[], None]) -> BaseException | None:
        """Returns when all ranks commit. What it raises rolls back, but GroupInDoubt leaves all as it is, undecided.
        deliver: lets signals come that have come meanwhile; what they raised too late is returned."""


class Running(Protocol):
    """A transaction."""

    def run(self) -> None:
        """Raises PlacesTaken after rolling back."""


AnyRunning = TypeVar("AnyRunning", bound=Running)


def carried_out(way: Difference, make: Callable[[Difference], AnyRunning], ranks: Together | None) -> AnyRunning:
    """Runs a transaction; again, with other addresses, while those that ranks share cannot be had. Raises as run()."""
    while True:
        transaction = make(way)
        try:
            transaction.run()
            return transaction
        except PlacesTaken:
            assert ranks is not None
            way = ranks.elsewhere(way)


@contextmanager
def memory_of_others(
    ranks: Together, imports: Sequence[ImportAllocation], share: Callable[[str], int]
) -> Iterator[Mapping[str, int]]:
    """As Together.exchange(); closes the descriptors."""
    came = ranks.exchange(imports, share)
    try:
        yield came
    finally:
        for descriptor in came.values():
            os.close(descriptor)


def decide_together(ranks: Together, decide: Callable[[], None]) -> None:
    """Votes, then decides. Raises what vote() raises, and what a signal raised too late, when that is done."""
    doubt: BaseException | None = None
    late: BaseException | None = None
    try:
        try:
            with signals_wait() as deliver:
                try:
                    late = ranks.vote(deliver)
                    decide()
                except GroupInDoubt as error:
                    doubt = error
        except BaseException as error:
            if doubt is None:
                raise
            raise doubt from error  # a signal, which must not hide it
        if doubt is not None:
            raise doubt
        if late is not None:
            raise late
    finally:
        del doubt, late  # their tracebacks have this frame: a circle would hold the layout's memory
