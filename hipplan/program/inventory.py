"""The objects of a program as people and reports see them, made from its steps: a program says nothing twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hipplan.language.objects import HOST
from hipplan.program import steps
from hipplan.program.alterations import ReserveBeside, Rights
from hipplan.program.regions import PlacedRegion, mapping_of
from hipplan.program.resources import Access, Resource
from hipplan.program.steps import CPU_ORDINAL, whole_name


def resources_of(
    all_steps: Sequence[steps.Step],
    regions: Mapping[str, PlacedRegion],
    devices: Mapping[str, int],
    sealed: Container[str] = (),
) -> tuple[Resource, ...]:
    """In the order of the steps. devices: the plan's names -> ordinals. sealed: mappings."""
    found: dict[str, Resource] = {}
    for resource in _Inventory(all_steps, regions, devices, sealed).resources():
        known = found.get(resource.name)
        found[resource.name] = resource if known is None else replace(known, size=known.size + resource.size)
    return tuple(found.values())


class _Inventory:
    def __init__(
        self,
        all_steps: Sequence[steps.Step],
        regions: Mapping[str, PlacedRegion],
        devices: Mapping[str, int],
        sealed: Container[str],
    ) -> None:
        self.steps = all_steps
        self.regions = regions
        self.sealed = sealed
        self.names = {ordinal: name for name, ordinal in devices.items()} | {CPU_ORDINAL: HOST}
        self.rights = {step.name: step.rights for step in all_steps if type(step) is steps.SetAccess}
        self.beside = {step.name: step for step in all_steps if type(step) is ReserveBeside}
        self.more: Counter[str] = Counter()
        """Reservation -> bytes of addresses that were added behind it."""
        for step in self.beside.values():
            self.more[step.follows] += step.size
        self.holder: dict[str, str] = {}
        """Allocation -> the device it is on."""
        self._access: dict[Rights, Access] = {(): ()}

    def resources(self) -> Iterator[Resource]:
        """Of memory in several pieces, one for each."""
        for step in self.steps:
            see = _KINDS.get(type(step))
            if see is not None:
                yield from see(self, step)

    def access(self, mapping: str) -> Access:
        """Thousands of mappings have one in common."""
        given = self.rights.get(mapping, ())
        if given not in self._access:
            self._access[given] = tuple((self.names[who], right) for who, right in given)
        return self._access[given]

    def allocation(self, step: steps.CreateAllocation | steps.ImportAllocation) -> Iterator[Resource]:
        imported = isinstance(step, steps.ImportAllocation)
        on_host = isinstance(step, steps.CreateAllocation) and step.location != "device"
        device = HOST if on_host else self.names[step.device]
        self.holder[step.name] = device
        name = whole_name(step.name)
        asked, size = step.asked, step.size
        yield Resource(name=name, kind="allocation", device=device, asked=asked, size=size, imported=imported)

    def reservation(self, step: steps.Reserve) -> Iterator[Resource]:
        if step.name in self.regions:
            placed = self.regions[step.name]
            access = {device: mapping_of(step.name, number) for number, (device, _) in enumerate(placed.chunks)}
            sealed = mapping_of(step.name, 0) in self.sealed
            yield from placed.resources({device: self.access(one) for device, one in access.items()}, sealed=sealed)
            return
        more = self.more[step.name]
        asked, size = step.asked + more, step.size + more
        yield Resource(name=step.name, kind="reservation", device="", asked=asked, size=size)

    def mapping(self, step: steps.Map) -> Iterator[Resource]:
        beside = self.beside.get(step.reservation)
        yield Resource(
            name=whole_name(step.name),
            kind="mapping",
            device=self.holder[step.allocation],
            asked=step.asked,
            size=step.size,
            access=self.access(step.name),
            sealed=whole_name(step.name) in self.sealed,
            inside=step.reservation if beside is None else beside.follows,
            offset=step.offset if beside is None else beside.at + step.offset,
            memory=whole_name(step.allocation),
        )

    def peer(self, step: steps.EnablePeer) -> Iterator[Resource]:
        yield Resource(name=step.name, kind="peer", device=self.names[step.device])

    def stream(self, step: steps.CreateStream) -> Iterator[Resource]:
        yield Resource(name=step.name, kind="stream", device=self.names[step.device])

    def device_buffer(self, step: steps.CreateDeviceBuffer) -> Iterator[Resource]:
        yield self._buffer(step, "device", self.names[step.device])

    def pinned(self, step: steps.CreatePinnedBuffer) -> Iterator[Resource]:
        yield self._buffer(step, "pinned", HOST)

    def registered(self, step: steps.RegisterBuffer) -> Iterator[Resource]:
        yield replace(self._buffer(step, "registered", HOST), read_only=step.read_only)

    def managed(self, step: steps.CreateManagedBuffer) -> Iterator[Resource]:
        yield self._buffer(step, "managed", self.names[step.device])

    def _buffer(self, step: Any, kind: str, device: str) -> Resource:
        return Resource(name=step.name, kind=kind, device=device, asked=step.size, size=step.size)


_KINDS: dict[type[steps.Step], Any] = {
    steps.EnablePeer: _Inventory.peer,
    steps.CreateAllocation: _Inventory.allocation,
    steps.ImportAllocation: _Inventory.allocation,
    steps.Reserve: _Inventory.reservation,
    steps.Map: _Inventory.mapping,
    steps.CreateStream: _Inventory.stream,
    steps.CreateDeviceBuffer: _Inventory.device_buffer,
    steps.CreatePinnedBuffer: _Inventory.pinned,
    steps.RegisterBuffer: _Inventory.registered,
    steps.CreateManagedBuffer: _Inventory.managed,
}
