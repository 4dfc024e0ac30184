"""The steps of virtual memory: allocations, ranges, mappings with their rights, and the regions made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hipplan.errors import Span
from hipplan.kinds.allocation.live import CreateAllocation, ImportAllocation
from hipplan.kinds.mapping.live import Map, Rights, SetAccess, rights_of
from hipplan.kinds.reservation.live import Reserve
from hipplan.language.findings import Findings
from hipplan.language.host import HOST, is_host
from hipplan.language.loader import LoadedPlan
from hipplan.language.objects import AllocationLine, Path, ResolvedAllocation, ResolvedReservation
from hipplan.machines.machine import FALLBACK_GRANULARITY, Machine
from hipplan.program import ranges, region_steps, regions, steps
from hipplan.program.count_runs import CountMappingRun, CountRun
from hipplan.program.on_demand import are_many
from hipplan.program.regions import PlacedRegion, memory_of
from hipplan.program.runs import alike
from hipplan.program.series import Parts, Series
from hipplan.units import PAGE, round_up


class AlikeAllocations(NamedTuple):
    """What all allocations of one line of the plan have in common."""

    made: Callable[[str], steps.Step]
    """Makes the step of the allocation with this name."""
    size: int
    """Bytes, padded."""
    step: int
    """Offsets and sizes of its mappings must be multiples of this."""


class _Region(NamedTuple):
    """A region of the plan, while its steps are made."""

    placed: PlacedRegion
    span: Span | None
    kinds: list[AlikeAllocations]
    """What the chunks of each kind have in common."""
    made: region_steps.RegionSteps


class VirtualMemory:
    """Makes the steps for the virtual memory of a plan."""

    def __init__(self, plan: LoadedPlan, machine: Machine, devices: dict[str, int], findings: Findings) -> None:
        self._plan = plan
        self._machine = machine
        self._devices = devices
        self._findings = findings
        self._granularities: dict[tuple[str, str], int] = {}
        self._parts: Parts[steps.Step] = Parts()
        self._memory: dict[int, AlikeAllocations] = {}
        """By the id of a ResolvedAllocation: those of one line of the plan share it."""
        self._runs: dict[int, CountRun] = {}
        """By the id of the names."""
        self.alike: list[tuple[steps.Step, int]] = []
        """(step, how many like it) of the steps that make memory."""
        self._rights: dict[int, Rights] = {}
        """By the id of an access, which mappings share."""
        self.regions = regions.lay_out(plan, self.recommended, findings)

    def all_steps(self) -> Series[steps.Step]:
        """Allocations, then each range with its mappings and their rights."""
        objects, parts = self._plan.objects, self._parts
        for line in objects.allocations.lines:
            if line.names:
                self._allocations(line)
        of_regions = [self._region(placed) for placed in self.regions.values()]
        for region in of_regions:
            for memory in region.made.memory():
                parts.extend(memory)
                self.alike += alike(memory)
        for reservation in objects.reservations.values():
            self._reservation(reservation)
        for region in of_regions:
            self._range(region)
            for mapped in region.made.mappings():
                parts.extend(mapped)
        return parts.series()

    def _allocations(self, line: AllocationLine) -> None:
        memory, names = line
        alike = self._alike(names[0], memory, self._plan.span(*memory.path))
        first = alike.made(names[0])
        self._memory[id(memory)] = alike
        self.alike.append((first, len(names)))
        if not isinstance(names, list) and are_many(len(names)):
            run = CountRun(names.of, range(len(names)), first)
            self._runs[id(names)] = run
            self._parts.extend(run)
        else:
            self._parts.extend(map(alike.made, names))

    def recommended(self, device: str) -> int:
        """The granularity of regions."""
        return self._granularity(device, "recommended")

    def _granularity(self, device: str, which: str) -> int:
        """In bytes, of memory on a device or on the host, which ROCm allocates in pages."""
        if (device, which) not in self._granularities:
            known = None if is_host(device) else self._machine.devices[self._devices[device]]
            own = getattr(known, f"granularity_{which}", None)
            of_host = self._machine.host_granularity or PAGE
            self._granularities[device, which] = of_host if known is None else own or FALLBACK_GRANULARITY
        return self._granularities[device, which]

    def _alike(self, name: str, allocation: ResolvedAllocation, span: Span | None) -> AlikeAllocations:
        """What the allocations of one line of the plan have in common. name: of the first of them. span: of the
        line."""
        spec = allocation.spec
        size = round_up(spec.size, self._granularity(allocation.device, spec.granularity))
        if allocation.path[0] == "allocations":  # a region reports its range
            ranges.check_size(name, size, "padding", span, self._findings)
        if spec.bind is not None:
            step: steps.Step = ImportAllocation(
                name=name,
                bind=spec.bind,
                device=steps.CPU_ORDINAL if allocation.device == HOST else self._devices[allocation.device],
                size=size,
                asked=spec.size,
                origin=span,
            )
        else:
            on_host = allocation.device == HOST
            location = "host_numa" if spec.numa_node is not None else "host" if on_host else "device"
            step = CreateAllocation(
                name=name,
                device=(spec.numa_node or 0) if on_host else self._devices[allocation.device],
                size=size,
                asked=spec.size,
                type=spec.type,
                location=location,
                shareable=spec.shareable,
                rdma=spec.rdma,
                origin=span,
            )
        return AlikeAllocations(steps.named(step), size, self._granularity(allocation.device, "minimum"))

    def _region(self, placed: PlacedRegion) -> _Region:
        name, span = memory_of(placed.region.name, 0), self._plan.span(*placed.region.path)
        allocations = region_steps.allocations_of(placed)
        kinds = {kind: self._alike(name, allocation, span) for kind, allocation in allocations.items()}
        makers = {kind: memory.made for kind, memory in kinds.items()}
        return _Region(placed, span, [*kinds.values()], region_steps.RegionSteps(placed, makers, self._devices, span))

    def _range(self, region: _Region) -> None:
        """The range of a region."""
        placed = region.placed
        range_ = ResolvedReservation(placed.region.name, region_steps.range_of(placed), (), placed.region.path)
        step = max((kind.step for kind in region.kinds), default=FALLBACK_GRANULARITY)
        size = self._reserve(range_, placed.mapped, step, region.span)
        if placed.mapped > size or any(kind.size % step for kind in region.kinds):
            lines = [*region_steps.all_mappings(placed)]
            ranges.check_range(self._plan, range_, lines, size, step, self._findings)

    def _reservation(self, reservation: ResolvedReservation) -> None:
        placed, step = self._placed(reservation)
        end = max([line.end for line in placed], default=0)
        size = self._reserve(reservation, end, step, self._plan.span(*reservation.path))
        ranges.check_range(self._plan, reservation, placed, size, step, self._findings)
        self._map(reservation.name, placed)

    def _reserve(self, reservation: ResolvedReservation, end: int, step: int, span: Span | None) -> int:
        """The step that reserves a range, and its bytes. end: of its last mapping. step: its size and address must be
        multiples of this. span: of its line in the plan."""
        spec = reservation.spec
        size = round_up(spec.size or end, step)
        alignment = max(spec.alignment, PAGE) if spec.alignment else 0  # HIP 6.1 refuses less than its granularity
        exact = spec.address_policy == "exact"
        slack = round_up(alignment, step) if alignment > PAGE and not exact else 0
        ranges.check_size(reservation.name, size + slack, "padding and alignment", span, self._findings)
        self._parts.append(
            Reserve(
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
        return size

    def _placed(self, reservation: ResolvedReservation) -> tuple[list[ranges.PlacedLine], int]:
        """The mappings of each line; one without `at` follows the one before it. Also returns what the reservation's
        place and size must be multiples of."""
        allocations, placed = self._plan.objects.allocations, []
        end, multiple = 0, 0
        for line in reservation.lines:
            mapping = line.first
            _, whole, step = self._memory[id(allocations[mapping.allocation])]
            size = whole if mapping.whole else min(round_up(mapping.size, step), whole)
            there = ranges.PlacedLine(line, end if mapping.follows else mapping.at, size)
            placed.append(there)
            end, multiple = there.end, step if step > multiple else multiple
        return placed, multiple or FALLBACK_GRANULARITY

    def _map(self, reservation: str, placed: list[ranges.PlacedLine]) -> None:
        path: Path = ()
        span: Span | None = None
        for there in placed:
            line, at, size = there
            mapping = line.first
            if mapping.path is not path:  # thousands have one in common
                path, span = mapping.path, self._plan.span(*mapping.path)
            if id(mapping.access) not in self._rights:
                self._rights[id(mapping.access)] = rights_of(mapping.access, self._devices)
            rights = self._rights[id(mapping.access)]
            if (memory := self._runs.get(id(line.memory))) is not None:
                sizes = size, mapping.size
                self._parts.extend(CountMappingRun(reservation, line.number, memory, at, sizes, span, rights))
                continue
            for member, start, _ in there.members():
                self._parts.append(Map(member.name, span, reservation, member.allocation, start, size, mapping.size))
                if rights:
                    self._parts.append(SetAccess(member.name, span, rights))
