"""`hipplan experiment report`, `compare` and `pack`."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from hipplan.cli.arguments import WrongUsage, print_document, print_notice
from hipplan.cli.experiments import is_experiment
from hipplan.errors import ExitCode, printable
from hipplan.experiment import results
from hipplan.experiment.comparison import compare as compare_results
from hipplan.experiment.document import read
from hipplan.experiment.runner import default_results
from hipplan.experiment.summary import failures_of, samples_of, without_metrics
from hipplan.files import strict_json

if TYPE_CHECKING:
    from hipplan.experiment.comparison import Comparison
    from hipplan.experiment.results import ResultLine

_INSTALL = "install it: pip install matplotlib numpy"


def results_of(file: str) -> tuple[str, list[ResultLine]]:
    """The path and the lines of a file of results, or of those of an experiment. Raises PlanError."""
    if is_experiment(file):
        read(file)
        file = default_results(file)
    lines = results.read(file)
    if not lines:
        raise results.not_results("it has no whole line", file)
    return file, lines


def report(given: Namespace) -> int:
    file, lines = results_of(given.files[0])
    samples, failures, silent = samples_of(lines), failures_of(lines), without_metrics(lines)
    written = []
    if given.plots is not None:
        from hipplan.experiment.plots import plots

        name = str(lines[0]["experiment"].get("name") or Path(file).name.partition(".")[0])
        try:
            written = plots(samples, name, Path(given.plots))
        except ImportError:
            raise WrongUsage(f"--plots needs matplotlib; {_INSTALL}") from None
        if not written:
            why = "each metric is of one cell, and a plot compares cells" if samples else "no repetition gave a metric"
            print_notice(f"--plots: there is nothing to plot: {why}")
    from hipplan.experiment import tables

    if given.format == "json":
        failed = [{**asdict(item), "cell": strict_json.loads(item.cell.key)} for item in failures]
        rows, cells = tables.rows(samples), [strict_json.loads(cell.key) for cell in silent]
        print(strict_json.document(event="report", rows=rows, failures=failed, without_metrics=cells, plots=written))
    elif given.format == "csv":
        print_document(tables.as_csv(samples))
    elif given.format == "markdown":
        lists = tables.failures_as_markdown(failures) + tables.silent_as_markdown(silent)
        print_document(tables.as_markdown(samples) + lists)
    else:
        from hipplan.show.tables import fitted_table

        print(printable(f"{file}: {_counts(lines)}"))
        if samples:
            print(fitted_table(*tables.as_text(samples)), end="")
        for failure in failures:
            print(printable(f"failed: {tables.failure_as_text(failure)}"))
        for cell in silent:
            print(printable(f"no metric: {cell}"))
        for path in written:
            print(printable(f"written: {path}"))
    return ExitCode.OK


def _counts(lines: list[ResultLine]) -> str:
    failed = sum(line["result"] != "ok" for line in lines)
    runtimes = {(line["provenance"].get("runtime") or {}).get("kind", "unknown") for line in lines}
    return f"repetitions: {len(lines)}, failed: {failed}, runtime: {', '.join(sorted(map(str, runtimes)))}"


def compare(given: Namespace) -> int:
    (_, a), (_, b) = map(results_of, given.files)
    try:
        comparison = compare_results(a, b)
    except ImportError:
        raise WrongUsage(f"compare needs NumPy; {_INSTALL}") from None
    moved = [item for item in comparison.metrics if item.moved(given.tolerance)]
    if given.format == "json":
        rows = [{**asdict(item), "moved": item in moved} for item in comparison.metrics]
        differences = [{"key": key, "a": left, "b": right} for key, left, right in comparison.provenance]
        print(
            strict_json.document(
                event="compare",
                tolerance=given.tolerance,
                provenance=differences,
                metrics=rows,
                only_a=comparison.only_a,
                only_b=comparison.only_b,
            )
        )
    else:
        _print(comparison, given.tolerance, len(moved))
    return ExitCode.CHANGES if moved or comparison.only_a or comparison.only_b else ExitCode.OK


def _print(comparison: Comparison, tolerance: float, moved: int) -> None:
    from hipplan.show.tables import fitted_table

    print("provenance: " + ("what differs" if comparison.provenance else "nothing differs"))
    for key, left, right in comparison.provenance:
        print(printable(f"  {key}: {left} -> {right}"))
    rows = [
        [
            item.cell,
            item.metric,
            f"{item.a:.5g} {item.unit}".rstrip(),
            f"{item.b:.5g} {item.unit}".rstrip(),
            "-" if item.ratio is None else f"{item.ratio:.3f}",
            "" if item.interval is None else f"{item.interval[0]:.3f} to {item.interval[1]:.3f}",
            "moved" if item.moved(tolerance) else "",
        ]
        for item in comparison.metrics
    ]
    if rows:
        print(fitted_table(["cell", "metric", "A", "B", "B / A", "95 % interval", ""], rows), end="")
    for side, names in (("A", comparison.only_a), ("B", comparison.only_b)):
        for name in names:
            print(printable(f"only in {side}: {name}"))
    print(f"metrics: {len(rows)}, moved by more than {tolerance:g}: {moved}")


def pack(given: Namespace) -> int:
    from hipplan.cli.measured import machine_of
    from hipplan.experiment.pack import pack as pack_experiment

    document = read(given.files[0])
    file, _ = results_of(given.files[0])
    folder = Path(given.output or document.folder / f"{document.name}-pack")
    packed = pack_experiment(document, file, machine_of(given), folder)
    if given.format == "json":
        print(strict_json.document(event="pack", folder=str(folder), files=packed.files, left_out=packed.left_out))
    elif not given.quiet:
        print(printable(f"{folder}: {len(packed.files)} files; its README.md says how to run it again"))
        for reason in packed.left_out:
            print(printable(f"not packed: {reason}"))
    return ExitCode.OK
