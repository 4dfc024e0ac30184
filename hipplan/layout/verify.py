"""Reads back what HIP reports about a layout, and compares it with the steps.

One function for each kind of step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import overload

from hipplan import _core
from hipplan._core import word_of
from hipplan.kinds.live import CreateManagedBuffer
from hipplan.layout.state import State
from hipplan.lowering.rows import rows_of
from hipplan.notebooks import InNotebooks
from hipplan.plain import counted
from hipplan.program import steps
from hipplan.program.advice import NOWHERE, AdvisedPart, pieces
from hipplan.program.checks import Check
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
            match step:
                case steps.CreateAllocation():
                    checks += _allocation(step, values)
                case steps.Map():
                    checks += _mapping(step, values)
                case steps.SetAccess():
                    checks += _access(step, self._program, values)
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
    single = program.single
    by_step = {number: tuple(step.checks(state)) for number, step in single}
    if program.ranges_told:
        by_step[len(program.steps)] = tuple(_managed_checks([step for _, step in single], state))
    return Checks(program, readings, by_step)


_rows: Memo[Program, _core.Rows] = Memo()


def native_rows(program: Program, whole: Program | None = None) -> _core.Rows:
    """The native rows of a program's steps, without its contents; cached, because a program may be applied and read
    back many times. whole: the program of which it has only some steps."""
    owner = whole or program
    return _rows.value(program, lambda: _core.Rows(rows_of(program.making, owner.slots, owner.owners)))


def _allocation(step: steps.CreateAllocation, values: Iterator[int]) -> Iterator[Check]:
    location, device, kind, handle = islice(values, 4)
    current = _location(word_of("location", location), device)
    if step.location == "host" and word_of("location", location) == "host_numa":
        current = step.location  # CUDA's memory of the host is always on some node
    yield Check(step.name, "location", _location(step.location, step.device), current)
    yield Check(step.name, "type", step.type, word_of("type", kind))
    yield Check(step.name, "shareable", step.shareable, word_of("shareable", handle))
    if step.rdma:
        yield Check(step.name, "rdma", "yes", "yes" if next(values) else "no")


def _mapping(step: steps.Map, values: Iterator[int]) -> Iterator[Check]:
    address, base, size = islice(values, 3)
    yield Check(step.name, "mapped piece", f"{step.size} at {address:#x}", f"{size} at {base:#x}")


def _access(step: steps.SetAccess, program: Program, values: Iterator[int]) -> Iterator[Check]:
    """The access of every device of the plan; one that is not named must have none. HIP does not report the host's."""
    desired = dict(step.rights)
    for (name, ordinal), current in zip(program.devices.items(), values):  # noqa: B905
        yield Check(step.name, f"access of {name}", desired.get(ordinal, "none"), word_of("access", current))


def _location(kind: str, ordinal: int) -> str:
    return {"device": f"device {ordinal}", "host_numa": f"NUMA node {ordinal}"}.get(kind, kind)


def _managed_checks(todo: list[steps.Step], state: State) -> Iterator[Check]:
    """Range attributes of managed buffers, piece by piece between the ends of all advised ranges."""
    advised: dict[str, list[steps.Advise | steps.Prefetch]] = {}
    for step in todo:
        if isinstance(step, (steps.Advise, steps.Prefetch)):
            advised.setdefault(step.name, []).append(step)
    sizes = {s.name: s.size for s in todo if isinstance(s, CreateManagedBuffer)}
    for name, wanted in advised.items():
        # Not every runtime has coherency advice; if the advice succeeded, this one has.
        coherency = any(isinstance(step, steps.Advise) and "coarse_grain" in step.advice for step in wanted)
        for piece in pieces(wanted, sizes[name]):
            yield from _piece_checks(name, piece, state, coherency)


def _piece_checks(name: str, piece: AdvisedPart, state: State, coherency: bool) -> Iterator[Check]:
    address, size = state.address_of(name) + piece.start, piece.end - piece.start
    where = f"[{piece.start}, {piece.end})"

    def current_value(attribute: str) -> str:
        return str(state.runtime.range_attribute(address, size, attribute))

    yield Check(name, f"read mostly {where}", str(piece.read_mostly), current_value("read_mostly"))
    yield Check(name, f"preferred location {where}", str(piece.preferred), current_value("preferred_location"))
    if coherency:
        yield Check(name, f"coarse grain {where}", str(piece.coarse_grain), current_value("coarse_grain"))
    if piece.prefetched != NOWHERE:  # a prefetch by other code, or of an earlier plan, cannot be undone
        yield Check(name, f"last prefetch {where}", str(piece.prefetched), current_value("last_prefetch"))
    # HIP omits the CPU, even if it was advised.
    desired = sorted(piece.accessed_by - {steps.CPU_ORDINAL})
    current = sorted(set(state.runtime.accessed_by(address, size)) - {steps.CPU_ORDINAL})
    yield Check(name, f"accessed by {where}", str(desired), str(current))
