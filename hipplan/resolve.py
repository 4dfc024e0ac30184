"""Plan -> Objects: spreads counts and patterns, resolves names, checks the arithmetic of the plan alone.

It goes on after a mistake, so that one run tells them all; what depends on something wrong is left out
quietly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import permutations
from typing import TypeVar

from hipplan.errors import Diagnostic, Span
from hipplan.model import Access, DeviceSelector, ManagedBuffer, Plan
from hipplan.model.base import COUNT_MAX
from hipplan.model.buffers import ByteRange
from hipplan.model.translate import suggest
from hipplan.model.virtual import Mapping
from hipplan.objects import (
    HOST,
    Objects,
    Path,
    ResolvedAllocation,
    ResolvedBuffer,
    ResolvedDevice,
    ResolvedMapping,
    ResolvedPeer,
    ResolvedReservation,
    ResolvedStream,
)
from hipplan.units import format_size

T = TypeVar("T")
SpanOf = Callable[..., "Span | None"]
_NO_SELECTOR = DeviceSelector()
_DEFAULT_DEVICE = re.compile(r"gpu\.(0|[1-9][0-9]{0,3})")


def resolve(
    plan: Plan, span: SpanOf, broken: frozenset[str] = frozenset()
) -> tuple[Objects, list[Diagnostic]]:
    """The objects of a plan and everything that is wrong with it.

    `broken` are names whose own definition is wrong already: whoever refers to them is not told again.
    """
    resolver = _Resolver(plan, span, broken)
    return resolver.run(), resolver.found


class _Resolver:
    def __init__(self, plan: Plan, span: SpanOf, broken: frozenset[str]) -> None:
        self.plan = plan
        self.span = span
        self.broken = broken
        self.found: list[Diagnostic] = []
        self.budget = COUNT_MAX
        self.names: dict[str, Path] = {}
        self.devices: dict[str, ResolvedDevice] = {}
        self.families: dict[str, list[str]] = {}
        self.allocations: dict[str, ResolvedAllocation] = {}
        self.allocation_families: dict[str, list[str]] = {}

    def run(self) -> Objects:
        plan = self.plan
        self._resolve_devices()
        first = next(iter(self.devices), "gpu.0")
        for name, path, allocation in self._spread("allocations", plan.allocations):
            device = self._location(allocation.device, (*path, "device"), first)
            self.allocations[name] = ResolvedAllocation(name, allocation, device, path)
        for name in self.allocations:
            for family in _families_of(name):
                self.allocation_families.setdefault(family, []).append(name)
        streams = {
            name: ResolvedStream(name, self._device(stream.device, (*path, "device"), first), path)
            for name, path, stream in self._spread("streams", plan.streams)
        }
        reservations = {
            name: ResolvedReservation(name, spec, tuple(self._mappings(name, path)), path)
            for name, path, spec in self._spread("reservations", plan.reservations)
        }
        buffers = {}
        for name, path, buffer in self._spread("buffers", plan.buffers):
            buffers[name] = ResolvedBuffer(
                name, buffer, self._device(buffer.device, (*path, "device"), first), path
            )
            if isinstance(buffer, ManagedBuffer):
                self._check_managed(buffer, path, streams)
        peers = tuple(self._peers())
        for reservation in reservations.values():
            self._check_mappings(reservation)
        return Objects(self.devices, peers, self.allocations, reservations, streams, buffers)

    # Devices

    def _resolve_devices(self) -> None:
        selectors = self.plan.devices
        if not selectors:
            highest = max(self._default_ordinals(), default=0)
            for ordinal in range(highest + 1):
                self.devices[f"gpu.{ordinal}"] = ResolvedDevice(
                    f"gpu.{ordinal}", _NO_SELECTOR, ordinal, ("devices",)
                )
        taken = {
            s.ordinal + i for s in selectors.values() if s.ordinal is not None for i in range(s.count or 1)
        }
        free = 0
        for name, path, selector in self._spread("devices", selectors, {}):
            ordinal: int | None = None
            if selector.ordinal is not None:
                ordinal = selector.ordinal + (int(name.rpartition(".")[2]) if selector.count else 0)
            elif not (selector.uuid or selector.pci or selector.current):
                while free in taken:
                    free += 1
                ordinal = free
                taken.add(free)
            self.devices[name] = ResolvedDevice(name, selector, ordinal, path)
        for name in self.devices:
            for family in _families_of(name):
                self.families.setdefault(family, []).append(name)
        if HOST in selectors:
            self._report(
                "HP106",
                "host cannot be the name of a device",
                ("devices", HOST),
                why="host means the CPU",
            )

    def _default_ordinals(self) -> Iterator[int]:
        """The ordinals of the gpu.N that a plan without devices: speaks of."""
        plan = self.plan
        names: list[str | None] = [
            x.device for part in (plan.allocations, plan.streams, plan.buffers) for x in part.values()
        ]  # type: ignore[attr-defined]
        names += [
            name for link in plan.peers if not isinstance(link, str) for name in (link.device, link.peer)
        ]
        for reservation in plan.reservations.values():
            names += reservation.access
            names += [name for mapping in reservation.mappings for name in mapping.access or ()]
        for buffer in plan.buffers.values():
            if isinstance(buffer, ManagedBuffer):
                names += [advice.device for advice in buffer.advice] + [
                    prefetch.to for prefetch in buffer.prefetch
                ]
        for name in set(names):
            match = _DEFAULT_DEVICE.fullmatch(name or "")
            if match and int(match[1]) < 1024:
                yield int(match[1])

    def _device(self, name: str | None, path: Path, default: str) -> str:
        if name is None or name in self.devices:
            return name or default
        self._no_device(name, path)
        return default

    def _location(self, name: str | None, path: Path, default: str) -> str:
        return HOST if name == HOST else self._device(name, path, default)

    def _no_device(self, name: str, path: Path, *, key: bool = False) -> None:
        if self._is_broken("devices", name):
            return
        members = self.families.get(name.removesuffix(".*"), [])
        if members:
            hint = f"one of them: {members[0]}"
        elif self.plan.devices or not _DEFAULT_DEVICE.fullmatch(name):
            known = [*self.devices, HOST]
            hint = suggest(name, known) or f"the devices of this plan are {_listed(self.devices)}"
        else:
            hint = "ordinals go up to 1023"
        self._report("HP201", f"there is no device '{name}'", path, key=key, hint=hint)

    def _access(self, access: Access, path: Path) -> dict[str, str]:
        """Patterns first, so that a device named by itself says the last word."""
        resolved: dict[str, str] = {}
        for name, right in access.items():
            if name.endswith(".*"):
                members = self.families.get(name[:-2])
                if members is None:
                    self._no_device(name, (*path, name), key=True)
                resolved.update(dict.fromkeys(members or (), right))
        for name, right in access.items():
            if name in self.devices or name == HOST:
                resolved[name] = right
            elif not name.endswith(".*"):
                self._no_device(name, (*path, name), key=True)
        return resolved

    def _peers(self) -> Iterator[ResolvedPeer]:
        links = self.plan.peers
        if isinstance(links, str):
            for device, peer in permutations(self.devices, 2):
                yield ResolvedPeer(device, peer, ("peers",))
            return
        seen: set[tuple[str, str]] = set()
        for index, link in enumerate(links):
            path = ("peers", index)
            known = [
                self._device(link.device, (*path, "device"), ""),
                self._device(link.peer, (*path, "peer"), ""),
            ]
            if link.device == link.peer:
                self._report(
                    "HP209",
                    f"{link.peer} cannot be a peer of itself",
                    (*path, "peer"),
                    hint="name another device",
                )
            elif (link.device, link.peer) in seen:
                self._report(
                    "HP209",
                    f"the link from {link.device} to {link.peer} stands twice",
                    path,
                    hint="remove one",
                )
            elif all(known):
                yield ResolvedPeer(link.device, link.peer, path)
            seen.add((link.device, link.peer))

    # Mappings

    def _mappings(self, name: str, path: Path) -> Iterator[ResolvedMapping]:
        reservation = self.plan.reservations[str(path[1])]
        default = self._access(reservation.access, (*path, "access"))
        number = end = 0
        for index, mapping in enumerate(reservation.mappings):
            where = (*path, "mappings", index)
            access = default if mapping.access is None else self._access(mapping.access, (*where, "access"))
            at = mapping.at
            for allocation in self._allocations_named(mapping.allocation, where):
                if not self._within_budget(where):
                    return
                whole = self.allocations[allocation].spec.size
                follows = at is None and number > 0
                start = end if at is None else at
                size = whole if mapping.size is None else mapping.size
                if size > whole:
                    self._too_much(mapping, allocation, whole, where)
                yield ResolvedMapping(
                    f"{name}[{number}]",
                    allocation,
                    start,
                    follows,
                    size,
                    mapping.size is None,
                    access,
                    where,
                )
                end, at, number = start + size, None, number + 1

    def _allocations_named(self, name: str, path: Path) -> Iterable[str]:
        if name in self.allocations:
            return (name,)
        members = self.allocation_families.get(name.removesuffix(".*"), [])
        if members and name.endswith(".*"):
            return members
        if self._is_broken("allocations", name):
            return ()
        if members:
            hint = f"it has a count: write {name}.* for all of them, or {members[0]}"
        else:
            patterns = [f"{family}.*" for family in self.allocation_families]
            hint = (
                suggest(name, [*self.allocations, *patterns])
                or f"the allocations are {_listed(self.allocations)}"
            )
        self._report("HP202", f"there is no allocation '{name}'", (*path, "allocation"), hint=hint)
        return ()

    def _too_much(self, mapping: Mapping, allocation: str, whole: int, path: Path) -> None:
        self._report(
            "HP207",
            f"{format_size(mapping.size or 0)} of '{allocation}' cannot be mapped",
            (*path, "size"),
            why=f"it has {format_size(whole)}",
            hint="leave size out to map all of it",
        )

    def _check_mappings(self, reservation: ResolvedReservation) -> None:
        """Overlaps and ends. A pattern spreads into many mappings, but its line is told about once."""
        size, told = reservation.spec.size, set()
        last: ResolvedMapping | None = None
        for mapping in sorted(reservation.mappings, key=lambda m: m.at):
            end = mapping.at + mapping.size
            if size is not None and end > size and mapping.path not in told:
                told.add(mapping.path)
                self._report(
                    "HP206",
                    f"'{mapping.allocation}' ends at {format_size(end)}, past the end of '{reservation.name}'",
                    (*mapping.path, "at"),
                    why=f"the reservation has {format_size(size)}",
                    hint="move the mapping, or leave the size of the reservation out",
                )
            if last is not None and mapping.at < last.at + last.size and mapping.path not in told:
                told.add(mapping.path)
                self._report(
                    "HP205",
                    f"'{mapping.allocation}' at {format_size(mapping.at)} overlaps '{last.allocation}'",
                    (*mapping.path, "at"),
                    why=f"'{last.allocation}' takes {format_size(last.at)} to {format_size(last.at + last.size)}",
                    hint=f"at: {format_size(last.at + last.size)} is free, or leave at out",
                )
            if last is None or end > last.at + last.size:
                last = mapping

    # Managed buffers

    def _check_managed(self, buffer: ManagedBuffer, path: Path, streams: dict[str, ResolvedStream]) -> None:
        for index, advice in enumerate(buffer.advice):
            where = (*path, "advice", index)
            self._location(advice.device, (*where, "device"), HOST)
            self._check_range(advice.range, buffer.size, where)
        for index, prefetch in enumerate(buffer.prefetch):
            where = (*path, "prefetch", index)
            self._location(prefetch.to, (*where, "to"), HOST)
            self._check_range(prefetch.range, buffer.size, where)
            self._check_stream(prefetch.stream, streams, where)
        if buffer.attach_to is not None:
            self._check_stream(buffer.attach_to.stream, streams, (*path, "attach_to"))

    def _check_range(self, part: ByteRange | None, whole: int, path: Path) -> None:
        if part is None:
            return
        end = part.at + (part.size or 1)
        if end > whole:
            at = "size" if part.size is not None and part.at < whole else "at"
            self._report(
                "HP208",
                f"the range ends at {format_size(end)}, past the end of the buffer"
                if part.size
                else "the range begins past the end of the buffer",
                (*path, "range", at),
                why=f"the buffer has {format_size(whole)}",
                hint="leave size out: the range then goes to the end",
            )

    def _check_stream(self, name: str | None, streams: dict[str, ResolvedStream], path: Path) -> None:
        if name is None or name in streams or self._is_broken("streams", name):
            return
        hint = suggest(name, streams) or (
            f"the streams are {_listed(streams)}" if streams else "define it under streams:"
        )
        self._report("HP203", f"there is no stream '{name}'", (*path, "stream"), hint=hint)

    # Names

    def _spread(
        self, noun: str, things: dict[str, T], seen: dict[str, Path] | None = None
    ) -> Iterator[tuple[str, Path, T]]:
        """Each thing by its concrete names: `kv` with a count of 2 is kv.0 and kv.1."""
        taken = self.names if seen is None else seen
        for written, thing in things.items():
            path = (noun, written)
            count = getattr(thing, "count", None)
            for name in (written,) if count is None else (f"{written}.{i}" for i in range(count)):
                if name in taken:
                    self._twice(name, taken[name], path)
                    continue
                if count is not None and not self._within_budget(path):
                    return
                taken[name] = path
                yield name, path, thing

    def _twice(self, name: str, first: Path, path: Path) -> None:
        where = self.span(first, key=True)
        self._report(
            "HP204",
            f"the name '{name}' is used twice",
            path,
            key=True,
            label=f"also in {first[0]}, line {where.line}" if where else f"also in {first[0]}",
            why="allocations, reservations, streams and buffers share their names: layout['name'] is one of them",
            hint="rename one of them",
        )

    def _within_budget(self, path: Path) -> bool:
        self.budget -= 1
        if self.budget == -1:
            self._report(
                "HP023",
                f"this makes more than {COUNT_MAX} objects",
                path,
                hint="use fewer, larger ones",
            )
        return self.budget >= 0

    def _is_broken(self, noun: str, name: str) -> bool:
        """Whether the definition of a name is wrong already, which has been said."""
        return bool(self.broken) and any(
            f"{noun}:{part}" in self.broken for part in (name.removesuffix(".*"), *_families_of(name))
        )

    def _report(self, code: str, summary: str, path: Path, *, key: bool = False, **more: str) -> None:
        self.found.append(Diagnostic(code, summary, self.span(path, key=key), **more))  # type: ignore[arg-type]


def _families_of(name: str) -> list[str]:
    """layer.3.1 belongs to layer and to layer.3."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _listed(names: Iterable[str], most: int = 6) -> str:
    known = list(names)
    return ", ".join(known[:most]) + (f" and {len(known) - most} more" if len(known) > most else "") or "none"
