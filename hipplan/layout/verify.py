"""Reads back what HIP reports about a layout. The steps say what is compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import repeat
from typing import NamedTuple, overload

from hipplan import _core
from hipplan._core import word_of
from hipplan.layout.state import State
from hipplan.lowering.rows import rows_of
from hipplan.notebooks import InNotebooks
from hipplan.plain import counted
from hipplan.program.checks import Check
from hipplan.program.facts import read_alone, single_steps
from hipplan.program.memo import Memo
from hipplan.program.program import Program
from hipplan.program.runs import alike, without_contents
from hipplan.program.steps import Step

SHOWN_MAX = 20
"""Differences that print() of Checks names."""


class Checks(Sequence[Check], InNotebooks):
    """Every check of an apply, in the order of the steps.

    Layouts of thousands of mappings are read back and compared natively; the text is made on demand.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        devices: Mapping[str, int],
        readings: _core.Readings,
        by_step: Mapping[int, tuple[Check, ...]],
    ) -> None:
        """steps: those that were read back. devices: as of Program."""
        self._steps, self._devices = steps, devices
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
        for number, step in enumerate(self._steps):
            checks += step.read_back(values, word_of, self._devices)
            checks += self._by_step.get(number, ())
        return (*checks, *self._by_step.get(len(self._steps), ()))

    @cached_property
    def _count(self) -> int:
        """How many there are, without making them: there are as many of each step of a kind, and one more of memory for
        network cards."""
        of_kind: dict[tuple[type[Step], bool], int] = {}
        count = sum(map(len, self._by_step.values()))
        for step, many in alike(self._steps):
            kind = type(step), step.is_for_network
            if kind not in of_kind:
                of_kind[kind] = sum(1 for _ in step.read_back(repeat(0), word_of, self._devices))
            count += many * of_kind[kind]
        return count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Check: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Check, ...]: ...
    def __getitem__(self, index: int | slice) -> Check | tuple[Check, ...]:
        return self._all[index]


class ToRead(NamedTuple):
    """What is read back."""

    program: Program
    steps: Sequence[Step] | None = None
    """Those of its steps that are; None: all."""
    rows: _core.Rows | None = None
    """Their native rows, if they exist already."""


def verify(state: State, wanted: ToRead | None = None) -> Checks:
    """Reads back. Raises HipError if a query fails. wanted: default: all that native code has."""
    program, some_steps, rows = wanted or ToRead(state.lowered)
    if some_steps is None:
        some_steps, rows = program.steps, rows or native_rows(program, state.lowered)
    elif rows is None:
        rows = _core.Rows(rows_of(without_contents(some_steps), state.lowered.slots, state.lowered.owners))
    readings = state.snapshot.read_back(rows, list(program.devices.values()))
    by_step = {number: _checks_of(step, state) for number, step in read_alone(some_steps)}
    if program.reads_advice:
        by_step[len(some_steps)] = tuple(_range_checks([step for _, step in single_steps(some_steps)], state))
    return Checks(some_steps, program.devices, readings, by_step)


@contextmanager
def _naming(step: Step) -> Iterator[None]:
    """Names the object of a step in a HipError: the driver knows only an address."""
    try:
        yield
    except _core.HipError as error:
        subject = error.subject
        error.subject = f"'{step.name}', {subject}"
        error.args = (str(error).replace(subject, error.subject),)
        raise


def _checks_of(step: Step, state: State) -> tuple[Check, ...]:
    with _naming(step):
        return tuple(step.checks(state))


def _range_checks(single: Sequence[Step], state: State) -> Iterator[Check]:
    """Comparisons of parts of objects, with all steps about each."""
    about: dict[str, list[Step]] = {}
    for step in single:
        if not step.makes:
            about.setdefault(step.name, []).append(step)
    for step in single:
        if step.makes and step.name in about:
            with _naming(step):
                checks = tuple(step.range_checks(about[step.name], state))
            yield from checks


_rows: Memo[Program, _core.Rows] = Memo()


def native_rows(program: Program, whole: Program | None = None) -> _core.Rows:
    """The native rows of a program's steps, without its contents; cached, because a program may be applied and read
    back many times. whole: the program of which it has only some steps."""
    owner = whole or program
    return _rows.value(program, lambda: _core.Rows(rows_of(program.making, owner.slots, owner.owners)))
