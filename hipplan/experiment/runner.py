"""Runs an experiment: each repetition in a process of its own, one line of results for each."""

from __future__ import annotations

import contextlib
import datetime
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hipplan.errors import Diagnostic, PlanError, Problem
from hipplan.experiment import checks
from hipplan.experiment.document import Document
from hipplan.experiment.grid import Cell, Repetition, axes, turns
from hipplan.experiment.job import Job
from hipplan.experiment.process import CellProcess, Ended, failure
from hipplan.experiment.results import FAILED, OK, ResultLine, Results, cell_of
from hipplan.experiment.targets import check_function, command_path
from hipplan.holders import names
from hipplan.machines.machine import Machine
from hipplan.machines.provenance.anonymous import names_somebody, without_names
from hipplan.plain import shown

_SHOWN = 2000
"""Characters of what a failed repetition wrote to standard error that its line has: the last ones."""


@dataclass(frozen=True)
class Settings:
    """How the repetitions of an experiment run."""

    runtime: str | None = None
    machine: str | None = None
    anonymous: bool = False


class Runner:
    """One run of an experiment."""

    def __init__(self, document: Document, settings: Settings) -> None:
        self.document = document
        self._settings = settings
        self._process: CellProcess | None = None

    def check(self, profile: Machine | None = None) -> dict[str, str]:
        """Checks all that can be checked before the first repetition. Returns the digest of each cell's plan, by the
        cell's key.

        Raises PlanError: the plan of a cell has an error, what is to run is missing (HP463).
        """
        checked = list(checks.check_cells(self.document))
        _, diagnostics = checks.merged(checked)
        errors = [diagnostic for diagnostic in diagnostics if diagnostic.severity == "error"]
        errors += [*self.missing(), *self._names()]
        if errors:
            raise PlanError(errors)
        return {item.cell.key: item.digest for item in checked}

    def missing(self) -> list[Diagnostic]:
        """HP463, if there is no such function or command."""
        experiment, folder = self.document.experiment, self.document.folder
        try:
            if experiment.inside is not None:
                check_function(experiment.inside, folder)
            if experiment.run is not None:
                command_path(experiment.run[0], folder)
        except Problem as problem:
            key = "inside" if experiment.run is None else "run"
            return [problem.diagnostic(self.document.span(key))]
        return []

    def _names(self) -> Iterator[Diagnostic]:
        """HP460, if values that the results must have name this host or its user, although they are anonymous."""
        for name, values in axes(self.document.experiment).items() if self._settings.anonymous else ():
            if named := next((value for value in values if names_somebody(str(value))), None):
                key = "vary" if name in self.document.experiment.vary else "env"
                hint = "write it without, or leave --anonymous out"
                problem = Problem("HP460", f"'{name}' is {shown(named)}: that names this host or its user", hint=hint)
                yield problem.diagnostic(self.document.span(key, name))

    def run(self, results: Results, digests: Mapping[str, str], on_line: Callable[[ResultLine, int, int], None]) -> int:
        """Runs all repetitions that the results do not have. Returns how many failed.

        digests: of check(). on_line: called with each new line, its number from 1, and how many there are to do.
        Raises PlanError: the results are of something else (HP461), or cannot be written (HP413).
        """
        self._require_same(results, digests)
        seed = self._seed(results.lines)
        done = {(cell_of(line).key, line["repetition"]) for line in results.lines}
        order = list(enumerate(turns(self.document.experiment, seed)))
        left = [(position, turn) for position, turn in order if (turn.cell.key, turn.repetition) not in done]
        failed = 0
        for number, (position, turn) in enumerate(left, 1):
            line = results.append(self._line(turn, {"seed": seed, "position": position}))
            failed += line["result"] != OK
            on_line(line, number, len(left))
        return failed

    def kill(self) -> None:
        """Kills the repetition that runs."""
        if self._process is not None:
            self._process.kill()

    def _require_same(self, results: Results, digests: Mapping[str, str]) -> None:
        for line in results.lines:
            if line["experiment"].get("digest") != self.document.digest:
                why = "what they measured is not what the file says now"
                raise _changed(results, why)
            digest = line["plan"].get("digest")  # one that failed early has none
            if digest is not None and digests.get(cell_of(line).key, digest) != digest:
                raise _changed(results, f"the plan has changed since: {self.document.plan}")

    def _seed(self, lines: Sequence[ResultLine]) -> int:
        """Returns the seed of the file, of the results, or a new one."""
        if self.document.experiment.seed is not None:
            return self.document.experiment.seed
        known = [line["experiment"].get("seed") for line in lines]
        return known[0] if known and isinstance(known[0], int) else random.SystemRandom().randrange(2**31)

    def _line(self, turn: Repetition, place: Mapping[str, int]) -> ResultLine:
        """Runs one repetition."""
        experiment = self.document.experiment
        started = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")
        ended = self._run(turn.cell)
        report = ended.report
        error = report.get("error") or _failure(ended)
        code = report.get("command_code")
        units = {name: metric.unit for name, metric in experiment.metrics.items() if metric.unit}
        return {
            "experiment": {"name": self._anonymous(self.document.name), "digest": self.document.digest, **place},
            "cell": {"vary": dict(turn.cell.vary), "env": dict(turn.cell.env)},
            "repetition": turn.repetition,
            "started": started,
            "seconds": round(ended.seconds, 6),
            "times": report.get("times", {}),
            "result": OK if error is None else FAILED,
            "exit_code": ended.exit_code if code is None else code,
            "error": self._shown(error),
            "stderr": ended.errors[-_SHOWN:] if error is not None and not self._settings.anonymous else "",
            "metrics": report.get("metrics", {}) if error is None else {},
            "units": {**report.get("units", {}), **units},
            "plan": report.get("plan", {}),
            "provenance": report.get("provenance", {}),
        }

    def _shown(self, error: dict[str, Any] | None) -> dict[str, Any] | None:
        """Anonymous, an error has its code and summary alone: the rest may be output of the command."""
        if error is None or not self._settings.anonymous:
            return error
        return {"code": error["code"], "summary": self._anonymous(error["summary"])}

    def _anonymous(self, text: str) -> str:
        return without_names(text) if self._settings.anonymous else text

    def _run(self, cell: Cell) -> Ended:
        document, experiment = self.document, self.document.experiment
        folder = document.folder.resolve()
        holder = f"experiment-{os.getpid()}" if experiment.run is not None else ""
        job = Job(
            plan=str(folder / experiment.plan),
            variables=document.variables(cell),
            locked=None if experiment.locked is None else str(folder / experiment.locked),
            runtime=self._settings.runtime,
            machine=self._settings.machine,
            folder=str(folder),
            warmup=experiment.warmup,
            inside=experiment.inside,
            measure=None if experiment.measure is None else [*experiment.measure],
            objects=experiment.objects,
            run=experiment.run,
            metrics={name: metric.match for name, metric in experiment.metrics.items()},
            holder=holder,
            anonymous=self._settings.anonymous,
            began=time.monotonic(),
        )
        self._process = CellProcess(vars(job), document.environment(cell), folder)
        try:
            return self._process.wait(experiment.timeout)
        finally:
            self._process = None
            if holder:
                with contextlib.suppress(Exception):  # its files are replaced by the next holder of this name
                    names.remove_leftovers(holder)


def _failure(ended: Ended) -> dict[str, Any] | None:
    why = failure(ended)
    if not why:
        return None
    diagnostic = Diagnostic("HP462", "the repetition failed", why=why)
    return {**diagnostic.to_json(), "text": str(diagnostic)}


def _changed(results: Results, why: str) -> PlanError:
    hint = "-o names another file for new results"
    return PlanError(Diagnostic("HP461", f"these results cannot be resumed: {results.path}", why=why, hint=hint))


def default_results(path: str) -> str:
    """Where the results of an experiment file are: beside it."""
    return str(Path(path).parent / f"{Path(path).name.partition('.')[0]}.results.jsonl")
