"""Results as tables: for people, as CSV, as Markdown and as JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from hipplan.errors import printable
from hipplan.experiment.document import as_option
from hipplan.experiment.grid import Cell
from hipplan.experiment.model import Value
from hipplan.experiment.summary import FailedCell, Sample
from hipplan.plain import shown

_FIGURES = ("metric", "unit", "median", "low", "high", "repetitions", "failed")


def rows(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """A row for each metric of each cell: the values of the axes, then the figures. low, high: the 95 % interval."""
    table = []
    for sample in samples:
        low, high = sample.interval or (None, None)
        figures = (sample.metric, sample.unit, sample.median, low, high, len(sample.values), sample.failed)
        table.append({**_values(sample.cell), **dict(zip(_FIGURES, figures, strict=True))})
    return table


def as_csv(samples: Sequence[Sample]) -> str:
    """Writes samples below a line of names; a missing interval is empty."""
    text = io.StringIO()
    names = [*_axes(samples), *_FIGURES]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(printable, names))
    for row in rows(samples):
        cells = (row.get(name, "") for name in names)
        writer.writerow([printable(as_option(cell)) if isinstance(cell, (str, bool)) else cell for cell in cells])
    return text.getvalue()


def as_markdown(samples: Sequence[Sample]) -> str:
    names, table = as_text(samples)
    lines = [names, ["---"] * len(names), *table]
    return "".join("| " + " | ".join(printable(cell).replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def failure_as_text(failure: FailedCell) -> str:
    return f"{failure.cell}: {failure.failed} of {failure.repetitions}: {failure.error}"


def failures_as_markdown(failures: Sequence[FailedCell]) -> str:
    """A list below the table; empty without failures."""
    lines = "".join(f"- {printable(failure_as_text(failure))}\n" for failure in failures)
    return f"\nFailed:\n\n{lines}" if lines else ""


def silent_as_markdown(cells: Sequence[Cell]) -> str:
    """A list of the cells without a metric; empty without any."""
    lines = "".join(f"- {printable(str(cell))}\n" for cell in cells)
    return f"\nNo metric:\n\n{lines}" if lines else ""


def as_text(samples: Sequence[Sample]) -> tuple[list[str], list[list[str]]]:
    """The names of the columns, and the rows."""
    axes = _axes(samples)
    table = []
    for sample in samples:
        values = _values(sample.cell)
        low_high = "" if sample.interval is None else f"{sample.interval[0]:.5g} to {sample.interval[1]:.5g}"
        median = f"{sample.median:.5g} {sample.unit}".rstrip()
        counts = [str(len(sample.values)), str(sample.failed)]
        table.append(
            [
                *(shown(values[name]) if name in values else "" for name in axes),
                sample.metric,
                median,
                low_high,
                *counts,
            ]
        )
    return [*axes, "metric", "median", "95 % interval", "repetitions", "failed"], table


def _axes(samples: Sequence[Sample]) -> list[str]:
    """The columns of the axes that any cell has: results may be of several grids."""
    return list(dict.fromkeys(name for sample in samples for name in _values(sample.cell)))


def _values(cell: Cell) -> dict[str, Value]:
    """Column -> the value of its axis. A plan may have a variable that is called as a figure is: `axis.` comes before
    it, which no name of a variable can have."""
    values = {**cell.vary, **cell.env}
    return {f"axis.{name}" if name in _FIGURES else name: value for name, value in values.items()}
