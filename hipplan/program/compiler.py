"""What a plan is on a machine, as a program; hipplan.lowering.compiler also asks whether the machine's HIP can make it.

Pure: no clock, no driver, no files once both are loaded, so the same plan and machine give the same steps.
Their order: peer links, allocations, then each reservation with its mappings and their access, streams, buffers with
advice and prefetch, and last the waits for what was enqueued. Teardown is the reverse.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence, Set
from dataclasses import replace

from hipplan.errors import MachineError, printable
from hipplan.language.budget import no_garbage_collection
from hipplan.language.findings import Findings, in_order
from hipplan.language.loader import LoadedPlan, PlanSource, loaded
from hipplan.language.objects import sound
from hipplan.machines.machine import Machine
from hipplan.machines.profiles import load_machine
from hipplan.program import (
    contents,
    open_sizes,
    preflight,
    regions,
    sealing,
    sleeping_bytes,
    updated_asleep,
)
from hipplan.program.building import Building
from hipplan.program.content_steps import staging_of
from hipplan.program.devices import place, selectors
from hipplan.program.difference import Difference, difference, sealed_after
from hipplan.program.facts import descriptors_of
from hipplan.program.memo import keep
from hipplan.program.on_host import with_nodes
from hipplan.program.open_sizes import NONE_KNOWN, OpenSize, Sizes
from hipplan.program.program import Program
from hipplan.program.taking import taken_by


def planned(
    plan: LoadedPlan | PlanSource,
    machine: Machine | str | os.PathLike[str],
    current_device: int = 0,
    sizes: Sizes = NONE_KNOWN,
) -> Program:
    """The program of a plan; arguments and errors as of lowering.compiler.compile()."""
    plan, machine = loaded(plan), load_machine(machine)
    findings = Findings()
    devices = place(plan, machine, current_device, findings)
    if findings.errors:  # the rest can still be checked
        plan = replace(plan, objects=sound(plan.objects, devices))
    plan = with_nodes(plan, machine, devices, findings)
    with no_garbage_collection():
        digest = plan.digest  # which it keeps: the next compile need not work it out again
        opened = open_sizes.open_sizes(plan.objects)
        if opened:
            plan = _with_sizes(plan, opened, machine, devices, sizes, findings)
        building = Building(plan, machine, devices, findings)
        plan, made = building.plan, building.all_steps()
    preflight.check(plan, machine, devices, building.memory, findings)
    if findings.errors:
        raise MachineError(findings.all)
    program = Program(
        name=plan.plan.name or printable(plan.source_name),
        source=plan.source_name,
        working_folder=plan.loaded_in,
        digest=digest,
        machine=machine.name,
        devices=devices,
        selectors=selectors(plan),
        current_device=current_device,
        variables=dict(plan.plan.vars),
        open_sizes={open_.name: str(open_) for open_ in opened},
        measured=machine,
        steps=made,
        warnings=tuple(in_order((*plan.warnings, *findings.warnings))),
        host_visible=frozenset(name for name, ordinal in devices.items() if machine.devices[ordinal].host_visible),
        reads_advice=all(device.concurrent_managed for device in machine.devices),
        regions=building.regions,
        attached=regions.rights_of_attached(plan.objects),
        rank=plan.rank,
        plan_of_all="" if plan.plan.ranks is None else plan.digest_of_all,
        shared={
            name: regions.SharedRegion(region, plan.span(*region.path))
            for name, region in plan.objects.mapped_by_others.items()
        },
    )
    keep(program, descriptors=descriptors_of(building.memory))
    sealed = {range_.name for range_ in plan.objects.reservations.values() if range_.spec.seal}
    return sealing.sealed_ranges(program, sealed)


def planned_change(
    old: Program,
    plan: LoadedPlan,
    machine: Machine,
    renewed: Set[str],
    meet: Callable[[Program], Program],
) -> Difference:
    """The change from a program to a plan; arguments and errors as of lowering.compiler.compile_change()."""
    kept = open_sizes.kept(old, plan)
    program = meet(planned(plan, sleeping_bytes.as_if_awake(machine, old), old.current_device, kept))
    new = updated_asleep.carried_over(old, contents.with_lanes_of(old, program))
    change = difference(old, new, renewed, fills=True)
    updated_asleep.require_places(change)
    updated_asleep.require_awake(change)
    ready = contents.with_lanes(sealing.opened(new, change.contents), staging_of(change.contents))
    if ready is not new:  # only what is filled is unsealed and has lanes
        change = difference(old, ready, renewed, fills=True)
    if ready.sealed != new.sealed:
        change = sealed_after(change, sealing.resealed(change.new, new.sealed))
    after = sealing.after_change(change)
    return change if after is change.new else replace(change, new=after)


def _with_sizes(
    plan: LoadedPlan,
    opened: Sequence[OpenSize],
    machine: Machine,
    devices: dict[str, int],
    sizes: Sizes,
    findings: Findings,
) -> LoadedPlan:
    """The plan with its open sizes in bytes, of what all the rest of it leaves on the machine."""
    rest = Building(open_sizes.without(plan, opened), machine, devices, Findings())
    taken = taken_by(rest.all_steps(), machine)
    return open_sizes.decided(plan, opened, machine, devices, rest.recommended, taken, sizes, findings)
