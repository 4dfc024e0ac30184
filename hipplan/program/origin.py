"""What a program was made from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
    gone: tuple[Step, ...] = ()
    """The steps that it lacks, in their order."""
    given: tuple[tuple[Given, Given], ...] | None = None
    """What gives mappings their rights, where only these are other ones: as of Program.given_since()."""


UNKNOWN = Origin(_no_program)
