"""Plots of results, as SVG and PNG: lines over sizes, heat maps over pairs, bars otherwise. Needs matplotlib."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from operator import itemgetter
from pathlib import Path
from typing import Any

from hipplan.errors import PlanError, printable
from hipplan.experiment.summary import Sample, number_of
from hipplan.files.output import unwritten
from hipplan.plain import shown

PLOTS_MAX = 100
LEGEND_MAX = 24
"""Lines that a legend names."""
_PAIR = re.compile(r"((?:plain )?\w+) (.+) > (.+)")
_DEVICE = re.compile(r"[A-Za-z_]\w*\.\d+|host|-?\d+")
_BEHIND = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
"""The box behind a number, whatever the color below it."""
_SETTINGS = {"svg.hashsalt": "hipplan", "svg.fonttype": "none", "figure.autolayout": True}


def plots(samples: Sequence[Sample], name: str, folder: Path) -> list[str]:
    """Writes NAME-METRIC.svg and .png into the folder; the paths. At most 100 plots.

    Raises ImportError without matplotlib, PlanError (HP413): a file cannot be written.
    """
    matplotlib: Any = import_module("matplotlib")
    figures: Any = import_module("matplotlib.figure")
    written: list[str] = []
    stems: set[str] = set()
    with matplotlib.rc_context(_SETTINGS):
        for title, draw in list(_planned(samples))[:PLOTS_MAX]:
            figure = figures.Figure(figsize=(7, 4.5))
            draw(figure.add_subplot())
            stem = _stem(f"{name}-{title}", stems)
            for kind in ("svg", "png"):
                path = folder / f"{stem}.{kind}"
                try:
                    folder.mkdir(parents=True, exist_ok=True)
                    figure.savefig(path, dpi=150, metadata={"Date": None} if kind == "svg" else {})
                except OSError as error:
                    raise PlanError(unwritten(str(path), "the plot", error, "--plots names another folder")) from None
                written.append(str(path))
    return written


def _stem(title: str, taken: set[str]) -> str:
    """The name of a plot's files without their ending, which a file system can hold; another for each plot. taken:
    those before it, to which it is added."""
    plain = re.sub(r"[^\w.]+", "-", title).strip("-")
    plain = plain[:120].encode()[:200].decode(errors="ignore")
    stem, number = plain, 1
    while stem in taken:
        number += 1
        stem = f"{plain}-{number}"
    taken.add(stem)
    return stem


def _planned(samples: Sequence[Sample]) -> Iterator[tuple[str, Any]]:
    """(title, function that draws into axes) of each plot."""
    pairs: dict[str, list[tuple[str, str, Sample]]] = {}
    others: dict[str, list[Sample]] = {}
    for sample in samples:
        if match := _PAIR.fullmatch(sample.metric):
            pairs.setdefault(match[1], []).append((match[2], match[3], sample))
        else:
            others.setdefault(sample.metric, []).append(sample)
    for what, of_pairs in pairs.items():
        yield from _of_pairs(what, of_pairs)
    for metric, of_metric in others.items():
        if len(of_metric) > 1:
            yield metric, _drawn(metric, of_metric)


def _of_pairs(what: str, pairs: Sequence[tuple[str, str, Sample]]) -> Iterator[tuple[str, Any]]:
    """One plot of all cells, in which the pair is an axis; and a heat map of each cell that has more than two ends."""
    cells: dict[str, dict[tuple[str, str], Sample]] = {}
    for source, to, sample in pairs:
        cells.setdefault(str(sample.cell), {})[source, to] = sample
    if len(cells) > 1:
        yield what, _drawn(what, [_with_pair(*pair) for pair in pairs])
    for cell, of_cell in cells.items():
        if len({end for pair in of_cell for end in pair}) > 2 or len(cells) == 1:
            yield f"{what} {cell}", _heat_map(what, of_cell, "from", "to")


def _with_pair(source: str, to: str, sample: Sample) -> Sample:
    """Returns the sample with the pair as a value of an axis without a name, which no axis of an experiment is."""
    return replace(sample, cell=replace(sample.cell, vary={**sample.cell.vary, "": f"{source} > {to}"}))


def _drawn(metric: str, samples: Sequence[Sample]) -> Any:
    axes = _varying(samples)
    devices = [name for name, values in axes.items() if all(_DEVICE.fullmatch(shown(value)) for value in values)]
    sizes = [name for name, values in axes.items() if all(number_of(value) is not None for value in values)]
    if len(axes) == 2 and len(devices) == 2 and not any(isinstance(v, int) for n in devices for v in axes[n]):
        first, second = devices
        return _heat_map(metric, {(_at(s, first), _at(s, second)): s for s in samples}, first, second)
    if sizes:
        return _lines(metric, samples, max(sizes, key=lambda name: len(axes[name])))
    return _bars(metric, samples)


def _varying(samples: Sequence[Sample]) -> dict[str, list[Any]]:
    """The axes that have more than one value here."""
    values: dict[str, dict[str, Any]] = {}
    for sample in samples:
        for name, value in {**sample.cell.vary, **sample.cell.env}.items():
            values.setdefault(name, {})[shown(value)] = value
    return {name: list(of.values()) for name, of in values.items() if len(of) > 1}


def _at(sample: Sample, name: str) -> str:
    return printable(shown({**sample.cell.vary, **sample.cell.env}.get(name)))


def _named(sample: Sample, name: str) -> str:
    return f"{printable(name)}={_at(sample, name)}" if name else _at(sample, name)


def _label(metric: str, samples: Sequence[Sample]) -> str:
    unit = next((sample.unit for sample in samples if sample.unit), "")
    return printable(f"{metric}, {unit}" if unit else metric)


def _lines(metric: str, samples: Sequence[Sample], over: str) -> Any:
    """A line for each combination of the other axes, with the intervals as bars."""

    def draw(axes: Any) -> None:
        series: dict[str, list[Sample]] = {}
        others = [name for name in _varying(samples) if name != over]
        for sample in samples:
            series.setdefault(" ".join(_named(sample, name) for name in others), []).append(sample)
        for label, of_series in series.items():
            where = [number_of({**sample.cell.vary, **sample.cell.env}[over]) or 0.0 for sample in of_series]
            points = sorted(zip(where, of_series, strict=True), key=itemgetter(0))
            axes.errorbar(
                [x for x, _ in points], [s.median for _, s in points], yerr=_errors([s for _, s in points]),
                marker="o", capsize=3, label=label,
            )  # fmt: skip
        values = sorted({number_of(v) or 0.0: shown(v) for v in _varying(samples)[over]}.items())
        if values[0][0] > 0:
            axes.set_xscale("log", base=2)
        axes.set_xticks([x for x, _ in values], [text for _, text in values])
        axes.minorticks_off()
        axes.set(xlabel=printable(over), ylabel=_label(metric, samples), ylim=(0, None))
        if 1 < len(series) <= LEGEND_MAX:
            axes.legend()

    return draw


def _bars(metric: str, samples: Sequence[Sample]) -> Any:
    def draw(axes: Any) -> None:
        names = _varying(samples)
        labels = ["\n".join(_at(sample, name) for name in names) for sample in samples]
        axes.bar(range(len(samples)), [s.median for s in samples], yerr=_errors(samples), capsize=3)
        axes.set_xticks(range(len(samples)), labels)
        axes.set(xlabel=printable(", ".join(filter(None, names))), ylabel=_label(metric, samples))

    return draw


def _heat_map(what: str, pairs: dict[tuple[str, str], Sample], down: str, across: str) -> Any:
    def draw(axes: Any) -> None:
        rows, columns = (list(dict.fromkeys(pair[side] for pair in pairs)) for side in (0, 1))
        if set(rows) == set(columns):
            columns = rows
        table = [[pairs[row, column].median if (row, column) in pairs else None for column in columns] for row in rows]
        image = axes.imshow([[float("nan") if value is None else value for value in row] for row in table])
        for y, row in enumerate(table):
            for x, value in enumerate(row):
                if value is not None:
                    axes.text(x, y, f"{value:.4g}", ha="center", va="center", bbox=_BEHIND)
        axes.set_xticks(range(len(columns)), [*map(printable, columns)])
        axes.set_yticks(range(len(rows)), [*map(printable, rows)])
        axes.set(xlabel=printable(across), ylabel=printable(down))
        axes.figure.colorbar(image, label=_label(what, list(pairs.values())))

    return draw


def _errors(samples: Sequence[Sample]) -> Any:
    """The distances from the median to both ends of the interval."""
    ends = [sample.interval or (sample.median, sample.median) for sample in samples]
    return [
        [sample.median - low for sample, (low, _) in zip(samples, ends, strict=True)],
        [high - sample.median for sample, (_, high) in zip(samples, ends, strict=True)],
    ]
