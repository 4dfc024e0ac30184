"""compile(plan, machine) -> Program.

Pure: no clock, no driver, no files once both are loaded, so the same plan and machine give the same steps.
Their order: peer links, allocations, then each reservation with its mappings and their access, streams, buffers with
advice and prefetch, and last the waits for what was enqueued. Teardown is the reverse.
"""

from __future__ import annotations

import os
from collections.abc import Set
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from hipplan.errors import MachineError, printable
from hipplan.language.budget import no_garbage_collection
from hipplan.language.findings import Findings, in_order
from hipplan.language.loader import LoadedPlan, PlanSource, loaded
from hipplan.language.model import DeviceBuffer, ManagedBuffer, PinnedBuffer, RegisteredBuffer
from hipplan.language.objects import (
    HOST,
    ResolvedAllocation,
    ResolvedBuffer,
    ResolvedMapping,
    ResolvedReservation,
    sound,
)
from hipplan.machines.profiles import FALLBACK_GRANULARITY, Machine, load_machine
from hipplan.program import contents, pieces, preflight, regions, steps
from hipplan.program.advice import ADVICE
from hipplan.program.content_steps import staging_of
from hipplan.program.devices import place, selectors
from hipplan.program.difference import Difference
from hipplan.program.program import Program
from hipplan.program.resources import Resource
from hipplan.units import PAGE, round_up

_ATTACH = {"global": 1, "host": 2, "single": 4}
_MEMORY_TYPE = {"pinned": 1, "uncached": 0x40000000}
_LOCATION = {"device": 1, "host": 2, "host_numa": 3}
_HUGE_PAGES = {"none": 0, "transparent": 1, "2MiB": 2, "1GiB": 3}
_HANDLE_TYPE = {"none": 0, "posix_fd": 1}


def compile(  # noqa: A001
    plan: LoadedPlan | PlanSource, machine: Machine | str | os.PathLike[str], current_device: int = 0
) -> Program:
    """The steps a plan needs on a machine, and what they give. What is not loaded yet is, as by load() and machine().

    current_device: the ordinal that `current: true` selectors mean.
    Raises MachineError with every reason why this machine cannot hold the plan (HP3xx).
    """
    findings = Findings()
    program = pieces.fitted(_planned(plan, machine, current_device), findings)
    if findings.errors:
        raise MachineError(in_order(findings.all))
    return program


def _planned(plan: LoadedPlan | PlanSource, machine: Machine | str | os.PathLike[str], current_device: int) -> Program:
    """As compile(), with each allocation and mapping in one piece."""
    plan, machine = loaded(plan), load_machine(machine)
    findings = Findings()
    devices = place(plan, machine, current_device, findings)
    if findings.errors:  # the rest can be checked all the same
        plan = replace(plan, objects=sound(plan.objects, devices))
    with no_garbage_collection():
        digest = plan.digest  # which it keeps: the next compile need not work it out again
        building = _Compiler(plan, machine, devices, findings)
        plan = building.plan
        building.run()
    preflight.check(plan, machine, devices, building.resources, findings)
    if findings.errors:
        raise MachineError(findings.all)
    return Program(
        name=plan.plan.name or printable(plan.source_name),
        source=plan.source_name,
        digest=digest,
        machine=machine.name,
        devices=devices,
        selectors=selectors(plan),
        current_device=current_device,
        variables=dict(plan.plan.vars),
        measured=machine,
        steps=tuple(building.steps),
        resources=tuple(building.resources),
        warnings=tuple(in_order((*plan.warnings, *findings.warnings))),
        host_visible=frozenset(name for name, ordinal in devices.items() if machine.devices[ordinal].host_visible),
        contents=building.contents,
        ranges_told=all(device.concurrent_managed for device in machine.devices),
        regions=building.regions,
    )


