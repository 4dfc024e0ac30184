"""Compares two results: what differs in their provenance, then how far each metric has moved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from hipplan.experiment.results import ResultLine, cell_of
from hipplan.experiment.summary import CONFIDENCE, Interval, Sample, samples_of
from hipplan.files import strict_json

RESAMPLES = 10_000
_IN_PROVENANCE = ("unread",)
_SHOWN = 3


@dataclass(frozen=True)
class Moved:
    """One metric of one cell in both results."""

    cell: str
    metric: str
    unit: str
    a: float
    b: float
    """The medians."""
    ratio: float | None
    """b / a; None if a is 0 and b is not."""
    interval: Interval | None
    """The interval of the ratio, with 95 %, by resampling; None below six repetitions of either."""

    def moved(self, tolerance: float) -> bool:
        """Whether the ratio is further from 1 than the tolerance, and 1 is outside of its interval, if it has one."""
        if self.ratio is None:
            return True
        far = abs(self.ratio - 1) > tolerance
        return far and not (self.interval is not None and self.interval[0] <= 1 <= self.interval[1])


@dataclass(frozen=True)
class Comparison:
    provenance: Sequence[tuple[str, str, str]]
    """(key, in a, in b) of all that differs."""
    metrics: Sequence[Moved]
    only_a: Sequence[str]
    only_b: Sequence[str]
    """Metrics of cells that the other has not."""


def compare(a: Sequence[ResultLine], b: Sequence[ResultLine]) -> Comparison:
    """Raises ImportError without NumPy."""
    in_a, in_b = ({(s.cell.key, s.metric): s for s in samples_of(lines)} for lines in (a, b))
    moved = [_moved(in_a[key], in_b[key]) for key in in_a if key in in_b]
    only_a, only_b = (
        [_named(these[key]) for key in these if key not in other] for these, other in ((in_a, in_b), (in_b, in_a))
    )
    return Comparison(_differences(a, b), moved, only_a, only_b)


def _named(sample: Sample) -> str:
    return f"{sample.cell}: {sample.metric}"


def _moved(a: Sample, b: Sample) -> Moved:
    ratio = b.median / a.median if a.median else 1.0 if b.median == a.median else None
    return Moved(str(a.cell), a.metric, a.unit, a.median, b.median, ratio, _interval(a, b))


def _interval(a: Sample, b: Sample) -> Interval | None:
    """The interval of the ratio of medians: both are resampled, with one seed, so that a report can be made again."""
    if a.interval is None or b.interval is None or min(map(abs, a.values)) == 0:
        return None
    numpy: Any = import_module("numpy")
    random = numpy.random.default_rng(0)
    medians = [
        numpy.median(random.choice(numpy.asarray(s.values, float), (RESAMPLES, len(s.values))), axis=1) for s in (a, b)
    ]
    edge = (1 - CONFIDENCE) / 2
    low, high = numpy.quantile(medians[1] / medians[0], (edge, 1 - edge))
    return float(low), float(high)


def _differences(a: Sequence[ResultLine], b: Sequence[ResultLine]) -> list[tuple[str, str, str]]:
    cells, in_b = {cell_of(line).key: str(cell_of(line)) for line in a}, {cell_of(line).key for line in b}
    shared = {key: name for key, name in cells.items() if key in in_b}
    of_a, of_b = _facts(a, shared), _facts(b, shared)
    keys = dict.fromkeys([*of_a, *of_b])
    shown = [(key, _shown(of_a.get(key, {})), _shown(of_b.get(key, {}))) for key in keys]
    return [(key, left, right) for key, left, right in shown if left != right]


def _facts(lines: Iterable[ResultLine], cells: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Key of a fact -> the values that any line has, by their text. cells: whose plans count: key -> what both sides
    call the cell, whose axes may be in another order in one of them."""
    facts: dict[str, dict[str, Any]] = {}
    for line in lines:
        fixed = {key: value for key, value in line["provenance"].items() if key not in _IN_PROVENANCE}
        known = _flat("", {"experiment": line["experiment"].get("digest"), "provenance": fixed})
        if (cell := cells.get(cell_of(line).key)) is not None:
            plan = {key: value for key, value in line["plan"].items() if key in ("digest", "lock", "verified")}
            known += [(f"{key} of {cell}", value) for key, value in _flat("plan", plan)]
        for key, value in known:
            facts.setdefault(key, {})[strict_json.dumps(value, sort_keys=True)] = value
    return facts


def _flat(key: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [pair for name, inner in value.items() for pair in _flat(f"{key}.{name}".lstrip("."), inner)]
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return [pair for number, inner in enumerate(value) for pair in _flat(f"{key}.{number}", inner)]
    return [(key, value)]


def _shown(values: Mapping[str, Any]) -> str:
    """What the lines of one side have: one value, a few, or the range of many numbers."""
    if not values:
        return "-"
    numbers = [value for value in values.values() if isinstance(value, (int, float)) and not isinstance(value, bool)]
    if len(values) > _SHOWN and len(numbers) == len(values):
        return f"{min(numbers):g} to {max(numbers):g}"
    texts = sorted(str(value) if isinstance(value, str) else text for text, value in values.items())
    return ", ".join(texts[:_SHOWN]) + (f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else "")
