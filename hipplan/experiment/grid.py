"""The cells of an experiment, and the order in which their repetitions run."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

from hipplan.errors import Problem, suggest_or_list
from hipplan.experiment.model import Condition, Experiment, Value
from hipplan.files import strict_json
from hipplan.plain import shown

CELLS_MAX = 10_000
REPETITIONS_MAX = 1_000_000


@dataclass(frozen=True)
class Cell:
    """One point of the grid."""

    vary: Mapping[str, Value]
    """The values of the plan's variables that vary."""
    env: Mapping[str, Value]
    """The values of the environment's variables that vary."""

    @cached_property
    def key(self) -> str:
        """The cell as text: equal for equal cells, also of other runs."""
        return strict_json.dumps({"vary": dict(self.vary), "env": dict(self.env)}, sort_keys=True)

    def __str__(self) -> str:
        values = {**self.vary, **self.env}
        return " ".join(f"{name}={shown(value)}" for name, value in values.items()) or "the only cell"


@dataclass(frozen=True)
class Repetition:
    """One repetition of a cell."""

    cell: Cell
    repetition: int
    """From 0."""


def axes(experiment: Experiment) -> dict[str, Sequence[Value]]:
    """The name of each axis -> its values: of `vary`, then of the lists in `env`."""
    return {**experiment.vary, **{name: value for name, value in experiment.env.items() if isinstance(value, list)}}


def cells(experiment: Experiment) -> list[Cell]:
    """All cells, in the order written. Raises Problem (HP460)."""
    values = axes(experiment)
    if (count := prod(map(len, values.values()))) > CELLS_MAX:
        hint = "vary fewer values, or write several experiments"
        raise Problem("HP460", f"{count:,} cells are more than {CELLS_MAX:,}", hint=hint)
    kept = []
    for combination in product(*values.values()):
        point = dict(zip(values, combination, strict=True))
        if _is_kept(point, experiment):
            vary = {name: value for name, value in point.items() if name in experiment.vary}
            kept.append(Cell(vary, {name: value for name, value in point.items() if name not in vary}))
    if not kept:
        raise Problem("HP460", "no cell is left", why="`only` and `not` drop all of them")
    if (count := len(kept) * experiment.repeat) > REPETITIONS_MAX:
        hint = "repeat less, or write several experiments"
        raise Problem("HP460", f"{count:,} repetitions are more than {REPETITIONS_MAX:,}", hint=hint)
    return kept


def unknown(experiment: Experiment) -> Iterator[tuple[tuple[str, int, str], Problem]]:
    """What `only` and `not` name and no axis has: (path in the document, HP460)."""
    values = axes(experiment)
    for key, conditions in (("only", experiment.only), ("not", experiment.not_)):
        for number, condition in enumerate(conditions):
            for name, wanted in condition.items():
                if name not in values:
                    hint = suggest_or_list(name, values)
                    yield (key, number, name), Problem("HP460", f"there is no axis '{name}'", hint=hint)
                elif strange := [value for value in _listed(wanted) if not _among(value, values[name])]:
                    hint = f"it is one of {', '.join(map(shown, values[name][:10]))}"
                    summary = f"'{name}' is never {shown(strange[0])}"
                    yield (key, number, name), Problem("HP460", summary, hint=hint)


def turns(experiment: Experiment, seed: int) -> list[Repetition]:
    """All repetitions of all cells, in the order in which they run. Raises Problem (HP460)."""
    every = [Repetition(cell, number) for cell in cells(experiment) for number in range(experiment.repeat)]
    if experiment.order == "shuffled":
        random.Random(seed).shuffle(every)
    return every


def _is_kept(point: Mapping[str, Value], experiment: Experiment) -> bool:
    if experiment.only and not any(_fits(point, condition) for condition in experiment.only):
        return False
    return not any(_fits(point, condition) for condition in experiment.not_)


def _fits(point: Mapping[str, Value], condition: Condition) -> bool:
    return all(name in point and _among(point[name], _listed(wanted)) for name, wanted in condition.items())


def _listed(wanted: Value | list[Value]) -> list[Value]:
    return wanted if isinstance(wanted, list) else [wanted]


def _among(value: Value, values: Sequence[Value]) -> bool:
    """Whether it is one of these: to Python, and not here, true equals 1."""
    return any(value == other and value.__class__ is other.__class__ for other in values)