def compile_change(old: Program, plan: LoadedPlan, machine: Machine, renewed: Set[str] = frozenset()) -> Difference:
    """What leads from a program to a plan on a machine whose `in_use` does not count the program.

    Raises MachineError: the machine cannot hold the plan, or not both of them while one becomes the other.
    """
    new = contents.with_lanes_of(old, _planned(plan, machine, old.current_device))
    found = pieces.lead(old, new, renewed, fills=True)
    wider = contents.with_lanes(new, staging_of(found.contents))  # only for what is loaded
    if wider is not new:
        found = pieces.lead(old, wider, renewed, fills=True)
    findings = Findings()
    preflight.check_peak(found, machine, findings)
    if findings.errors:
        raise MachineError(findings.all)
    return found


class _Compiler:
    def __init__(self, plan: LoadedPlan, machine: Machine, devices: dict[str, int], findings: Findings) -> None:
        self.machine = machine
        self.devices = devices
        self.findings = findings
        self.regions = regions.lay_out(plan, lambda device: self.granularity(device, "recommended"), findings)
        self.plan = replace(plan, objects=regions.lowered(plan.objects, self.regions))
        self.steps: list[steps.Step] = []
        self.resources: list[Resource] = []
        self.padded: dict[str, int] = {}
        self._rights: dict[int, tuple[tuple[tuple[str, str], ...], tuple[tuple[int, str], ...]]] = {}
        """Of access that mappings share, by its id: (name, right), (ordinal, right) of who has any."""
        self.enqueued: dict[tuple[str, int], None] = {}  # streams with work to wait for, in order, and their devices

    def run(self) -> None:
        objects = self.plan.objects
        for peer in objects.peers:
            name = f"{peer.device}->{peer.peer}"
            span = self.plan.span(*peer.path)
            device, other = self.devices[peer.device], self.devices[peer.peer]
            self.steps.append(steps.EnablePeer(name=name, device=device, peer=other, origin=span))
            self.resources.append(Resource(name=name, kind="peer", device=peer.device))
        for allocation in objects.allocations.values():
            self._allocation(allocation)
        for reservation in objects.reservations.values():
            self._reservation(reservation)
        for stream in objects.streams.values():
            self.steps.append(
                steps.CreateStream(
                    name=stream.name,
                    device=self.devices[stream.device],
                    origin=self.plan.span(*stream.path),
                )
            )
            self.resources.append(Resource(name=stream.name, kind="stream", device=stream.device))
        for buffer in objects.buffers.values():
            self._buffer(buffer)
        self.steps += [steps.AwaitStream(name=stream, on=device) for stream, device in self.enqueued]
        self._contents()

    def _contents(self) -> None:
        """Last: what is filled is there, and prefetched where it belongs."""
        self.contents = contents.lower(self.plan, self.resources, self.devices, self.machine, self.findings)
        made, resources = contents.lanes(staging_of(self.contents), self.devices)
        self.steps += made
        self.resources += resources
        self.steps += self.contents

    def ordinal(self, device: str) -> int:
        return steps.CPU_ORDINAL if device == HOST else self.devices[device]

    def _stream_device(self, stream: str) -> int:
        return self.devices[self.plan.objects.streams[stream].device]

    def granularity(self, device: str, which: str) -> int:
        """Bytes; of the device, or of host memory, which ROCm hands out in pages."""
        if device == HOST:
            return self.machine.host_granularity or PAGE
        known = self.machine.devices[self.devices[device]]
        return getattr(known, f"granularity_{which}") or FALLBACK_GRANULARITY

    def _allocation(self, allocation: ResolvedAllocation) -> None:
        spec = allocation.spec
        size = round_up(spec.size, self.granularity(allocation.device, spec.granularity))
        self.padded[allocation.name] = size
        span = self.plan.span(*allocation.path)
        if allocation.path[0] == "allocations":  # of a region its range is told
            preflight.check_size(allocation.name, size, "padding", span, self.findings)
        if spec.bind is not None:
            self.steps.append(steps.ImportAllocation(name=allocation.name, bind=spec.bind, size=size, origin=span))
        else:
            on_host = allocation.device == HOST
            location = _LOCATION["host_numa" if spec.numa_node is not None else "host" if on_host else "device"]
            self.steps.append(
                steps.CreateAllocation(
                    name=allocation.name,
                    device=(spec.numa_node or 0) if on_host else self.devices[allocation.device],
                    size=size,
                    memory_type=_MEMORY_TYPE[spec.type],
                    location_type=location,
                    handle_type=_HANDLE_TYPE[spec.shareable],
                    origin=span,
                )
            )
        self.resources.append(
            Resource(
                name=allocation.name,
                kind="allocation",
                device=allocation.device,
                asked=spec.size,
                size=size,
                imported=spec.bind is not None,
            )
        )

    def _reservation(self, reservation: ResolvedReservation) -> None:
        spec = reservation.spec
        placed = self._placed(reservation)
        step = max([self._step_of(m) for m in reservation.mappings] or [FALLBACK_GRANULARITY])
        end = max((at + size for _, at, size in placed), default=0)
        size = round_up(spec.size or end, step)
        alignment = max(spec.alignment, PAGE) if spec.alignment else 0  # HIP 6.1 refuses less than its granularity
        exact = spec.address_policy == "exact"
        slack = round_up(alignment, step) if alignment > PAGE and not exact else 0
        span = self.plan.span(*reservation.path)
        preflight.check_size(reservation.name, size + slack, "padding and alignment", span, self.findings)
        self.steps.append(
            steps.Reserve(
                name=reservation.name,
                size=size,
                alignment=alignment,
                slack=slack,
                address=spec.address or 0,
                exact=exact,
                origin=span,
            )
        )
        if reservation.name in self.regions:
            self.resources += self.regions[reservation.name].resources()
        else:
            asked = spec.size or size
            whole = Resource(name=reservation.name, kind="reservation", device="", asked=asked, size=size)
            self.resources.append(whole)
        preflight.check_range(self.plan, reservation, placed, size, step, self.findings)
        for mapping, at, mapped in placed:
            self.steps += self._mapping(reservation.name, mapping, at, mapped)

    def _step_of(self, mapping: ResolvedMapping) -> int:
        """The granularity of what is mapped: what its place and size must be multiples of."""
        allocation = self.plan.objects.allocations[mapping.allocation]
        return self.granularity(allocation.device, "minimum")

    def _placed(self, reservation: ResolvedReservation) -> list[tuple[ResolvedMapping, int, int]]:
        """(mapping, offset, padded size) in bytes; a mapping without a place follows the one before it."""
        out = []
        end = 0
        for mapping in reservation.mappings:
            whole = self.padded[mapping.allocation]
            size = whole if mapping.whole else round_up(mapping.size, self._step_of(mapping))
            at = end if mapping.follows else mapping.at
            out.append((mapping, at, min(size, whole)))
            end = at + min(size, whole)
        return out

    def _mapping(self, reservation: str, mapping: ResolvedMapping, at: int, size: int) -> list[steps.Step]:
        span = self.plan.span(*mapping.path)
        made: list[steps.Step] = [
            steps.Map(
                name=mapping.name,
                reservation=reservation,
                allocation=mapping.allocation,
                offset=at,
                size=size,
                origin=span,
            )
        ]
        if id(mapping.access) not in self._rights:  # thousands have one in common
            named = tuple((who, right) for who, right in mapping.access.items() if right != "none")
            self._rights[id(mapping.access)] = named, tuple((self.ordinal(who), right) for who, right in named)
        access, rights = self._rights[id(mapping.access)]
        if access:
            made.append(steps.SetAccess(name=mapping.name, rights=rights, origin=span))
        self.resources.append(
            Resource(
                name=mapping.name,
                kind="mapping",
                device=self.plan.objects.allocations[mapping.allocation].device,
                asked=mapping.size,
                size=size,
                access=access,
                inside=reservation,
                offset=at,
                memory=mapping.allocation,
            )
        )
        return made

    def _buffer(self, buffer: ResolvedBuffer) -> None:
        spec = buffer.spec
        common: dict[str, Any] = {
            "name": buffer.name,
            "device": self.devices[buffer.device],
            "origin": self.plan.span(*buffer.path),
        }
        size = spec.size or 0
        if isinstance(spec, DeviceBuffer):
            self.steps.append(steps.CreateDeviceBuffer(size=spec.size, **common))
        elif isinstance(spec, PinnedBuffer):
            flags = _pinned_flags(spec)
            self.steps.append(steps.CreatePinnedBuffer(size=spec.size, flags=flags, **common))
        elif isinstance(spec, RegisteredBuffer):
            size = spec.anonymous.size if spec.anonymous else size
            self.steps.append(_register(spec, size, self.plan.source_name, common))
        else:
            self._managed(buffer, spec, common)
        self.resources.append(
            Resource(
                name=buffer.name,
                kind=spec.kind,
                device=HOST if spec.kind in ("pinned", "registered") else buffer.device,
                asked=size,
                size=size,
                read_only=isinstance(spec, RegisteredBuffer) and spec.read_only,
            )
        )

    def _managed(self, buffer: ResolvedBuffer, spec: ManagedBuffer, common: dict[str, Any]) -> None:
        self.steps.append(steps.CreateManagedBuffer(size=spec.size, flags=_ATTACH[spec.attach], **common))
        if spec.attach_to is not None:
            on = self._stream_device(spec.attach_to.stream)
            self.steps.append(
                steps.AttachStream(
                    name=buffer.name,
                    stream=spec.attach_to.stream,
                    on=on,
                    mode=spec.attach_to.mode,
                    flags=_ATTACH[spec.attach_to.mode],
                    origin=self.plan.span(*buffer.path, "attach_to"),
                )
            )
            self.enqueued[spec.attach_to.stream, on] = None
        for number, advice in enumerate(spec.advice):
            at, size = _range(advice.range, spec.size)
            self.steps.append(
                steps.Advise(
                    name=buffer.name,
                    advice=advice.advise,
                    value=ADVICE[advice.advise],
                    # HIP ignores the device where the plan has none, but still checks that it exists.
                    device=self.ordinal(advice.device) if advice.device else 0,
                    offset=at,
                    size=size,
                    origin=self.plan.span(*buffer.path, "advice", number),
                )
            )
        for number, prefetch in enumerate(spec.prefetch):
            at, size = _range(prefetch.range, spec.size)
            to, stream = self.ordinal(prefetch.to), prefetch.stream or ""
            if stream:
                on = self._stream_device(stream)
            else:  # the null stream of where it goes; the host has none
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


