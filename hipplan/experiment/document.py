"""Experiment files: from text to an Experiment whose errors have places."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hipplan.errors import PlanError, Problem, Span, suggest_or_list
from hipplan.experiment import grid
from hipplan.experiment.model import Condition, Experiment, Value
from hipplan.files import strict_json
from hipplan.language.findings import in_order
from hipplan.language.loader import PlanSource
from hipplan.language.model.translate import translate
from hipplan.language.source import Source, load_yaml
from hipplan.plain import shown

_NOT_MEASURED = ("name", "description", "vary", "only", "not", "repeat", "order", "seed", "timeout")
"""Keys that may change while results stay comparable: they choose which repetitions run, and when."""


@dataclass(frozen=True)
class Document:
    """An experiment without errors of its own. Whether its plan has some is checked for each cell."""

    experiment: Experiment
    source: Source

    @property
    def name(self) -> str:
        return self.experiment.name or Path(self.source.name).name.partition(".")[0]

    @property
    def folder(self) -> Path:
        """The folder that paths in the file are relative to."""
        return Path(self.source.name).parent

    @property
    def plan(self) -> str:
        """The path of the plan."""
        return str(self.folder / self.experiment.plan)

    @cached_property
    def cells(self) -> list[grid.Cell]:
        return grid.cells(self.experiment)

    @cached_property
    def digest(self) -> str:
        """sha256 of what is measured: equal for files that differ only in their cells, repetitions and order."""
        data: dict[str, Any] = {key: value for key, value in self.source.data.items() if key not in _NOT_MEASURED}
        data["env"] = {name: value for name, value in self.experiment.env.items() if not isinstance(value, list)}
        return hashlib.sha256(strict_json.dumps(data, sort_keys=True).encode()).hexdigest()

    def span(self, *path: Hashable, key: bool = False) -> Span | None:
        return self.source.span(path, key=key)

    def variables(self, cell: grid.Cell) -> dict[str, Value]:
        """The values of the plan's variables in a cell."""
        return {**self.experiment.vars, **cell.vary}

    def narrowed(self, only: Sequence[tuple[str, str]], repeat: int | None) -> Document:
        """The experiment with fewer cells, and another number of repetitions.

        only: (axis, the text of one of its values, or of several with commas between). Raises Problem (HP460).
        """
        dropped = [self._others(name, [text for axis, text in only if axis == name]) for name, _ in only]
        changed: dict[str, Any] = {"not_": [*self.experiment.not_, *filter(None, dropped)]}
        if repeat is not None:
            changed["repeat"] = repeat
        narrowed = replace(self, experiment=self.experiment.model_copy(update=changed))
        assert narrowed.cells  # Problem here, and not while they run
        return narrowed

    def _others(self, name: str, texts: Sequence[str]) -> Condition | None:
        """The condition that drops all other values of an axis; None if there are none. Raises Problem (HP460)."""
        axes = grid.axes(self.experiment)
        if name not in axes:
            raise Problem("HP460", f"there is no axis '{name}'", hint=suggest_or_list(name, axes))
        known = dict.fromkeys(map(as_option, axes[name]))
        wanted = dict.fromkeys(part for text in texts for part in ([text] if text in known else text.split(",")))
        for part in wanted:
            if part not in known:
                hint = f"it is one of {', '.join(list(known)[:10])}"
                raise Problem("HP460", f"'{name}' is never {shown(part)}", hint=hint)
        others = [value for value in axes[name] if as_option(value) not in wanted]
        return {name: others} if others else None

    def environment(self, cell: grid.Cell) -> dict[str, str]:
        """The environment's variables of a cell, which it has besides those of this process."""
        fixed = {name: value for name, value in self.experiment.env.items() if not isinstance(value, list)}
        return {name: text_of(value) for name, value in {**fixed, **cell.env}.items()}


def text_of(value: Value) -> str:
    """A value as the environment has it."""
    return str(int(value)) if isinstance(value, bool) else str(value)


def as_option(value: Value) -> str:
    """A value as an option of a command has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def read(source: PlanSource, name: str | None = None) -> Document:
    """Reads an experiment file. Raises PlanError with every error of the file; its plan is not read."""
    document = load_yaml(source, name, "experiment")  # type: ignore[arg-type]  # a path, or an open stream
    problems = list(document.findings)
    try:
        experiment = Experiment.model_validate(document.data)
    except ValidationError as error:
        raise PlanError(in_order([*problems, *translate(error, Experiment, document.data, document.span)])) from None
    problems += [problem.diagnostic(document.span(path)) for path, problem in grid.unknown(experiment)]
    if not problems:
        try:
            grid.cells(experiment)
        except Problem as problem:
            where = next((key for key in ("vary", "only", "not") if key in document.data), "hipplan_experiment")
            problems.append(problem.diagnostic(document.span((where,), key=True)))
    if problems:
        raise PlanError(in_order(problems))
    return Document(experiment, document)
