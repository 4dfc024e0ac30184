"""Whether this HIP frees memory as soon as it is unmapped and released, or only with its range of addresses.

It does not follow from the version (ROCm issue 6021): so a little memory is mapped and released, and the free memory
is compared.
"""

from __future__ import annotations

from dataclasses import replace

from hipplan import _core
from hipplan.errors import HipplanError, LeakError, driver_failure
from hipplan.kinds.allocation.live import CreateAllocation
from hipplan.kinds.mapping.live import Map, SetAccess
from hipplan.kinds.reservation.live import Reserve
from hipplan.layout.state import State
from hipplan.layout.transaction import Transaction
from hipplan.layout.undo import Undone, free_retired
from hipplan.lowering.lowered import Lowering
from hipplan.machines.machine import FALLBACK_GRANULARITY
from hipplan.program.difference import difference, from_nothing
from hipplan.program.program import Program

_TRIES = 3
"""Other processes may allocate and free memory meanwhile, so one measurement is not enough."""
_RANGE, _MEMORY = "#probe", "#probe.memory"
_NO_ROOM = 2


def frees_at_once(program: Program, runtime: _core.Runtime, device: int) -> bool:
    """False if memory is freed only together with its range; true also if that is unknown.

    Raises HipplanError, HipError.
    """
    for _ in range(_TRIES):
        probe = _probe(program, device)
        try:
            with_range, given_back = _freed(probe, runtime, device)
        except HipplanError as error:
            if getattr(error, "code", 0) == _NO_ROOM and not getattr(error, "leaks", ()):
                return True
            raise
        if given_back or not with_range:
            return True
    return False


def _probe(program: Program, device: int) -> Program:
    """A program with as little memory as possible, in a range of its own."""
    machine = program.measured
    size = (machine and machine.devices[device].granularity_minimum) or FALLBACK_GRANULARITY
    range_ = Reserve(name=_RANGE, origin=None, size=size, asked=size, alignment=0, slack=0, address=0, exact=False)
    memory = CreateAllocation(
        name=_MEMORY,
        origin=None,
        device=device,
        size=size,
        asked=size,
        type="pinned",
        location="device",
        shareable="none",
    )
    mapped = Map(
        name=f"{_RANGE}[0]", origin=None, reservation=_RANGE, allocation=_MEMORY, offset=0, size=size, asked=size
    )
    access = SetAccess(name=mapped.name, origin=None, rights=((device, "rw"),))
    devices = {name: ordinal for name, ordinal in program.devices.items() if ordinal == device}
    return replace(program.nothing, devices=devices, steps=(range_, memory, mapped, access))


def _freed(probe: Program, runtime: _core.Runtime, device: int) -> tuple[bool, bool]:
    """Whether the memory was free with its range freed, and before."""
    book = _core.LeaseBook()
    holdings = _core.Holdings(_core.Retired(runtime, book), book)
    made = Lowering.as_planned(from_nothing(probe))
    holdings.state = State(made.planned.old, made.lowered.old, runtime, _core.Snapshot(holdings))
    failed: BaseException | None = None
    free: list[int] = []
    try:
        Transaction(holdings, made).run()
        free.append(runtime.memory_info(device)[0])
        taken_out = difference(probe, replace(probe, steps=probe.steps[:1]), unmaps=True)
        Transaction(holdings, Lowering.as_planned(taken_out)).run()
        free.append(runtime.memory_info(device)[0])
    except _core.HipError as error:
        failed = driver_failure(error, _RANGE)
    except BaseException as error:
        failed = error
    holdings.close(force=False)
    undone = free_retired(holdings.retired)
    try:
        _raise(failed, undone)
    finally:
        del failed  # its traceback has this frame
    size = probe.steps[1].size if isinstance(probe.steps[1], CreateAllocation) else 0
    mapped, without = free
    return runtime.memory_info(device)[0] - without >= size, without - mapped >= size


def _raise(failed: BaseException | None, undone: Undone) -> None:
    """Raises the failure, with all leaks in one error."""
    before = getattr(failed, "undone", None)
    if undone.failures:
        failures = (*(before.failures if before else ()), *undone.failures)
        undone = replace(undone, failures=failures)
        raise LeakError(undone.diagnostics(), undone=undone) from failed
    if failed is not None:
        raise failed
    undone.raise_failures()
