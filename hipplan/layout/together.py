"""The decision on a change that several ranks make together: between a yes and the commit nothing may come."""

from __future__ import annotations

from collections.abc import Callable

from hipplan.errors import GroupInDoubt
from hipplan.layout.signals_wait import signals_wait

Vote = Callable[[Callable[[], None]], BaseException | None]
"""Returns when all ranks of a group commit. What it raises rolls back, but GroupInDoubt leaves all as it is, undecided.
It is given what lets signals come that have come meanwhile; what they raised too late it returns."""


def decide_together(vote: Vote, decide: Callable[[], None]) -> None:
    """Votes, then decides. Raises what vote() raises, and what a signal raised too late, when that is done."""
    doubt: BaseException | None = None
    late: BaseException | None = None
    try:
        try:
            with signals_wait() as deliver:
                try:
                    late = vote(deliver)
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
