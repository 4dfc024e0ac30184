"""The decision on a change that several ranks make together: nothing may interrupt between the vote and the commit."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from hipplan.errors import ApplyError, GroupInDoubt
from hipplan.kinds.allocation.live import ImportAllocation
from hipplan.layout.signals_wait import signals_wait
from hipplan.program.difference import Difference
from hipplan.program.steps import Step


class PlacesTaken(Exception):
    """The proposed addresses are not free in all ranks; others may be."""


class Together(Protocol):
    """The messages of a group's ranks about one change (hipplan.ranks.agreement)."""

    @property
    def to_place(self) -> Container[str]:
        """Names of the ranges that need the same addresses in all ranks; their steps come first."""

    def deadline(self) -> float:
        """When a wait that begins now must end, by time.monotonic()."""

    def all_placed(self, taken: ApplyError | None) -> bool:
        """taken: why this rank cannot have its ranges at the proposed addresses; None: it has them. Returns whether all
        ranks have."""

    def at_other_addresses(self, change: Difference) -> Difference:
        """The same change with other addresses for them. Raises GroupError: there are no more proposals."""

    def exchange(self, imports: Sequence[ImportAllocation], share: Callable[[str], int]) -> Mapping[str, int]:
        """Called when all objects of this rank exist. Sends other ranks descriptors of memory that they map; returns
        those that this rank maps, by step name. The caller closes them. share: a new descriptor of an allocation."""

    def vote(self, deliver: Callable[[], None]) -> BaseException | None:
        """Returns when all ranks commit. An exception means roll back, except GroupInDoubt: then the change stays
        undecided. deliver: runs the handlers of delayed signals; an exception that came too late is returned."""


def in_order(
    steps: Sequence[Step], ranks: Together
) -> tuple[Sequence[Step], Sequence[Step], Sequence[ImportAllocation], Sequence[Step]]:
    """Divides the steps that make objects into the ranges that all ranks place, what this rank makes, and the rest,
    which begins with memory of other ranks; the third of four is that memory."""
    imports = [step for step in steps if isinstance(step, ImportAllocation) and step.rank >= 0]
    own = steps.index(imports[0]) if imports else len(steps)
    placed = [step.makes == "reservation" and step.name in ranks.to_place for step in steps]
    agreed = sum(placed)
    assert all(placed[:agreed]), "ranges that all ranks place come first, before anything takes their addresses"
    late = [step.name for step in steps[own:] if step.owns_memory]
    assert not late, f"other ranks may ask for {late[0]}, which is made after their memory is mapped"
    return steps[:agreed], steps[agreed:own], imports, steps[own:]


@contextmanager
def memory_of_others(
    ranks: Together, imports: Sequence[ImportAllocation], share: Callable[[str], int]
) -> Iterator[Mapping[str, int]]:
    """Exchanges memory as Together.exchange() does; closes the descriptors."""
    came = ranks.exchange(imports, share)
    try:
        yield came
    finally:
        for descriptor in came.values():
            os.close(descriptor)


def decide_together(ranks: Together, decide: Callable[[], None]) -> None:
    """Votes, then decides. Raises what vote() raises; after the decision, what a signal raised too late."""
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
