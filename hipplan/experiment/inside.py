"""A repetition that measures in its own process: it applies the plan, and calls a function with the layout."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from hipplan.api import apply
from hipplan.errors import ExitCode, Problem, suggest_or_list
from hipplan.experiment.job import Job, Report
from hipplan.experiment.metrics import collected, numbers, output_size
from hipplan.experiment.provenance import note
from hipplan.experiment.targets import file_of
from hipplan.language.loader import load
from hipplan.layout.assembly import target
from hipplan.layout.layout import Layout
from hipplan.measure.figures import Figure
from hipplan.measure.measured import REPEATS, alone, live
from hipplan.measure.plain import beside


def run(job: Job, report: Report) -> int:
    """Fills the report. Raises what apply() and the function raise."""
    function = find(job.inside, Path(job.folder)) if job.inside else None
    plan = load(job.plan, job.variables)
    figures: list[Figure] = []
    if job.measure is not None:
        where = target(job.runtime, job.machine)
        chosen = where.chosen
        figures += alone(plan, chosen, where.profile, job.measure, REPEATS, _pass)
    report.times["start"] = time.monotonic() - job.began
    began = time.perf_counter()
    with apply(plan, runtime=job.runtime, machine=job.machine, locked=job.locked, answer=False) as layout:
        report.times["apply"] = time.perf_counter() - began
        note(report, job, plan.digest, layout.program, layout.runtime, len(layout.checks))
        if function is not None:
            _call(function, layout, job, report)
        if job.measure is not None:
            began = time.perf_counter()
            figures += live(layout, chosen, job.measure, job.objects, REPEATS, _pass)
            report.times["work"] = time.perf_counter() - began
    if job.measure is not None:
        figures = beside(figures, chosen, REPEATS, _pass)
    for figure in figures:
        report.metrics[figure.key], report.units[figure.key] = figure.value, figure.unit
        if figure.plain is not None:
            report.metrics[f"plain {figure.key}"], report.units[f"plain {figure.key}"] = figure.plain, figure.unit
    return ExitCode.OK


def _pass(_: str) -> None:
    """Nobody looks at the progress of a repetition."""


def _call(function: Callable[[Layout], Any], layout: Layout, job: Job, report: Report) -> None:
    for _ in range(job.warmup):
        function(layout)
    before = output_size()
    began = time.perf_counter()
    returned = function(layout)
    report.times["work"] = time.perf_counter() - began
    report.metrics = collected(job.metrics, before, numbers(returned))


def find(name: str, folder: Path) -> Callable[[Layout], Any]:
    """A function by module:function. The module is a file of the folder, or installed. Raises Problem (HP463)."""
    module_name, _, function_name = name.partition(":")
    module = _module(module_name, folder)
    function = getattr(module, function_name, None)
    if not callable(function):
        known = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        hint = suggest_or_list(function_name, known)
        raise Problem("HP463", f"the module {module_name} has no function '{function_name}'", hint=hint)
    return function  # type: ignore[no-any-return]


def _module(name: str, folder: Path) -> ModuleType:
    """A file of the folder comes first, whatever else has its name; what it imports may be beside it."""
    path = file_of(name, folder)
    sys.path.append(str(folder))
    try:
        if path is None:
            return importlib.import_module(name)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        raise Problem("HP463", f"the module '{name}' cannot be imported", why=str(error)) from None
    return module
