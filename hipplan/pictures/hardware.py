"""The machine of a program: devices and how full they get, the host, and the links between devices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from hipplan.kinds.peer.live import EnablePeer
from hipplan.language.host import HOST
from hipplan.machines.machine import Link, Machine, MachineDevice
from hipplan.pictures.looks import OF_HOST, OF_NOBODY, OF_SIGNS, Owners
from hipplan.pictures.scene import CAME, STAYED, WENT, Box, Device, Wire
from hipplan.program import steps
from hipplan.program.program import Program
from hipplan.program.runs import alike
from hipplan.program.taking import takers
from hipplan.units import full_size, short_size

DEVICES_MAX = 64
_UNUSED_UP_TO = 16
"""A machine with at most so many devices shows all of them, a larger one only those that the plan uses."""
_SHARES_MAX = 60
"""At most so many objects of one device have a box each."""
_LINK_NAMES = {"xgmi": "xGMI", "pcie": "PCIe", "nvlink": "NVLink", "hypertransport": "HyperTransport", "qpi": "QPI"}


class Hardware:
    """The hardware of one program's machine."""

    def __init__(self, program: Program, owners: Owners, before: Program | None = None) -> None:
        self.program = program
        self.owners = owners
        self.machine = program.measured
        self._taken = taken(program)
        self._before = None if before is None else taken(before)
        self._names: dict[int, str] = {}
        for name, ordinal in program.devices.items():
            self._names.setdefault(ordinal, name)

    def ordinals(self, *, all_of_them: bool) -> list[int]:
        """Devices to draw. Those of another rank are in that rank's column."""
        used = sorted(
            {ordinal for name, ordinal in self.program.devices.items() if ordinal >= 0 and steps.RANK_SIGN not in name}
        )
        if not all_of_them or self.machine is None or len(self.machine.devices) > _UNUSED_UP_TO:
            return used[:DEVICES_MAX]
        return list(range(len(self.machine.devices)))

    def device(self, ordinal: int) -> Device:
        name = self._names.get(ordinal, "")
        known = self.machine.devices[ordinal] if self.machine and ordinal < len(self.machine.devices) else None
        about = [f"device {ordinal}"] + ([_short_name(known), known.arch or ""] if known else [])
        what = ", ".join(filter(None, about))
        names = [name for name, number in self.program.devices.items() if number == ordinal]
        in_use = known.in_use if known else 0
        beside = sum(self.program.beside.get(name, 0) for name in names)
        boxes = [*self._boxes(ordinal, name, in_use, beside)]
        memory = known.memory if known else None
        used = sum(size for size in self._taken.get(ordinal, {}).values())
        title = [", ".join(names) or f"device {ordinal}: not in the plan", what]
        title.append(f"the plan takes {full_size(used)}" + (f" of {full_size(memory)}" if memory else ""))
        if self._before is not None:
            title.append(f"before: {full_size(sum(self._before.get(ordinal, {}).values()))}")
        return Device(
            name=", ".join(names[:2]) + " …" * (len(names) > 2),
            what=what,
            memory=memory,
            boxes=tuple(boxes),
            look=self._look(name),
            title="\n".join(title),
            ordinal=ordinal,
            numa_node=known.numa_node if known else None,
        )

    def _look(self, name: str) -> str:
        if self._before is not None:
            return OF_NOBODY  # in a difference, colours show changes, not devices
        return self.owners.look(self.program, name) if name else "unused"

    def host(self) -> Device | None:
        """The host's memory, if the plan uses some or its size is known."""
        boxes = [*self._boxes(steps.CPU_ORDINAL, HOST, 0, 0)]
        memory = self.machine.host_memory if self.machine else None
        if not boxes and memory is None:
            return None
        used = sum(self._taken.get(steps.CPU_ORDINAL, {}).values())
        title = f"host\nthe plan takes {full_size(used)}" + (f" of {full_size(memory)}" if memory else "")
        return Device(name=HOST, what="", memory=memory, boxes=tuple(boxes), look=OF_HOST, title=title)

    def _boxes(self, ordinal: int, name: str, in_use: int, beside: int) -> Iterator[Box]:
        """The objects that take memory on a device, side by side; many small ones as one box."""
        at = 0
        for size, word in ((in_use, "in use by others"), (beside, "other ranks")):
            if size:
                yield Box(at, at + size, "inuse", word, f"{word}: {full_size(size)}")
                at += size
        now = self._taken.get(ordinal, {})
        if self._before is None:
            looks = {self.owners.look(self.program, name): now}
        else:
            looks = _changes(self._before.get(ordinal, {}), now)
        for look, taken_by in looks.items():
            for what, size in _largest(taken_by):
                yield Box(at, at + size, look, what, f"{what}: {full_size(size)}")
                at += size

    def wires(self, ordinals: Iterable[int]) -> Iterator[Wire]:
        """Links between these devices, and the access that the plan gives."""
        drawn = list(ordinals)
        if self.machine is not None:
            by_type: dict[str, set[tuple[int, int]]] = defaultdict(set)
            by_link = _by_link(self.machine, drawn)
            for (name, _), pairs in sorted(by_link.items()):
                by_type[name] |= pairs
            for name, pairs in by_type.items():
                yield from _wires(pairs, "link", _LINK_NAMES.get(name, "link"))
                hops = sorted(hops for link_name, hops in by_link if link_name == name)
                for near in hops if len(hops) > 1 else ():
                    if near > 0:
                        label = f"{near} hop{'s' * (near > 1)}"
                        yield from _wires(by_link[name, near], "link", label)
        peers = {(step.device, step.peer) for step in self.program.steps if isinstance(step, EnablePeer)}
        among = {pair for pair in peers if set(pair) <= {*drawn}}
        yield from _wires(among, "peer", "peer access")


