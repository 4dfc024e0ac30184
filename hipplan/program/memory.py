"""Finds the bytes behind a name of a program or live layout, and which device moves them.

The device that has a piece moves it, if it has the right to; on CUDA, otherwise the first device that has. HIP on AMD
chooses the copying device by where the memory is, not by the rights; a device without the right would fault and end
the process. So on AMD each device moves only its own memory.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, islice

from hipplan.errors import Problem
from hipplan.kinds.lives import BUFFERS, lies
from hipplan.language.host import HOST, is_host
from hipplan.machines.machine import Machine
from hipplan.program.content_steps import MemoryPart
from hipplan.program.resources import Resource
from hipplan.program.steps import CPU_ORDINAL

FILLED = (*BUFFERS, "region", "tensor", "mapping")
"""Kinds of objects whose bytes can be read and written."""

WhyReadOnly = Callable[[str, str], tuple[str, str] | None]
"""(mapping, reservation) -> (why an attached process may only read it, what to do); None if it may write."""


class Memory:
    """Finds the bytes behind each resource of a program or live layout."""

    def __init__(
        self,
        resources: Iterable[Resource],
        devices: Mapping[str, int],
        sealed: Collection[str] = (),
        machine: Machine | None = None,
        why_read_only: WhyReadOnly | None = None,
    ) -> None:
        """sealed: mappings that are read-only for now. why_read_only: of an attached layout."""
        self._sealed = sealed
        self._why_read_only = why_read_only
        self._machine = machine
        self.by_name: dict[str, Resource] = {}
        self.devices = devices
        """Name -> ordinal."""
        self._mappings: dict[str, list[Resource]] = {}
        self._starts: dict[str, list[int]] = {}
        self._shared: dict[int, dict[str, str]] = {}
        self._tensors: dict[str, list[Resource]] = {}
        for resource in resources:
            self.by_name[resource.name] = resource
            if resource.kind == "mapping":
                self._mappings.setdefault(resource.inside, []).append(resource)
            elif resource.kind == "tensor":
                self._tensors.setdefault(resource.inside, []).append(resource)

    def tensors(self, region: str) -> Sequence[Resource]:
        return self._tensors.get(region, ())

    def pieces(self, name: str) -> int:
        """The number of mappings behind a name."""
        resource = self.by_name[name]
        whole = name if resource.kind == "region" else resource.inside
        if resource.kind == "mapping" or whole not in self._mappings:
            return 1
        starts = self._placed(whole)[1]
        return bisect_left(starts, resource.offset + resource.size) - max(0, bisect_right(starts, resource.offset) - 1)

    def parts(self, name: str, right: str) -> tuple[MemoryPart, ...]:
        """The bytes of a buffer, region, tensor or mapping, one part for each device that has some.

        right: r or rw. Raises Refused if no device has it.
        """
        resource = self.by_name[name]
        if resource.kind not in FILLED:
            raise Refused("HP213", f"'{name}' has no bytes of its own", why=f"it is of the kind {resource.kind}")
        if resource.kind in BUFFERS:
            device = CPU_ORDINAL if lies(resource.kind) == "host" else self.devices[resource.device]
            return (MemoryPart(name, 0, resource.size, device),)
        whole = name if resource.kind == "region" else resource.inside
        return tuple(_joined(self._mapped(resource, whole, right)))

    def _mapped(self, resource: Resource, whole: str, right: str) -> Iterator[MemoryPart]:
        for mapping, at, size in self._under(whole, resource.offset, resource.size):
            yield MemoryPart(whole, at, size, self.devices[self._mover(resource, mapping, right)])

    def _mover(self, resource: Resource, mapping: Resource, right: str) -> str:
        rights = self._rights(mapping)
        only = self.only_holders and mapping.device != "host"
        for who in (mapping.device,) if only else (mapping.device, *rights):
            if who != "host" and right in rights.get(who, ""):
                return who
        verb = "write" if right == "rw" else "read"
        sealed = right == "rw" and mapping.name in self._sealed
        reason = self._why_read_only(mapping.name, mapping.inside) if right == "rw" and self._why_read_only else None
        if reason is not None:
            raise Refused("HP213", f"no device may write '{resource.name}' here", why=reason[0], hint=reason[1])
        hint = "it is sealed: call unseal() first" if sealed else f"give its device {right} access"
        if only and any(right in given for who, given in rights.items() if who != "host"):
            why = "on AMD the device that holds the bytes copies them"
            raise Refused("HP213", f"{mapping.device} may not {verb} '{resource.name}'", why=why, hint=hint)
        raise Refused("HP213", f"no device may {verb} '{resource.name}'", hint=hint)

    @property
    def only_holders(self) -> bool:
        """Whether only the device that has memory may move it (AMD)."""
        return self._machine is not None and self._machine.runtime != "cuda"

    @property
    def knows_owner_of_host(self) -> bool:
        """Whether it is known which GPU HIP takes for the owner of memory that was created on the host. Since 7.15 it
        may have the number of a NUMA node in the GPU's place, and no real one has been asked."""
        return self._machine is None or self._machine.version < (7, 15)

    def opens_no_more(self, part: MemoryPart, ordinal: int) -> bool:
        """Whether a device may copy from a part that another device moves, without getting more rights by that."""
        return self.reaches(part, ordinal, right_to_copy_from(self._machine))

    def reaches(self, part: MemoryPart, ordinal: int, right: str) -> bool:
        """Whether a device, or the CPU, has this right on a part that another device moves."""
        kind = self.by_name[part.object].kind if part.object in self.by_name else ""
        if lies(kind) == "device":
            return self._machine is not None and self._machine.can_access(ordinal, part.device)
        if part.object not in self._mappings:
            return False
        names = {name for name, number in [*self.devices.items(), (HOST, CPU_ORDINAL)] if number == ordinal}
        under = self._under(part.object, part.offset, part.size)
        return all(any(right in self._rights(mapping).get(name, "") for name in names) for mapping, _, _ in under)

    def _rights(self, mapping: Resource) -> dict[str, str]:
        """Device -> right. Cached, because thousands of mappings share the same tuple."""
        if id(mapping.access) not in self._shared:
            self._shared[id(mapping.access)] = dict(mapping.access)
        return self._shared[id(mapping.access)]

    def _under(self, whole: str, start: int, size: int) -> Iterator[tuple[Resource, int, int]]:
        """(mapping, offset in it, bytes) of each mapping that has a share of the range."""
        mappings, starts = self._placed(whole)
        for mapping in islice(mappings, max(0, bisect_right(starts, start) - 1), None):
            if mapping.offset >= start + size:
                return
            low, high = max(start, mapping.offset), min(start + size, mapping.offset + mapping.size)
            if low < high:
                yield mapping, low, high - low

    def _placed(self, whole: str) -> tuple[list[Resource], list[int]]:
        """The mappings of a reservation in the order of addresses, and the offset of each."""
        mappings = self._mappings[whole]
        if whole not in self._starts:
            mappings.sort(key=lambda mapping: mapping.offset)
            self._starts[whole] = [mapping.offset for mapping in mappings]
        return mappings, self._starts[whole]

    def by_place(self, part: MemoryPart) -> Iterator[MemoryPart]:
        """The shares of a part; those in mappings of host memory are the CPU's."""
        if part.object not in self._mappings:
            yield part
            return
        under = self._under(part.object, part.offset, part.size)
        for on_host, group in groupby(under, key=lambda share: is_host(share[0].device)):
            shares = [*group]
            share = part.cut(shares[0][1] - part.offset, sum(size for _, _, size in shares))
            yield replace(share, device=CPU_ORDINAL) if on_host else share

    def home_of(self, part: MemoryPart) -> int | None:
        """The device that was current when pinned or registered memory was made; None for other memory."""
        return self.devices.get(self.by_name[part.object].pinned_with)

    def behind(self, part: MemoryPart) -> Iterator[tuple[str, MemoryPart]]:
        """(buffer or allocation, its share of a part)."""
        if part.object not in self._mappings:
            yield part.object, part
            return
        for mapping, at, size in self._under(part.object, part.offset, part.size):
            yield mapping.memory, part.cut(at - part.offset, size)


def right_to_copy_from(machine: Machine | None) -> str:
    """The right that a device needs to copy from another's memory: since 7.0 rw, as a copy turns r into rw forever."""
    return "r" if machine is None or machine.runtime == "cuda" or machine.version < (7, 0) else "rw"


class Refused(Problem):
    """Contents are impossible in this program."""


def _joined(parts: Iterable[MemoryPart]) -> Iterator[MemoryPart]:
    """Join adjacent parts that the same device moves."""
    for (base, device), group in groupby(parts, key=lambda part: (part.object, part.device)):
        run = list(group)
        yield MemoryPart(base, run[0].offset, sum(part.size for part in run), device)
