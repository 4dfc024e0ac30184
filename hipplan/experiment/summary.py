"""The metrics of results: the median of each in each cell, with an interval."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from math import comb

from hipplan.experiment.grid import Cell
from hipplan.experiment.results import ResultLine, cell_of
from hipplan.units import SizeError, parse_size

CONFIDENCE = 0.95
Interval = tuple[float, float]


@dataclass(frozen=True)
class Sample:
    """One metric of one cell."""

    cell: Cell
    metric: str
    unit: str
    values: Sequence[float]
    """One of each repetition that did not fail."""
    failed: int
    """How many repetitions of the cell failed."""

    @cached_property
    def median(self) -> float:
        return statistics.median(self.values)

    @cached_property
    def interval(self) -> Interval | None:
        return interval_of(self.values)


@dataclass(frozen=True)
class FailedCell:
    """Repetitions of one cell that failed."""

    cell: Cell
    failed: int
    repetitions: int
    """All of the cell's, the failed ones among them."""
    error: str
    """The error of the first that failed."""


def failures_of(lines: Iterable[ResultLine]) -> list[FailedCell]:
    """The cells of which a repetition failed."""
    by_cell: dict[str, list[ResultLine]] = {}
    for line in sorted(lines, key=_as_written):
        by_cell.setdefault(cell_of(line).key, []).append(line)
    failures = []
    for of_cell in by_cell.values():
        failed = [line for line in of_cell if line["result"] != "ok"]
        if failed:
            failures.append(FailedCell(cell_of(failed[0]), len(failed), len(of_cell), error_of(failed[0])))
    return failures


def without_metrics(lines: Iterable[ResultLine]) -> list[Cell]:
    """The cells of which no repetition failed and none gave a metric: a report has no row for them."""
    cells: dict[str, Cell] = {}
    others: set[str] = set()
    for line in sorted(lines, key=_as_written):
        cell = cell_of(line)
        cells.setdefault(cell.key, cell)
        if line["metrics"] or line["result"] != "ok":
            others.add(cell.key)
    return [cell for key, cell in cells.items() if key not in others]


def error_of(line: ResultLine) -> str:
    """The error of a repetition in one line."""
    error = line.get("error")
    if not isinstance(error, Mapping):
        return ""
    return ": ".join(str(error[key]) for key in ("code", "summary", "why") if error.get(key))


def interval_of(values: Sequence[float]) -> Interval | None:
    """The interval with the true median in it, with at least 95 %, from two order statistics; None below six values.

    It assumes independent repetitions and nothing else. Source: the median lies between the k-th smallest and the k-th
    largest of n values unless fewer than k are below or above it, which is a binomial distribution with p = 1/2.
    """
    ordered, count = sorted(values), len(values)
    outside = 0.0
    rank = 0
    while rank < count // 2:
        outside += 2 * comb(count, rank) / 2**count
        if outside > 1 - CONFIDENCE:
            break
        rank += 1
    return (ordered[rank - 1], ordered[count - rank]) if rank else None


def samples_of(lines: Iterable[ResultLine]) -> list[Sample]:
    """Each metric of each cell, in the order of their first lines; a cell that always failed has none."""
    failed: dict[str, int] = {}
    values: dict[tuple[str, str], list[float]] = {}
    cells: dict[str, Cell] = {}
    units: dict[str, str] = {}
    for line in sorted(lines, key=_as_written):
        cell = cell_of(line)
        cells.setdefault(cell.key, cell)
        if line["result"] != "ok":
            failed[cell.key] = failed.get(cell.key, 0) + 1
            continue
        units |= line["units"]
        for metric, value in line["metrics"].items():
            values.setdefault((cell.key, metric), []).append(value)
    return [
        Sample(cells[key], metric, str(units.get(metric, "")), taken, failed.get(key, 0))
        for (key, metric), taken in values.items()
    ]


def _as_written(line: ResultLine) -> tuple[list[tuple[str, float, str]], int]:
    """Sizes and numbers by their value, other values as text, in the order of the axes."""
    values = {**line["cell"]["vary"], **line["cell"]["env"]}
    return [(name, number_of(value) or 0.0, str(value)) for name, value in values.items()], line["repetition"]


def number_of(value: object) -> float | None:
    """A number, or a size in bytes; None for other values."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    with suppress(SizeError):
        return float(parse_size(value))
    return None
