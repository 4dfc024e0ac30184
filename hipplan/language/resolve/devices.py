"""Resolves names of devices, access and peer links."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import permutations
from typing import Literal

from hipplan.language.counted import LineNames, TakenNames
from hipplan.language.host import HOST, is_host
from hipplan.language.model import OTHERS, OWNER, Access, DeviceSelector, PeerLink
from hipplan.language.model.plan import Plan
from hipplan.language.objects import Path, ResolvedDevice, ResolvedPeer, bare_uuid
from hipplan.language.resolve.names import Names, families

ORDINAL_MAX = 1023
_DEVICES: Path = ("devices",)
_ORDINAL = re.compile(r"(?:(?:cuda|hip|rocm|amd|gpu):?)?([0-9]{1,4})|cuda|hip|rocm")
_WORDS = {
    HOST: "the CPU",
    OWNER: "the device that holds a part of a region",
    OTHERS: "the other devices of a region",
}
_DEFAULT_NAME = re.compile(r"gpu\.(0|[1-9][0-9]{0,3})")


class Devices:
    """The devices of one plan. more: names of devices in objects that were left out because of errors."""

    def __init__(self, plan: Plan, names: Names, more: Iterable[str] = ()) -> None:
        self.all: dict[str, ResolvedDevice] = {}
        self._names = names
        self._resolved: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
        if plan.devices:
            self._select(plan.devices)
        else:
            self._default({**dict.fromkeys(more, _DEVICES), **dict(reversed([*_names_spoken_of(plan)]))})
        self._families = families([[*self.all]], names.budget)
        self._first = next(iter(self.all), "gpu.0")

    def device(self, name: str | None, path: Path) -> str:
        """The device of this name; without a name, the first one of the plan."""
        if name is not None and name in self.all:
            return name
        if name == HOST:
            why = "only allocations, access, advice and prefetches may name it"
            self._names.report("HP201", "the host is not a device", path, why=why, hint="name a device, or remove it")
        elif name is not None:
            self._missing(name, path)
        return self._first

    def location(self, name: str | None, path: Path) -> str:
        """A device, or the host."""
        return HOST if name == HOST else self.device(name, path)

    def access(self, access: Access, path: Path) -> dict[str, str]:
        """Device -> right. A device's own name wins over patterns. Equal texts give the same dict."""
        written = tuple(access.items())
        if written in self._resolved:
            return self._resolved[written]
        resolved = self._access(access, path)
        if path[:2] not in self._names.wrong:  # not cached with errors: an unknown name is an error at each place
            self._resolved[written] = resolved
        return resolved

    def _access(self, access: Access, path: Path) -> dict[str, str]:
        links = sum(len(self._families.get(name[:-2], "")) if name.endswith(".*") else 1 for name in access)
        self._names.ask("links", links, "access", path)
        resolved: dict[str, str] = {}
        for name, right in access.items():
            if name.endswith(".*"):
                if name[:-2] not in self._families:
                    self._missing(name, (*path, name), key=True)
                resolved.update(dict.fromkeys(self._families.get(name[:-2], ()), right))
        for name, right in access.items():
            if name in self.all or name == HOST:
                resolved[name] = right
            elif not name.endswith(".*"):
                self._missing(name, (*path, name), key=True)
        return resolved

    @property
    def first(self) -> str:
        """The first device of the plan."""
        return self._first

    def holder(self, name: str | None, path: Path, why_not: str = "") -> str:
        """A device, or the host on some node. why_not: why the host cannot hold the memory; empty if it can."""
        if name is None or not is_host(name):
            return self.device(name, path)
        if why_not:
            self._names.report(
                "HP201", "the host is not a device", path, why=why_not, hint="name a device, or remove it"
            )
        return name

    def several(self, names: list[str], path: Path, why_not: str = "") -> tuple[str, ...]:
        """Devices by name or pattern, and the host as in holder(), each once."""
        members_named: dict[str, None] = {}
        for index, name in enumerate(names):
            members: LineNames = []
            if name.endswith(".*"):
                members = self._families.get(name[:-2], [])
            elif name in self.all or is_host(name):
                members = [self.holder(name, (*path, index), why_not)]
            self._names.ask("links", len(members), f"'{name}'", (*path, index))
            if not members:
                self._missing(name, (*path, index))
            if twice := next((member for member in members if member in members_named), ""):
                self._names.report("HP209", f"{twice} appears twice", (*path, index), hint="remove one")
            members_named |= dict.fromkeys(members)
        return tuple(members_named) or (self._first,)

    def peers(self, links: Literal["all"] | list[PeerLink]) -> tuple[ResolvedPeer, ...]:
        """Directed links, each once."""
        if links == "all":
            self._names.ask("links", len(self.all) * (len(self.all) - 1), "peers: all", ("peers",))
            return tuple(ResolvedPeer(*pair, ("peers",)) for pair in permutations(self.all, 2))
        resolved: dict[tuple[str, str], ResolvedPeer] = {}
        for index, link in enumerate(links):
            path, pair = ("peers", index), (link.device, link.peer)
            self.device(link.device, (*path, "device"))
            self.device(link.peer, (*path, "peer"))
            if link.device == link.peer:
                at = (*path, "peer")
                self._names.report("HP209", f"{link.peer} cannot be a peer of itself", at, hint="name another device")
            elif pair in resolved:
                summary = f"the link from {link.device} to {link.peer} appears twice"
                self._names.report("HP209", summary, path, hint="remove one")
            else:
                resolved[pair] = ResolvedPeer(*pair, path)
        return tuple(resolved.values())

    def _select(self, selectors: dict[str, DeviceSelector]) -> None:
        taken = {
            selector.ordinal + i
            for selector in selectors.values()
            if selector.ordinal is not None
            for i in range(selector.count or 1)
        }
        free = 0
        for alike, path, selector in self._names.spread("devices", selectors, TakenNames()):
            for name in alike:
                ordinal: int | None = None
                if selector.ordinal is not None:
                    ordinal = selector.ordinal + (int(name.rpartition(".")[2]) if selector.count else 0)
                elif not (selector.uuid or selector.pci or selector.current):
                    while free in taken:
                        free += 1
                    ordinal = free
                    taken.add(free)
                self.all[name] = ResolvedDevice(name, selector, ordinal, path)
        self._check_twins()
        for word, meaning in {**_WORDS, **{name: _WORDS[HOST] for name in selectors if is_host(name)}}.items():
            if word in selectors:
                summary = f"{word} cannot be the name of a device"
                self._names.report(
                    "HP106", summary, ("devices", word), key=True, why=f"the name is reserved for {meaning}"
                )

    def _check_twins(self) -> None:
        """Check for two names of one device, as far as the plan shows it. HP310 finds the rest on a machine."""
        first: dict[tuple[str, object], ResolvedDevice] = {}
        reported: set[Path] = set()
        for name, device in self.all.items():
            key, value = _identity(device)
            twin = first.setdefault((key, value), device)
            if twin is device or device.path in reported:
                continue
            reported.add(device.path)
            where = self._names.span(twin.path, key=True)
            self._names.report(
                "HP214",
                f"'{name}' and '{twin.name}' are the same device",
                (*device.path, key),
                label=f"also '{twin.name}', line {where.line}" if where and where.line else "",
                why="every name in a plan is a different device",
                hint=f"use '{twin.name}' for both, or choose another device",
            )

    def _default(self, spoken: Mapping[str | None, Path]) -> None:
        """Make the default devices: gpu.0 to the highest that is used. spoken: each name, and its first place."""
        selector = DeviceSelector()
        highest = max(_ordinals(spoken), default=0)
        last = spoken.get(f"gpu.{highest}", _DEVICES)
        for ordinal in range(highest + 1):
            name = f"gpu.{ordinal}"
            self.all[name] = ResolvedDevice(name, selector, ordinal, spoken.get(name, last))

    def _missing(self, name: str, path: Path, *, key: bool = False) -> None:
        members = self._families.get(name.removesuffix(".*"))
        hint = f"it stands for several devices: write one of them, such as {members[0]}" if members else ""
        if _DEFAULT_NAME.fullmatch(name) and int(name[4:]) > ORDINAL_MAX:
            hint = f"ordinals go up to {ORDINAL_MAX}"

        def known() -> Iterator[str]:
            yield from (f"{family}.*" for family in self._families) if name.endswith(".*") else (*self.all, HOST)
            if path[0] == "regions" and "access" in path:
                yield from (OWNER, OTHERS)

        self._names.missing(
            "HP201", "devices", name, path, known, key=key, hint=hint, otherwise=lambda: self._meant(name)
        )

    def _meant(self, name: str) -> str:
        """The hint for a name in PyTorch's form, or for a number alone."""
        if name == "cpu":
            return "the CPU is named host"
        if name in (OWNER, OTHERS):
            return f"{name} is only for the access of regions"
        if name in ("all", "*") and self._families:
            return f"write {next(iter(self._families))}.* for all devices of that name"
        if not (number := _ORDINAL.fullmatch(name)):
            return ""
        ordinal = int(number[1] or 0)
        named = next((device.name for device in self.all.values() if device.ordinal == ordinal), None)
        return (
            f"device {ordinal} is '{named}'" if named else f"define it under devices:, as gpu: {{ordinal: {ordinal}}}"
        )


