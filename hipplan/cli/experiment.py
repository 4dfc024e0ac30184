"""hipplan experiment: run an experiment on cells of a plan; resume, report, compare and pack its results.

FILE says which plan, which of its variables vary, what runs in each cell and how often (docs/experiments.md). Each
repetition has a process of its own, and appends one line to the results: metrics, times, result and provenance. A
repetition that fails is a result, too. resume runs what has no line yet.
report shows medians with 95 % intervals, of FILE's results or of a file of results; compare A B says what differs in
the provenance of two results, and how far each metric has moved. pack copies all that FILE needs to run again, with its
results, into a folder.
Exit code: 0 done, 2 an invalid file or plan, or results that cannot be used, 3 with --dry-run: the machine cannot hold
a plan, 4 a repetition failed, 6 compare: a metric has moved, or is missing, 129, 130 and 143 interrupted.

Examples:
  hipplan experiment run stream.experiment.yaml --dry-run --machine mi300x-8
  hipplan experiment run stream.experiment.yaml
  hipplan experiment resume stream.experiment.yaml
  hipplan experiment report stream.experiment.yaml --plots plots --format csv
  hipplan experiment pack stream.experiment.yaml -o artifact
  hipplan experiment compare before.jsonl after.jsonl --tolerance 0.1
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from hipplan.cli.arguments import (
    Parser,
    WrongUsage,
    format_option,
    integer,
    machine_option,
    not_empty,
    not_over,
    print_notice,
    quiet_option,
    runtime_option,
)
from hipplan.errors import ExitCode, Problem, printable
from hipplan.files import strict_json
from hipplan.plain import counted, shown
from hipplan.show.colours import show

if TYPE_CHECKING:
    from hipplan.experiment.document import Document
    from hipplan.experiment.results import ResultLine

ACTIONS = {"run": 1, "resume": 1, "report": 1, "compare": 2, "pack": 1}
"""Action -> how many files it takes."""
_RUNS = ("run", "resume")
_OF_ACTIONS = {
    ("run", "resume"): ("dry_run", "anonymous", "only", "repeat"),
    ("run", "resume", "pack"): ("output", "machine", "runtime", "quiet"),
    ("report",): ("plots",),
    ("compare",): ("tolerance",),
}
"""Actions -> the options that no other has."""


def declare(parser: Parser) -> None:
    parser.add_argument("action", choices=tuple(ACTIONS), help="what to do")
    about = "the experiment; for report and compare also a file of results"
    parser.add_argument("files", metavar="FILE", nargs="+", type=not_empty, help=about)
    about = "run nothing: list the cells, and check the plan of each, with --machine against that machine"
    parser.add_argument("--dry-run", action="store_true", help=about)
    about = (
        "the file of results (default: beside FILE, named .results.jsonl); "
        "pack: the new folder (default: beside FILE, named NAME-pack)"
    )
    parser.add_argument("-o", "--output", metavar="RESULTS", type=not_empty, help=about)
    about = "leave what names the host, its user, paths, serial numbers and the commit out of the results"
    parser.add_argument("--anonymous", action="store_true", help=about)
    about = "run only the cells that have one of these values on an axis of FILE; again for another axis"
    parser.add_argument("--only", metavar="AXIS=VALUES", action="append", type=not_empty, help=about)
    parser.add_argument(
        "--repeat", metavar="N", type=integer, help="repetitions of each cell, in place of those of FILE"
    )
    machine_option(parser)
    runtime_option(parser)
    quiet_option(parser)
    about = "report: also write plots as SVG and PNG into this folder (needs matplotlib)"
    parser.add_argument("--plots", metavar="DIR", type=not_empty, help=about)
    about = "compare: how far the ratio of two medians may be from 1 (default: 0.05)"
    parser.add_argument("--tolerance", metavar="SHARE", type=share, help=about)
    format_option(parser, "csv", "markdown")


def share(text: str) -> float:
    """A share of 1, such as 0.05."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"not a share such as 0.05: {text[:40]!r}")
    return value


def run(given: Namespace) -> int:
    from hipplan.experiment.document import read

    _check(given)
    if given.action not in _RUNS:
        from hipplan.cli import experiment_report

        return {
            "report": experiment_report.report,
            "compare": experiment_report.compare,
            "pack": experiment_report.pack,
        }[given.action](given)
    document = _narrowed(read(given.files[0]), given)
    return _list(document, given) if given.dry_run else _run(document, given)


def _narrowed(document: Document, given: Namespace) -> Document:
    """The experiment with --only and --repeat. Raises WrongUsage."""
    from hipplan.experiment.model import REPEAT_MAX

    wanted = [text.partition("=") for text in given.only or ()]
    for name, equals, _ in wanted:
        if not equals:
            raise WrongUsage(f"--only: write AXIS=VALUE, or several values with commas between, not {name[:200]!r}")
    if given.repeat is not None and not 1 <= given.repeat <= REPEAT_MAX:
        raise WrongUsage(f"--repeat: from 1 to {REPEAT_MAX}")
    try:
        return document.narrowed([(name, values) for name, _, values in wanted], given.repeat)
    except Problem as problem:
        raise WrongUsage(f"--only: {problem.summary}; {problem.hint or problem.why}") from None


