"""Reads back what HIP reports about a layout. The steps say what is compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import overload

from hipplan import _core
from hipplan._core import word_of
from hipplan.layout.state import State
from hipplan.lowering.rows import rows_of
from hipplan.notebooks import InNotebooks
from hipplan.plain import counted
from hipplan.program import steps
from hipplan.program.checks import Check
from hipplan.program.facts import read_alone
from hipplan.program.memo import Memo
from hipplan.program.program import Program

SHOWN_MAX = 20
"""Differences that print() of Checks names."""


class Checks(Sequence[Check], InNotebooks):
    """Every check of an apply, in the order of the steps.

    Layouts of thousands of mappings are read back and compared natively; the text is made on demand.
    """

    def __init__(self, program: Program, readings: _core.Readings, by_step: Mapping[int, tuple[Check, ...]]) -> None:
        self._program = program
        self._readings = readings
        self._by_step = by_step
        """Checks of single steps by the step's number; the managed ranges come last."""

    def mismatches(self) -> list[Check]:
        if self._readings.as_desired and all(check.ok for checks in self._by_step.values() for check in checks):
            return []
        return [check for check in self if not check.ok]

    def __repr__(self) -> str:
        return f"<hipplan.Checks: {self._summary(self.mismatches())}>"

    def __str__(self) -> str:
        differ = self.mismatches()
        more = [f"  and {len(differ) - SHOWN_MAX} more"] if len(differ) > SHOWN_MAX else []
        return "\n".join([self._summary(differ), *(f"  {check}" for check in differ[:SHOWN_MAX]), *more])

    def _summary(self, differ: list[Check]) -> str:
        checks = counted(len(self), "check")
        is_single = len(differ) == 1
        return (
            f"{len(differ)} of {checks} differ{'s' * is_single} from the plan"
            if differ
            else f"{checks}, all match the plan"
        )

    @cached_property
    def _all(self) -> tuple[Check, ...]:
        values = iter(self._readings.values)
        checks: list[Check] = []
        for number, step in enumerate(self._program.steps):
            checks += step.read_back(values, word_of, self._program.devices)
            checks += self._by_step.get(number, ())
        return (*checks, *self._by_step.get(len(self._program.steps), ()))

    def __len__(self) -> int:
        return len(self._all)

    @overload
    def __getitem__(self, index: int) -> Check: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Check, ...]: ...
    def __getitem__(self, index: int | slice) -> Check | tuple[Check, ...]:
        return self._all[index]


def verify(state: State, program: Program | None = None, rows: _core.Rows | None = None) -> Checks:
    """Reads everything back. Raises HipError if a query fails.

    program: whose steps are read back; default: all that native code has. rows: its native rows, if they exist already.
    """
    program = program or state.lowered
    rows = rows or native_rows(program, state.lowered)
    readings = state.snapshot.read_back(rows, list(program.devices.values()))
    by_step = {number: tuple(step.checks(state)) for number, step in read_alone(program.steps)}
    if program.reads_advice:
        by_step[len(program.steps)] = tuple(_range_checks([step for _, step in program.single], state))
    return Checks(program, readings, by_step)


def _range_checks(single: Sequence[steps.Step], state: State) -> Iterator[Check]:
    """Comparisons of parts of objects, with all steps about each."""
    about: dict[str, list[steps.Step]] = {}
    for step in single:
        if not step.makes:
            about.setdefault(step.name, []).append(step)
    for step in single:
        if step.makes and step.name in about:
            yield from step.range_checks(about[step.name], state)


_rows: Memo[Program, _core.Rows] = Memo()


def native_rows(program: Program, whole: Program | None = None) -> _core.Rows:
    """The native rows of a program's steps, without its contents; cached, because a program may be applied and read
    back many times. whole: the program of which it has only some steps."""
    owner = whole or program
    return _rows.value(program, lambda: _core.Rows(rows_of(program.making, owner.slots, owner.owners)))
