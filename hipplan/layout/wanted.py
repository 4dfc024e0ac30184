"""What layout.update() is to reach: a plan, or a file with a change that was reviewed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hipplan.language.loader import LoadedPlan, PlanSource, loaded
from hipplan.layout.bound import bindings_for, rebound
from hipplan.layout.prepare import prepare_change
from hipplan.layout.state import State
from hipplan.layout.verbs import AgreementOrNone
from hipplan.program.difference import Difference
from hipplan.program.reviewed import Reviewed, is_reviewed, read


class WantedPlan:
    """The plan that a layout is updated to, and what the update may lose."""

    def __init__(
        self,
        plan: LoadedPlan | PlanSource,
        variables: Mapping[str, Any] | None,
        lose: tuple[str, ...],
        bind: Mapping[str, Any] | None,
    ) -> None:
        """bind: as in layout.update().

        Raises PlanError: the file is no reviewed change; TypeError: it has variables and consent of its own.
        """
        self._plan = plan
        self._variables = variables
        self._bind = bind
        self._folder = Path()
        self._reviewed: Reviewed | None = None
        self.lose = lose
        if (path := _file_of(plan)) is not None:
            if variables or lose:
                raise TypeError("a reviewed change has its variables and lose: leave vars= and lose= out")
            self._folder, self._reviewed = path.parent, read(path)
            self.lose = self._reviewed.lose

    @property
    def is_reviewed(self) -> bool:
        """Whether it is a reviewed change, with what it may lose."""
        return self._reviewed is not None

    def change(self, state: State, group: AgreementOrNone) -> Difference:
        """The change from a state of the layout. Raises PlanError, MachineError, ApplyError (HP425)."""
        reviewed = self._reviewed
        if reviewed is None:
            plan = loaded(self._plan, self._variables, state.program.rank)
        else:
            reviewed.require_start(state.program)
            plan = reviewed.load(self._folder)
        passed = bindings_for(plan, self._bind)
        change = prepare_change(state.program, plan, state.runtime, rebound(state, passed), group, state.lowered)
        if reviewed is not None:
            reviewed.require_end(change)
        return change


def _file_of(plan: Any) -> Path | None:
    """The path of a file with a reviewed change; None for anything else."""
    if not isinstance(plan, (str, os.PathLike)) or not os.fspath(plan).endswith(".json"):
        return None
    path = Path(plan)
    try:
        with path.open("rb") as file:
            return path if is_reviewed(file.read(200)) else None
    except (OSError, ValueError):
        return None  # what is wrong with it is reported as of any plan