def taken(program: Program) -> dict[int, dict[str, int]]:
    """Ordinal -> object -> bytes that it takes there."""
    bytes_by_device: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for step, many in takers(alike(program.steps)):
        if (ordinal := step.taken_from(None)) is not None:
            bytes_by_device[ordinal][step.name.partition("#")[0] or step.name] += many * step.size
    return bytes_by_device


def _largest(taken_by: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """The largest ones, and the rest as one."""
    shares = sorted(((what, size) for what, size in taken_by.items() if size), key=lambda share: -share[1])
    yield from shares[:_SHARES_MAX]
    if small := shares[_SHARES_MAX:]:
        yield f"{len(small)} more", sum(size for _, size in small)


def _changes(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Look -> objects that take memory before and after, only after, or only before."""
    names = dict.fromkeys([*before, *after])
    both = {what: min(before.get(what, 0), after.get(what, 0)) for what in names}
    came = {what: after.get(what, 0) - both[what] for what in names}
    went = {what: before.get(what, 0) - both[what] for what in names}
    return {OF_SIGNS[STAYED]: both, OF_SIGNS[CAME]: came, OF_SIGNS[WENT]: went}


def gauge(device: Device) -> str:
    """How full it gets, in words."""
    used = max((box.end for box in device.boxes if box.look != OF_SIGNS[WENT]), default=0)
    if not device.memory:
        return short_size(used)
    share = 100 * used / device.memory
    part = "under 1%" if share < 1 else f"{share:.0f}%"
    return f"{_rounded(used)} of {_rounded(device.memory)}, {part}" if used else f"0 of {_rounded(device.memory)}"


def _rounded(size: int) -> str:
    return short_size(size)


def _short_name(device: MachineDevice) -> str:
    return device.name.removeprefix("AMD Instinct ").removeprefix("NVIDIA ")


def _by_link(machine: Machine, drawn: list[int]) -> Mapping[tuple[str, int], set[tuple[int, int]]]:
    """(type, hops) -> pairs."""
    links: dict[tuple[str, int], set[tuple[int, int]]] = defaultdict(set)
    for source in drawn:
        for target in drawn:
            link = machine.link(source, target) if source != target else None
            if link is not None:
                links[_kind(link)].add((source, target))
    return links


def _kind(link: Link) -> tuple[str, int]:
    return link.type, -1 if link.hops is None else link.hops


def _wires(pairs: set[tuple[int, int]], look: str, label: str) -> Iterator[Wire]:
    """One wire for each group in which all reach all, and one for each source of the remaining pairs."""
    left = set(pairs)
    reached: dict[int, set[int]] = defaultdict(set)
    for source, target in sorted(pairs):
        reached[source].add(target)
    for source in sorted(reached):
        group = {source}
        for target in sorted(reached[source]):
            if all((target, member) in left and (member, target) in left for member in group):
                group.add(target)
        if len(group) > 1:
            left -= {(a, b) for a in group for b in group}
            members = tuple(sorted(group))
            yield Wire(members, members, look, label, f"{label}: {_list(members)} reach each other")
    for source in sorted({source for source, _ in left}):
        targets = tuple(sorted(target for link_source, target in left if link_source == source))
        yield Wire((source,), targets, look, label, f"{label}: device {source} reaches {_list(targets)}")


def _list(ordinals: tuple[int, ...]) -> str:
    if len(ordinals) > 2 and ordinals[-1] - ordinals[0] == len(ordinals) - 1:
        return f"devices {ordinals[0]} to {ordinals[-1]}"
    return "device" + "s" * (len(ordinals) > 1) + " " + ", ".join(map(str, ordinals))
