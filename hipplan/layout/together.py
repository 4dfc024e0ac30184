"""The decision on a change that several ranks make together: between a yes and the commit nothing may come."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from hipplan.errors import GroupInDoubt
from hipplan.layout.signals_wait import signals_wait
from hipplan.program.steps import ImportAllocation


class Together(Protocol):
    """What the ranks of a group say to each other about one change (hipplan.ranks.agreement)."""

    def exchange(self, imports: Sequence[ImportAllocation], share: Callable[[str], int]) -> Mapping[str, int]:
        """All that this rank makes itself is there. Sends others what of it they map; returns the descriptors of what
        this one maps, by the names of its steps. The caller closes them. share: a new descriptor of an allocation."""

    def vote(self, deliver: Callable[[], None]) -> BaseException | None:
        """Returns when all ranks commit. What it raises rolls back, but GroupInDoubt leaves all as it is, undecided.
        deliver: lets signals come that have come meanwhile; what they raised too late is returned."""


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
