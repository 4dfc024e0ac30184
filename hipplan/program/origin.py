"""What a program was made from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from hipplan.kinds.mapping.live import SetAccess
from hipplan.program.mapped_runs import MappedRun
from hipplan.program.steps import Step

Given: TypeAlias = SetAccess | MappedRun
"""What gives rights to one mapping, or to those of a run."""


def _no_program() -> None:
    """Stands for a reference to a program that is gone."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What a program was made from, so that the change between the two need not be searched for."""

    before: Callable[[], object]
    """Returns the program before while it is alive, else None."""
    is_resized: bool = False
    """It has other steps at its end, or lacks some."""
    added: Sequence[Step] = ()
    """The steps that it has at its end."""
    gone: tuple[Step, ...] = ()
    """The steps that it lacks, in their order."""
    given: tuple[tuple[Given, Given], ...] | None = None
    """What gives mappings their rights, where only these are other ones: as of Program.given_since()."""


UNKNOWN = Origin(_no_program)


class HasOrigin:
    """A program that may have been made from another one, by a method of that one."""

    @cached_property
    def _origin(self) -> Origin:
        return UNKNOWN

    def comes_from(self, other: object) -> bool:
        """Whether grown() or shrunk() of that program has made this one."""
        return self._origin.is_resized and self._origin.before() is other

    @property
    def added(self) -> Sequence[Step]:
        """The steps that grown() added, if it has made this program."""
        return self._origin.added

    @property
    def gone(self) -> tuple[Step, ...]:
        """The steps that shrunk() left out, in their order, if it has made this program."""
        return self._origin.gone

    def given_since(self, other: object) -> tuple[tuple[Given, Given], ...] | None:
        """(before, now) for what gives mappings other rights, in the order of the steps, if regiven() of that program
        has made this one; else None."""
        return self._origin.given if self._origin.before() is other else None
