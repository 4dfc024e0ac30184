"""Checks the plan of each cell without a GPU: its errors, what no holder can hold, and what a machine cannot hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from hipplan.errors import Diagnostic, ExitCode, MachineError, PlanError
from hipplan.experiment.document import Document
from hipplan.experiment.grid import Cell
from hipplan.language.findings import in_order
from hipplan.language.loader import LoadedPlan, examine
from hipplan.lowering.compiler import compile as compile_plan
from hipplan.lowering.lowered import require_attachable
from hipplan.machines.machine import Machine
from hipplan.program import held
from hipplan.program.lock import Locked, sizes_of


@dataclass(frozen=True)
class Checked:
    """What is known of a cell before it runs."""

    cell: Cell
    exit_code: ExitCode
    """0, 2: its plan has errors, or 3: the machine cannot hold it."""
    diagnostics: Sequence[Diagnostic]
    """Errors and warnings."""
    digest: str
    """The plan's; empty if it cannot be loaded."""


def check_cells(document: Document, profile: Machine | None = None) -> Iterator[Checked]:
    """Each cell in the order written. profile: the machine that the plans are compiled for."""
    for cell in document.cells:
        try:
            plan, errors = examine(document.plan, document.variables(cell))
        except PlanError as error:
            yield Checked(cell, ExitCode.INVALID, _placed(error.diagnostics, document), "")
            continue
        if document.experiment.run is not None:
            errors += held.unholdable_objects(plan)
        if errors:
            yield Checked(cell, ExitCode.INVALID, _placed([*errors, *plan.warnings], document), "")
            continue
        code, diagnostics = _on_machine(document, plan, profile)
        yield Checked(cell, code, diagnostics, plan.digest)


def merged(checked: Iterable[Checked]) -> tuple[ExitCode, list[Diagnostic]]:
    """The worst exit code, and each diagnostic once, with the first cell that has it."""
    worst, diagnostics = ExitCode.OK, {}
    for item in checked:
        worst = item.exit_code if worst in (ExitCode.OK, ExitCode.MACHINE) and item.exit_code else worst
        for diagnostic in item.diagnostics:
            key = diagnostic.code, str(diagnostic.span), diagnostic.summary
            if key not in diagnostics:
                notes = (*diagnostic.notes, f"cell: {item.cell}") if item.cell.vary else diagnostic.notes
                diagnostics[key] = replace(diagnostic, notes=notes)
    return worst, in_order(diagnostics.values())


def _on_machine(document: Document, plan: LoadedPlan, profile: Machine | None) -> tuple[ExitCode, Sequence[Diagnostic]]:
    if profile is None:
        return ExitCode.OK, plan.warnings
    try:
        locked = document.experiment.locked
        lock = None if locked is None else Locked(document.folder / locked)
        program = compile_plan(plan, profile, sizes=sizes_of(lock))
        if lock is not None:
            lock.placed(program, profile)
        if document.experiment.run is not None:
            require_attachable(held.holdable(program))
    except (MachineError, PlanError) as error:
        return error.exit_code, error.diagnostics
    return ExitCode.OK, program.warnings


def _placed(diagnostics: Iterable[Diagnostic], document: Document) -> list[Diagnostic]:
    """The diagnostics with the place in the experiment of variables that the plan does not have."""
    return [
        _of_variable(diagnostic, document) if diagnostic.code == "HP210" else diagnostic for diagnostic in diagnostics
    ]


def _of_variable(diagnostic: Diagnostic, document: Document) -> Diagnostic:
    for key, names in (("vary", document.experiment.vary), ("vars", document.experiment.vars)):
        for name in names:
            if diagnostic.summary.endswith(f"'{name}'"):
                return replace(diagnostic, span=document.span(key, name, key=True))
    return diagnostic
