"""Plan -> Objects: spreads counts and patterns, resolves names, checks the arithmetic of the plan alone.

It continues after an error, so that one run reports all of them; objects that depend on a wrong one are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from hipplan.errors import Diagnostic
from hipplan.language.budget import Budget
from hipplan.language.model.plan import Plan
from hipplan.language.objects import (
    AllocationLine,
    AllocationsByName,
    BufferLine,
    BuffersByName,
    Objects,
    ResolvedAllocation,
    ResolvedBuffer,
    ResolvedPeer,
    ResolvedReservation,
    ResolvedStream,
    sound,
)
from hipplan.language.rank import Rank
from hipplan.language.resolve.addresses import check_addresses
from hipplan.language.resolve.buffers import check_bindings, check_buffer
from hipplan.language.resolve.contents import resolve_contents
from hipplan.language.resolve.devices import Devices
from hipplan.language.resolve.fills import check_fills
from hipplan.language.resolve.mappings import Mappings
from hipplan.language.resolve.names import Names, SpanOf
from hipplan.language.resolve.ranks import part_of
from hipplan.language.resolve.references import LeftOut, check_references, devices_named
from hipplan.language.resolve.regions import check_tags, resolve_region
from hipplan.language.resolve.unused import warn_of_unused

_NOTHING: LeftOut = {}


def resolve(
    plan: Plan,
    span: SpanOf,
    budget: Budget,
    broken: frozenset[str] = frozenset(),
    left_out: LeftOut = _NOTHING,
    rank: Rank = Rank(),
) -> tuple[Objects, list[Diagnostic]]:
    """(objects, errors) of a plan; with errors, only the sound objects.

    `broken` are names (as noun:name) whose definition is known to be wrong: references to them are not errors.
    `left_out` are such definitions; only the names that they refer to are checked. rank: the rank to resolve for.
    Raises PlanError (HP023) if there are too many objects.
    """
    names = Names(span, broken, budget)
    whole, plan = plan, part_of(plan, rank, names)
    devices = Devices(plan, names, devices_named(left_out))
    allocations = AllocationsByName([
        AllocationLine(ResolvedAllocation(spec, devices.location(spec.device, (*path, "device")), path), alike)
        for alike, path, spec in names.spread("allocations", plan.allocations)
    ])  # fmt: skip
    streams = {
        name: ResolvedStream(name, devices.device(spec.device, (*path, "device")), path)
        for alike, path, spec in names.spread("streams", plan.streams)
        for name in alike
    }
    mappings = Mappings(names, devices, allocations)
    reservations = {
        name: ResolvedReservation(name, spec, mappings.of(name, spec, path), path)
        for alike, path, spec in names.spread("reservations", plan.reservations)
        for name in alike
    }
    buffers = BuffersByName([
        BufferLine(ResolvedBuffer(alike[0], spec, devices.device(spec.device, (*path, "device")), path), alike)
        for alike, path, spec in names.spread("buffers", plan.buffers)
        if alike
    ])  # fmt: skip
    for line in buffers.lines:
        check_buffer(line.first, names, devices, streams)
    check_bindings(buffers, names)
    all_regions = {
        name: resolve_region(name, spec, path, names, devices)
        for alike, path, spec in names.spread("regions", whole.regions)
        if path[1] in plan.regions or spec.map is not None
        for name in alike
    }
    regions = {name: region for name, region in all_regions.items() if name in plan.regions}
    check_addresses(reservations, regions, names)
    check_tags(regions, names)
    check_fills(regions, buffers, names)
    contents = resolve_contents(plan, buffers, regions, reservations, names)
    peers = devices.peers(plan.peers)
    check_references(left_out, names, devices, mappings, streams)
    _ask_for_steps(plan, peers, names)
    mapped = {name: region for name, region in all_regions.items() if region.spec.map is not None}
    objects = Objects(devices.all, peers, allocations, reservations, streams, buffers, regions, contents, mapped)
    if names.wrong or broken:
        return sound(objects, devices.all, names.wrong), names.findings.all
    warn_of_unused(objects, plan, names)
    return objects, names.findings.all


def _ask_for_steps(plan: Plan, peers: Sequence[ResolvedPeer], names: Names) -> None:
    """Count driver calls. Those of mappings are counted already; those of chunks depend on the machine."""
    names.ask("steps", len(peers), "peers", ("peers",))
    names.ask("steps", len(plan.reservations), "reservations", ("reservations",))
    for noun, things in (("allocations", plan.allocations), ("streams", plan.streams), ("buffers", plan.buffers)):
        single = 0
        for name, spec in things.items():
            count = getattr(spec, "count", None)
            each = 1 + sum(1 for _ in plan.buffers[name].uses()) if noun == "buffers" else 1
            if count is None:
                single += each
            else:
                names.ask("steps", each * count, f"'{name}'", (noun, name))
        names.ask("steps", single, noun, (noun,))
