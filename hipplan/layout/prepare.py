"""Compiles a plan for the machine that a runtime runs on; for a live layout, to the change that leads to it."""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import partial

from hipplan import _core
from hipplan.errors import Diagnostic, MachineError
from hipplan.files.open_files import make_room
from hipplan.language.budget import no_garbage_collection
from hipplan.language.findings import Findings
from hipplan.language.loader import LoadedPlan
from hipplan.language.objects import bare_uuid
from hipplan.layout.holding import LayoutAgreement
from hipplan.layout.verify import native_rows
from hipplan.lowering.compiler import alone, lowered_change
from hipplan.lowering.compiler import compile as compile_plan
from hipplan.lowering.lowered import lowered
from hipplan.machines.discover import current_device, discover
from hipplan.machines.machine import Machine
from hipplan.machines.runtimes import Chosen, known
from hipplan.program import huge_pages, preflight
from hipplan.program.devices import place
from hipplan.program.difference import Difference
from hipplan.program.open_sizes import NONE_KNOWN, Sizes
from hipplan.program.program import Program
from hipplan.program.runs import alike

_NOTHING: Mapping[str, int] = {}


@no_garbage_collection()
def prepare(
    plan: LoadedPlan,
    chosen: Chosen,
    profile: Machine | None,
    beside: Mapping[str, int] = _NOTHING,
    sizes: Sizes = NONE_KNOWN,
) -> Program:
    """Compiles a plan for the machine that a runtime runs on. Raises MachineError, RuntimeUnavailable.

    beside: bytes in use by device UUID, because some runtimes do not count other processes' memory. sizes: as of
    compile().
    """
    if profile is not None and chosen.kind != "sim":
        summary = f"the runtime {chosen.kind} measures the machine itself and takes no profile"
        without_gpu = "add --without-gpu, " if chosen.kind == "amd" else ""
        hint = f"use --runtime sim, {without_gpu}or leave --machine out"
        raise MachineError(Diagnostic("HP314", summary, hint=hint))
    current = current_device(chosen.runtime)
    return _ready(compile_plan(plan, _with_in_use(_measured(plan, chosen, current), beside), current, sizes))


def with_others(program: Program, group: LayoutAgreement, runtime: _core.Runtime) -> Program:
    """The program that also maps memory of other ranks. Raises GroupError, MachineError."""
    whole = group.meet(program, runtime)
    return _ready(whole) if program.shared else program


def _ready(program: Program) -> Program:
    imported = sum(step.is_import for _, step in program.single)  # each import also has the descriptor that was sent
    made = lowered(program)
    make_room(made.descriptors + imported)
    native_rows(made)  # now, and not within the first apply
    return program


def prepare_change(
    old: Program,
    plan: LoadedPlan,
    runtime: _core.Runtime,
    renewed: Set[str],
    group: LayoutAgreement | None = None,
    before: Program | None = None,
) -> Difference:
    """The change from a live program to a plan. group: the ranks whose memory is mapped, too. before: the lowered form
    of the program; default: as an apply makes it.

    Raises MachineError, RuntimeUnavailable.
    """
    chosen = known(runtime)
    machine = _without(_measured(plan, chosen, old.current_device), old)
    meet = alone if group is None else partial(group.meet, runtime=runtime, old=old)
    change = lowered_change(old, plan, machine, renewed, meet, before)
    make_room(change.lowered.old.descriptors + change.lowered.new.descriptors)
    return change.planned


def _measured(plan: LoadedPlan, chosen: Chosen, current_device: int) -> Machine:
    """The machine: memory of the plan's devices, and those figures of the host that the plan depends on."""
    return discover(
        chosen, lambda machine: place(plan, machine, current_device, Findings()).values(), preflight.of_host(plan)
    )


def _with_in_use(machine: Machine, beside: Mapping[str, int]) -> Machine:
    if not beside:
        return machine
    there = enumerate(machine.devices)
    return machine.with_in_use(
        {at: max(device.in_use, beside.get(bare_uuid(device.uuid or ""), 0)) for at, device in there}
    )


def _without(machine: Machine, program: Program) -> Machine:
    """The machine as if the memory of a program, and of the ranks that change with it, were free."""
    own, beside = program.bytes_by_device(), program.beside
    taken = {program.devices[name]: size + beside.get(name, 0) for name, size in own.items()}
    there = enumerate(machine.devices)
    free = machine.with_in_use({at: max(0, device.in_use - taken.get(at, 0)) for at, device in there})
    freed = huge_pages.freed(free, alike(program.steps))
    return freed if freed.name == program.machine else freed.model_copy(update={"name": program.machine})