def _identity(device: ResolvedDevice) -> tuple[str, object]:
    """(key that chooses the device, its value in normal form)."""
    selector = device.selector
    if selector.uuid:
        return "uuid", bare_uuid(selector.uuid)
    if selector.pci:
        return "pci", selector.pci.lower()
    return ("current", True) if selector.current else ("ordinal", device.ordinal)


def _ordinals(names: Iterable[str | None]) -> Iterator[int]:
    """The N of every gpu.N among the names."""
    for name in names:
        match = _DEFAULT_NAME.fullmatch(name or "")
        if match and int(match[1]) <= ORDINAL_MAX:
            yield int(match[1])


def _names_spoken_of(plan: Plan) -> Iterator[tuple[str | None, Path]]:
    """Each used name of a device, and its place."""
    for name, allocation in plan.allocations.items():
        yield allocation.device, ("allocations", name, "device")
    for name, stream in plan.streams.items():
        yield stream.device, ("streams", name, "device")
    for index, link in enumerate(plan.peers if plan.peers != "all" else ()):
        yield from ((link.device, ("peers", index, "device")), (link.peer, ("peers", index, "peer")))
    for name, reservation in plan.reservations.items():
        yield from _with_rights(reservation.access, ("reservations", name))
        for index, mapping in enumerate(reservation.mappings):
            yield from _with_rights(mapping.access, ("reservations", name, "mappings", index))
    for name, buffer in plan.buffers.items():
        at = ("buffers", name)
        yield buffer.device, (*at, "device")
        yield from ((use.device, (*at, *use.where, use.device_key)) for use in buffer.uses() if use.device_key)
    for name, region in plan.regions.items():
        at = ("regions", name)
        yield region.device, (*at, "device")
        yield from ((device, (*at, "devices", index)) for index, device in enumerate(region.devices or ()))
        yield from _with_rights(region.access, at)


def _with_rights(access: Access | None, path: Path) -> Iterator[tuple[str, Path]]:
    return ((name, (*path, "access", name)) for name in access or ())