def _check(given: Namespace) -> None:
    """Raises WrongUsage: options of another action, another number of files."""
    action = given.action
    if len(given.files) != (count := ACTIONS[action]):
        raise WrongUsage(f"{action} takes {count} {'file' if count == 1 else 'files'}, not {len(given.files)}")
    for actions, options in _OF_ACTIONS.items():
        wrong = [option for option in options if getattr(given, option) not in (None, False)]
        if action not in actions and wrong:
            raise WrongUsage(f"--{wrong[0].replace('_', '-')} is for {', '.join(actions)}, not for {action}")
    if given.format in ("csv", "markdown") and action != "report":
        raise WrongUsage(f"--format {given.format} is for report")
    if given.tolerance is None:
        given.tolerance = 0.05


def _list(document: Document, given: Namespace) -> int:
    """--dry-run."""
    from hipplan.experiment import checks
    from hipplan.experiment.runner import Runner, Settings
    from hipplan.machines.profiles import load_machine

    profile = load_machine(given.machine) if given.machine else None
    checked = list(checks.check_cells(document, profile))
    code, diagnostics = checks.merged(checked)
    missing = Runner(document, Settings()).missing()
    if given.format == "json":
        rows = [
            {"vary": dict(item.cell.vary), "env": dict(item.cell.env), "exit_code": item.exit_code, "plan": item.digest}
            for item in checked
        ]
        said = [diagnostic.to_json() for diagnostic in [*diagnostics, *missing]]
        print(strict_json.document(None, event="cells", cells=rows, diagnostics=said))
    else:
        show([*diagnostics, *missing])
        words = {ExitCode.OK: "good", ExitCode.INVALID: "invalid plan", ExitCode.MACHINE: "the machine cannot hold it"}
        for item in checked:
            print(printable(f"{item.cell}: {words[item.exit_code]}"))
        repeat = document.experiment.repeat
        print(f"cells: {len(checked)}, repetitions of each: {repeat}, in all: {len(checked) * repeat}")
    return ExitCode.INVALID if missing else code


def _run(document: Document, given: Namespace) -> int:
    from hipplan import _core  # noqa: F401  # what is missing is said now, and not by each repetition
    from hipplan.cli.signals import at_end
    from hipplan.experiment.results import opened
    from hipplan.experiment.runner import Runner, Settings, default_results

    output = given.output or default_results(given.files[0])
    not_over([("--output", output)], given.files[0], document.plan, given.machine)
    if given.machine and given.runtime not in (None, "sim"):
        raise WrongUsage("--machine is for the simulator: leave --runtime out")
    machine = os.path.abspath(given.machine) if given.machine and os.path.exists(given.machine) else given.machine  # noqa: PTH100, PTH110
    runner = Runner(document, Settings(given.runtime, machine, given.anonymous))
    digests = runner.check()
    progress = _Progress(given)

    def kept() -> str:
        if (elsewhere := results.kept_elsewhere()) is not None:
            return f"{output} was removed, renamed or replaced; {elsewhere}"
        count = counted(before + progress.count, "repetition")
        return f"{output} has {count}; `hipplan experiment resume` with the same file and options runs the rest"

    with opened(output, resume=given.action == "resume") as results:
        before = len(results.lines)
        if before and not given.quiet:
            print_notice(f"{output} has {counted(before, 'repetition')} already")
        with at_end(lambda _: print_notice(kept())), at_end(lambda _: runner.kill()):
            failed = runner.run(results, digests, progress.show)
    if not given.quiet and given.format == "text":
        print(printable(f"{output}: {counted(progress.count, 'repetition')}, {failed} failed"))
    return ExitCode.ROLLED_BACK if failed else ExitCode.OK


class _Progress:
    """Prints a line for each repetition, with the time that is left; quiet: of those that failed, as errors."""

    def __init__(self, given: Namespace) -> None:
        self._format, self._quiet = given.format, given.quiet
        self._seconds = 0.0
        self.count = 0

    def show(self, line: ResultLine, number: int, total: int) -> None:
        self.count += 1
        self._seconds += line["seconds"]
        if self._format == "json":
            print(strict_json.dumps(line), flush=True)
        elif not self._quiet or line["error"] is not None:
            values = {**line["cell"]["vary"], **line["cell"]["env"]}.items()
            left = self._seconds / number * (total - number)
            after = f"; about {_duration(left)} left" if number < total else ""
            cell = " ".join([*(f"{name}={shown(value)}" for name, value in values), f"#{line['repetition'] + 1}"])
            stream = sys.stderr if self._quiet else sys.stdout
            print(printable(f"{number}/{total} {cell}: {_outcome(line)}{after}"), file=stream, flush=True)


def _outcome(line: ResultLine) -> str:
    if line["error"] is not None:
        return f"failed: {line['error']['summary']}" + (f": {why}" if (why := line["error"].get("why")) else "")
    given = [f"{name} {value:.6g} {line['units'].get(name, '')}".rstrip() for name, value in line["metrics"].items()]
    return ", ".join(given[:4]) + (f" and {len(given) - 4} more" if len(given) > 4 else "") or "done"


def _duration(seconds: float) -> str:
    """Writes a duration for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
