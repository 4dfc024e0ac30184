"""Plan -> Objects: spreads counts and patterns, resolves names, checks the arithmetic of the plan alone.

It goes on after a mistake, so that one run tells them all; what depends on something wrong is left out.
"""

from __future__ import annotations

from hipplan.errors import Diagnostic
from hipplan.model import Plan
from hipplan.objects import Objects, ResolvedAllocation, ResolvedBuffer, ResolvedReservation, ResolvedStream, sound
from hipplan.resolve.buffers import check_bindings, check_buffer
from hipplan.resolve.contents import resolve_contents
from hipplan.resolve.devices import Devices
from hipplan.resolve.mappings import Mappings
from hipplan.resolve.names import Names, SpanOf
from hipplan.resolve.regions import resolve_region
from hipplan.resolve.unused import warn_of_unused


def resolve(plan: Plan, span: SpanOf, broken: frozenset[str] = frozenset()) -> tuple[Objects, list[Diagnostic]]:
    """The objects of a plan and everything that is wrong with it; where something is, the objects that are sound.

    `broken` are names (as noun:name) whose own definition is wrong already: references to them are no mistakes.
    """
    names = Names(span, broken)
    devices = Devices(plan, names)
    allocations = {
        name: ResolvedAllocation(name, spec, devices.location(spec.device, (*path, "device")), path)
        for name, path, spec in names.spread("allocations", plan.allocations)
    }
    streams = {
        name: ResolvedStream(name, devices.device(spec.device, (*path, "device")), path)
        for name, path, spec in names.spread("streams", plan.streams)
    }
    mappings = Mappings(names, devices, allocations)
    reservations = {
        name: ResolvedReservation(name, spec, mappings.of(name, spec, path), path)
        for name, path, spec in names.spread("reservations", plan.reservations)
    }
    buffers = {
        name: ResolvedBuffer(name, spec, devices.device(spec.device, (*path, "device")), path)
        for name, path, spec in names.spread("buffers", plan.buffers)
    }
    for buffer in buffers.values():
        check_buffer(buffer, names, devices, streams)
    check_bindings(buffers, names)
    regions = {
        name: resolve_region(name, spec, path, names, devices)
        for name, path, spec in names.spread("regions", plan.regions)
    }
    contents = resolve_contents(plan, buffers, regions, reservations, names)
    peers = devices.peers(plan.peers)
    objects = Objects(devices.all, peers, allocations, reservations, streams, buffers, regions, contents)
    if names.wrong or broken:
        return sound(objects, devices.all, names.wrong), names.found
    warn_of_unused(objects, plan, names)
    return objects, names.found
