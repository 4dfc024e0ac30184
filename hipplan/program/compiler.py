"""compile(plan, machine) -> Program.

Pure: no clock, no driver, no files once both are loaded, so the same plan and machine give the same steps.
Their order: peer links, allocations, then each reservation with its mappings and their access, streams, buffers with
advice and prefetch, and last the waits for what was enqueued. Teardown is the reverse.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from typing import Any, NamedTuple

from hipplan.errors import MachineError, Span, printable
from hipplan.language.budget import no_garbage_collection
from hipplan.language.findings import Findings, in_order
from hipplan.language.host import HOST, is_host
from hipplan.language.loader import LoadedPlan, PlanSource, loaded
from hipplan.language.model import Anonymous, DeviceBuffer, ManagedBuffer, PinnedBuffer, RegisteredBuffer
from hipplan.language.objects import Path, ResolvedAllocation, ResolvedBuffer, ResolvedReservation, sound
from hipplan.machines.machine import FALLBACK_GRANULARITY, Machine
from hipplan.machines.profiles import load_machine
from hipplan.program import (
    buffer_steps,
    contents,
    open_sizes,
    peak,
    pieces,
    preflight,
    ranges,
    regions,
    sealing,
    sleeping,
    steps,
)
from hipplan.program.content_steps import staging_of
from hipplan.program.devices import place, selectors
from hipplan.program.difference import Difference, sealed_after
from hipplan.program.inventory import resources_of
from hipplan.program.on_host import with_nodes
from hipplan.program.open_sizes import NONE_KNOWN, OpenSize, Sizes
from hipplan.program.program import Program
from hipplan.program.taking import taken_by
from hipplan.units import PAGE, round_up


def compile(  # noqa: A001
    plan: LoadedPlan | PlanSource,
    machine: Machine | str | os.PathLike[str],
    current_device: int = 0,
    sizes: Sizes = NONE_KNOWN,
) -> Program:
    """Compile a plan for a machine. Arguments that are not loaded yet are passed to load() and machine() first.

    current_device: the ordinal that `current: true` selectors mean. sizes: bytes by name, such as those of a lock, for
    what the plan leaves open (size: fill); the rest is decided for the machine.
    Raises MachineError with every reason why this machine cannot hold the plan (HP3xx).
    """
    findings = Findings()
    program = pieces.fitted(_planned(plan, machine, current_device, sizes), findings)
    if findings.errors:
        raise MachineError(in_order(findings.all))
    return program


def _planned(
    plan: LoadedPlan | PlanSource, machine: Machine | str | os.PathLike[str], current_device: int, sizes: Sizes
) -> Program:
    """As compile(), with each allocation and mapping in one piece."""
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
        building = _Compiler(plan, machine, devices, findings)
        plan = building.plan
        building.run()
    program = Program(
        name=plan.plan.name or printable(plan.source_name),
        source=plan.source_name,
        digest=digest,
        machine=machine.name,
        devices=devices,
        selectors=selectors(plan),
        current_device=current_device,
        variables=dict(plan.plan.vars),
        open_sizes={open_.name: str(open_) for open_ in opened},
        measured=machine,
        steps=tuple(building.steps),
        host_visible=frozenset(name for name, ordinal in devices.items() if machine.devices[ordinal].host_visible),
        ranges_told=all(device.concurrent_managed for device in machine.devices),
        regions=building.regions,
        attached=regions.rights_of_attached(plan.objects),
        rank=plan.rank,
        plan_of_all="" if plan.plan.ranks is None else plan.digest_of_all,
        shared={
            name: regions.SharedRegion(region, plan.span(*region.path))
            for name, region in plan.objects.mapped_by_others.items()
        },
    )
    preflight.check(plan, machine, devices, program.steps, findings)
    if findings.errors:
        raise MachineError(findings.all)
    sealed = {range_.name for range_ in plan.objects.reservations.values() if range_.spec.seal}
    program = sealing.sealed_ranges(program, sealed)
    return replace(program, warnings=tuple(in_order((*plan.warnings, *findings.warnings))))


def compile_change(
    old: Program,
    plan: LoadedPlan,
    machine: Machine,
    renewed: Set[str] = frozenset(),
    meet: Callable[[Program], Program] = lambda program: program,
) -> Difference:
    """The change from a program to a plan. The machine's `in_use` must not count the memory of the program.

    meet: adds to the plan's program what it maps of other ranks.

    Raises MachineError: the machine cannot hold the plan, or not old and new objects at once during the change.
    """
    kept = open_sizes.kept(old, plan)
    planned = meet(_planned(plan, sleeping.as_if_awake(machine, old), old.current_device, kept))
    new = sleeping.carried_over(old, contents.with_lanes_of(old, planned))
    change = pieces.lead(old, new, renewed, fills=True)
    sleeping.require_places(change)
    ready = contents.with_lanes(sealing.opened(new, change.contents), staging_of(change.contents))
    if ready is not new:  # only what is filled is unsealed and has lanes
        change = pieces.lead(old, ready, renewed, fills=True)
    if ready.sealed != new.sealed:
        change = sealed_after(change, sealing.resealed(change.new, new.sealed))
        pieces.require_sure(change)
    findings = Findings()
    peak.check(change, machine, findings)
    if findings.errors:
        raise MachineError(findings.all)
    return replace(change, new=sealing.after_change(change))


def _with_sizes(
    plan: LoadedPlan,
    opened: Sequence[OpenSize],
    machine: Machine,
    devices: dict[str, int],
    sizes: Sizes,
    findings: Findings,
) -> LoadedPlan:
    """The plan with its open sizes in bytes, of what all the rest of it leaves on the machine."""
    rest = _Compiler(open_sizes.without(plan, opened), machine, devices, Findings())
    rest.run()
    taken = taken_by(rest.steps, machine)
    return open_sizes.decided(plan, opened, machine, devices, rest.recommended, taken, sizes, findings)


class _Memory(NamedTuple):
    """What all allocations of one line of the plan have in common."""

    made: Callable[[str], steps.Step]
    """Makes the step of the allocation with this name."""
    size: int
    """Bytes, padded."""
    step: int
    """Offsets and sizes of its mappings must be multiples of this."""


class _Compiler:
    def __init__(self, plan: LoadedPlan, machine: Machine, devices: dict[str, int], findings: Findings) -> None:
        self.machine = machine
        self.devices = devices
        self.findings = findings
        self._granularities: dict[tuple[str, str], int] = {}
        self.regions = regions.lay_out(plan, self.recommended, findings)
        self.plan = replace(plan, objects=regions.lowered(plan.objects, self.regions))
        self.steps: list[steps.Step] = []
        self._memory: dict[int, _Memory] = {}
        """By the id of a ResolvedAllocation: those of one line of the plan share it."""
        self._rights: dict[int, tuple[tuple[int, str], ...]] = {}
        """id() of an access that mappings share -> (ordinal, right) of each who has a right."""
        self._simulated_nodes = {known.node for known in machine.numa_nodes if known.simulated}
        self.enqueued: dict[tuple[str, int], None] = {}  # (stream, device) with work to wait for, in order

    def run(self) -> None:
        objects = self.plan.objects
        for peer in objects.peers:
            name = f"{peer.device}->{peer.peer}"
            span = self.plan.span(*peer.path)
            device, other = self.devices[peer.device], self.devices[peer.peer]
            self.steps.append(steps.EnablePeer(name=name, device=device, peer=other, origin=span))
        for name, allocation in objects.allocations.items():
            if id(allocation) not in self._memory:
                self._memory[id(allocation)] = self._alike(name, allocation)
            self.steps.append(self._memory[id(allocation)].made(name))
        for reservation in objects.reservations.values():
            self._reservation(reservation)
        for stream in objects.streams.values():
            device, span = self.devices[stream.device], self.plan.span(*stream.path)
            self.steps.append(steps.CreateStream(name=stream.name, device=device, origin=span))
        for buffer in objects.buffers.values():
            self._buffer(buffer)
        self.steps += [steps.AwaitStream(stream, None, on=device) for stream, device in self.enqueued]
        self._contents()

    def _contents(self) -> None:
        """The steps of `contents`. They come last, when all memory exists and is prefetched."""
        if not self.plan.objects.contents:
            return
        resources = resources_of(self.steps, self.regions, self.devices)
        filling = contents.lower(self.plan, resources, self.devices, self.machine, self.findings)
        self.steps += [*contents.lanes(staging_of(filling), self.machine), *filling]

    def ordinal(self, device: str) -> int:
        return steps.CPU_ORDINAL if device == HOST else self.devices[device]

    def _stream_device(self, stream: str) -> int:
        return self.devices[self.plan.objects.streams[stream].device]

    def granularity(self, device: str, which: str) -> int:
        """In bytes, of memory on a device or on the host, which ROCm allocates in pages."""
        if (device, which) not in self._granularities:
            known = None if is_host(device) else self.machine.devices[self.devices[device]]
            own = getattr(known, f"granularity_{which}", None)
            of_host = self.machine.host_granularity or PAGE
            self._granularities[device, which] = of_host if known is None else own or FALLBACK_GRANULARITY
        return self._granularities[device, which]

    def recommended(self, device: str) -> int:
        """The granularity of regions."""
        return self.granularity(device, "recommended")

    def _alike(self, name: str, allocation: ResolvedAllocation) -> _Memory:
        """What the allocations of one line of the plan have in common. name: of the first of them."""
        spec = allocation.spec
        size = round_up(spec.size, self.granularity(allocation.device, spec.granularity))
        span = self.plan.span(*allocation.path)
        if allocation.path[0] == "allocations":  # a region reports its range
            ranges.check_size(name, size, "padding", span, self.findings)
        if spec.bind is not None:
            step: steps.Step = steps.ImportAllocation(
                name=name,
                bind=spec.bind,
                device=self.ordinal(allocation.device),
                size=size,
                asked=spec.size,
                origin=span,
            )
        else:
            on_host = allocation.device == HOST
            location = "host_numa" if spec.numa_node is not None else "host" if on_host else "device"
            step = steps.CreateAllocation(
                name=name,
                device=(spec.numa_node or 0) if on_host else self.devices[allocation.device],
                size=size,
                asked=spec.size,
                type=spec.type,
                location=location,
                shareable=spec.shareable,
                rdma=spec.rdma,
                origin=span,
            )
        return _Memory(steps.named(step), size, self.granularity(allocation.device, "minimum"))

    def _reservation(self, reservation: ResolvedReservation) -> None:
        spec = reservation.spec
        placed, step = self._placed(reservation)
        end = max((at + size for _, at, size in placed), default=0)
        size = round_up(spec.size or end, step)
        alignment = max(spec.alignment, PAGE) if spec.alignment else 0  # HIP 6.1 refuses less than its granularity
        exact = spec.address_policy == "exact"
        slack = round_up(alignment, step) if alignment > PAGE and not exact else 0
        span = self.plan.span(*reservation.path)
        ranges.check_size(reservation.name, size + slack, "padding and alignment", span, self.findings)
        self.steps.append(
            steps.Reserve(
                name=reservation.name,
                size=size,
                asked=spec.size or size,
                alignment=alignment,
                slack=slack,
                address=spec.address or 0,
                exact=exact,
                origin=span,
            )
        )
        ranges.check_range(self.plan, reservation, placed, size, step, self.findings)
        self._map(reservation.name, placed)

    def _placed(self, reservation: ResolvedReservation) -> tuple[list[ranges.Placed], int]:
        """(mapping, offset, padded size) in bytes; a mapping without `at` follows the one before it. Also returns what
        the reservation's place and size must be multiples of."""
        allocations, out = self.plan.objects.allocations, []
        end, multiple = 0, 0
        for mapping in reservation.mappings:
            _, whole, step = self._memory[id(allocations[mapping.allocation])]
            size = whole if mapping.whole else min(round_up(mapping.size, step), whole)
            at = end if mapping.follows else mapping.at
            out.append((mapping, at, size))
            end, multiple = at + size, step if step > multiple else multiple
        return out, multiple or FALLBACK_GRANULARITY

    def _map(self, reservation: str, placed: list[ranges.Placed]) -> None:
        path: Path = ()
        span: Span | None = None
        for mapping, at, size in placed:
            if mapping.path is not path:  # thousands have one in common
                path, span = mapping.path, self.plan.span(*mapping.path)
            self.steps.append(steps.Map(mapping.name, span, reservation, mapping.allocation, at, size, mapping.size))
            if id(mapping.access) not in self._rights:
                self._rights[id(mapping.access)] = steps.rights_of(mapping.access, self.devices)
            if rights := self._rights[id(mapping.access)]:
                self.steps.append(steps.SetAccess(mapping.name, span, rights))

    def _buffer(self, buffer: ResolvedBuffer) -> None:
        spec = buffer.spec
        common: dict[str, Any] = {
            "name": buffer.name,
            "device": self.devices[buffer.device],
            "origin": self.plan.span(*buffer.path),
        }
        if isinstance(spec, DeviceBuffer):
            assert isinstance(spec.size, int), "open sizes are decided before"
            self.steps.append(steps.CreateDeviceBuffer(size=spec.size, **common))
        elif isinstance(spec, PinnedBuffer):
            flags = buffer_steps.pinned_flags(spec)
            self.steps.append(self._pinned(spec, flags, common))
        elif isinstance(spec, RegisteredBuffer):
            size = spec.anonymous.size if spec.anonymous else spec.size or 0
            node = self._numa_node(spec.anonymous, common["device"])
            common["simulated_node"] = node in self._simulated_nodes
            self.steps.append(buffer_steps.registered(spec, size, node, self.plan.source_name, common))
        else:
            self._managed(buffer, spec, common)

    def _pinned(self, spec: PinnedBuffer, flags: tuple[str, ...], common: dict[str, Any]) -> steps.CreatePinnedBuffer:
        node, near = self._numa_node(spec, common["device"]), spec.numa is not None
        common["simulated_node"] = node in self._simulated_nodes
        return steps.CreatePinnedBuffer(size=spec.size, flags=flags, numa_node=node, near=near, **common)

    def _numa_node(self, spec: PinnedBuffer | Anonymous | None, device: int) -> int:
        """-1: the plan does not decide it, or it is unknown."""
        if spec is None:
            return -1
        wanted = self.machine.devices[device].numa_node if spec.numa else getattr(spec, "numa_node", None)
        return -1 if wanted is None else wanted

    def _managed(self, buffer: ResolvedBuffer, spec: ManagedBuffer, common: dict[str, Any]) -> None:
        self.steps.append(steps.CreateManagedBuffer(size=spec.size, attach=spec.attach, **common))
        if spec.attach_to is not None:
            on = self._stream_device(spec.attach_to.stream)
            self.steps.append(
                steps.AttachStream(
                    name=buffer.name,
                    stream=spec.attach_to.stream,
                    on=on,
                    mode=spec.attach_to.mode,
                    origin=self.plan.span(*buffer.path, "attach_to"),
                )
            )
            self.enqueued[spec.attach_to.stream, on] = None
        for number, advice in enumerate(spec.advice):
            at, size = buffer_steps.range_of(advice.range, spec.size)
            self.steps.append(
                steps.Advise(
                    name=buffer.name,
                    advice=advice.advise,
                    # HIP ignores the device where the plan has none, but still checks that it exists.
                    device=self.ordinal(advice.device) if advice.device else 0,
                    offset=at,
                    size=size,
                    origin=self.plan.span(*buffer.path, "advice", number),
                )
            )
        for number, prefetch in enumerate(spec.prefetch):
            at, size = buffer_steps.range_of(prefetch.range, spec.size)
            to, stream = self.ordinal(prefetch.to), prefetch.stream or ""
            if stream:
                on = self._stream_device(stream)
            else:  # the null stream of the target; the host has none
                on = next(iter(self.devices.values())) if prefetch.to == HOST else to
            self.steps.append(
                steps.Prefetch(
                    name=buffer.name,
                    device=to,
                    offset=at,
                    size=size,
                    stream=stream,
                    on=on,
                    origin=self.plan.span(*buffer.path, "prefetch", number),
                )
            )
            self.enqueued[stream, on] = None
