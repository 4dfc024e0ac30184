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
from hipplan.language.objects import Path, ResolvedAllocation, ResolvedReservation
from hipplan.machines.machine import FALLBACK_GRANULARITY, Machine
from hipplan.program import ranges, region_steps, regions, steps
from hipplan.program.regions import PlacedRegion, memory_of
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
        self._rights: dict[int, Rights] = {}
        """By the id of an access, which mappings share."""
        self.regions = regions.lay_out(plan, self.recommended, findings)

    def all_steps(self) -> Series[steps.Step]:
        """Allocations, then each range with its mappings and their rights."""
        objects, parts = self._plan.objects, self._parts
        own: list[steps.Step] = []
        for name, allocation in objects.allocations.items():
            if id(allocation) not in self._memory:
                self._memory[id(allocation)] = self._alike(name, allocation)
            own.append(self._memory[id(allocation)].made(name))
        parts.extend(own)
        made = [(placed, self._kinds(placed)) for placed in self.regions.values()]
        of_regions = [self._region(placed, kinds) for placed, kinds in made]
        for region in of_regions:
            parts.extend(region.memory())
        for reservation in objects.reservations.values():
            self._reservation(reservation)
        for (placed, kinds), region in zip(made, of_regions, strict=True):
            self._range(placed, kinds)
            parts.extend(region.mappings())
        return parts.series()

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

    def _alike(self, name: str, allocation: ResolvedAllocation) -> AlikeAllocations:
        """What the allocations of one line of the plan have in common. name: of the first of them."""
        spec = allocation.spec
        size = round_up(spec.size, self._granularity(allocation.device, spec.granularity))
        span = self._plan.span(*allocation.path)
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

    def _kinds(self, placed: PlacedRegion) -> dict[region_steps.Kind, AlikeAllocations]:
        """What the chunks of each kind have in common."""
        name = memory_of(placed.region.name, 0)
        return {kind: self._alike(name, memory) for kind, memory in region_steps.allocations_of(placed).items()}

    def _region(
        self, placed: PlacedRegion, kinds: dict[region_steps.Kind, AlikeAllocations]
    ) -> region_steps.RegionSteps:
        makers = {kind: memory.made for kind, memory in kinds.items()}
        return region_steps.RegionSteps(placed, makers, self._devices, self._plan.span(*placed.region.path))

    def _range(self, placed: PlacedRegion, kinds: dict[region_steps.Kind, AlikeAllocations]) -> None:
        """The range of a region."""
        range_ = ResolvedReservation(placed.region.name, region_steps.range_of(placed), (), placed.region.path)
        step = max((alike.step for alike in kinds.values()), default=FALLBACK_GRANULARITY)
        size = self._reserve(range_, placed.mapped, step)
        if placed.mapped > size or any(alike.size % step for alike in kinds.values()):
            mappings = [*region_steps.all_mappings(placed)]
            ranges.check_range(self._plan, range_, mappings, size, step, self._findings)

    def _reservation(self, reservation: ResolvedReservation) -> None:
        placed, step = self._placed(reservation)
        end = max([at + size for _, at, size in placed], default=0)
        size = self._reserve(reservation, end, step)
        ranges.check_range(self._plan, reservation, placed, size, step, self._findings)
        self._map(reservation.name, placed)

    def _reserve(self, reservation: ResolvedReservation, end: int, step: int) -> int:
        """The step that reserves a range, and its bytes. end: of its last mapping. step: its size and address must be
        multiples of this."""
        spec = reservation.spec
        size = round_up(spec.size or end, step)
        alignment = max(spec.alignment, PAGE) if spec.alignment else 0  # HIP 6.1 refuses less than its granularity
        exact = spec.address_policy == "exact"
        slack = round_up(alignment, step) if alignment > PAGE and not exact else 0
        span = self._plan.span(*reservation.path)
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

    def _placed(self, reservation: ResolvedReservation) -> tuple[list[ranges.Placed], int]:
        """(mapping, offset, padded size) in bytes; a mapping without `at` follows the one before it. Also returns what
        the reservation's place and size must be multiples of."""
        allocations, out = self._plan.objects.allocations, []
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
        made: list[steps.Step] = []
        for mapping, at, size in placed:
            if mapping.path is not path:  # thousands have one in common
                path, span = mapping.path, self._plan.span(*mapping.path)
            made.append(Map(mapping.name, span, reservation, mapping.allocation, at, size, mapping.size))
            if id(mapping.access) not in self._rights:
                self._rights[id(mapping.access)] = rights_of(mapping.access, self._devices)
            if rights := self._rights[id(mapping.access)]:
                made.append(SetAccess(mapping.name, span, rights))
        self._parts.extend(made)