def _register(spec: RegisteredBuffer, size: int, document: str, common: dict[str, Any]) -> steps.RegisterBuffer:
    fresh = spec.anonymous
    return steps.RegisterBuffer(
        size=size,
        flags=spec.portable * 1 | spec.mapped * 2 | spec.read_only * 8,
        file=str(PurePath(document).parent / spec.file) if spec.file else "",
        bind=spec.bind or "",
        read_only=spec.read_only,
        numa_node=-1 if fresh is None or fresh.numa_node is None else fresh.numa_node,
        huge_pages=0 if fresh is None else _HUGE_PAGES[fresh.huge_pages],
        **common,
    )


def _range(part: object, whole: int) -> tuple[int, int]:
    """(offset, size) in bytes of a range of a buffer."""
    if part is None:
        return 0, whole
    at: int = part.at  # type: ignore[attr-defined]
    return at, part.size or whole - at  # type: ignore[attr-defined]


def _pinned_flags(spec: PinnedBuffer) -> int:
    """hipHostMalloc's flag word."""
    return (
        spec.portable * 1
        | spec.mapped * 2
        | spec.write_combined * 4
        | spec.uncached * 0x10000000
        | spec.numa_user * 0x20000000
        | {None: 0, True: 0x40000000, False: 0x80000000}[spec.coherent]
    )
