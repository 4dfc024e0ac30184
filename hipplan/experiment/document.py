"""Experiment files: from text to an Experiment whose errors have places."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hipplan.errors import PlanError, Problem, Span
from hipplan.experiment import grid
from hipplan.experiment.model import Experiment, Value
from hipplan.files import strict_json
from hipplan.language.findings import in_order
from hipplan.language.loader import PlanSource
from hipplan.language.model.translate import translate
from hipplan.language.source import Source, load_yaml

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

    def environment(self, cell: grid.Cell) -> dict[str, str]:
        """The environment's variables of a cell, which it has besides those of this process."""
        fixed = {name: value for name, value in self.experiment.env.items() if not isinstance(value, list)}
        return {name: text_of(value) for name, value in {**fixed, **cell.env}.items()}


def text_of(value: Value) -> str:
    """A value as the environment has it."""
    return str(int(value)) if isinstance(value, bool) else str(value)


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
