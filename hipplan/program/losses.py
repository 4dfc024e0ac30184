"""What a change loses: bytes, addresses and rights of the objects of the old program. Pure: no driver.

Lost are bytes of memory that is recreated without them, freed, cut off, overwritten by contents, or asleep and removed;
addresses that bytes had; and rights that a device had.

Contents make up for bytes only in memory that was sealed when they were loaded and was never unsealed: all other memory
may have been written meanwhile. They never make up for an address.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import Literal, TypeAlias, TypeVar

from hipplan.kinds.live import Buffer
from hipplan.kinds.mapping.live import RIGHTS
from hipplan.kinds.peer.live import EnablePeer
from hipplan.language.host import HOST
from hipplan.plain import counted
from hipplan.program.backups import DROP
from hipplan.program.change import Change
from hipplan.program.content_steps import where_written
from hipplan.program.intervals import Intervals
from hipplan.program.inventory import sleeping_memory
from hipplan.program.program import Program
from hipplan.program.resources import RANGES, Access, Resource
from hipplan.program.sealing import as_loaded
from hipplan.program.steps import CPU_ORDINAL
from hipplan.units import about_size

Who = TypeVar("Who")
ObjectKey: TypeAlias = tuple[str, str]
"""(kind, name) of an object."""

_NOTHING = Intervals()


@dataclass(slots=True, kw_only=True)
class Loss:
    """What one object of the old program loses."""

    kind: str
    name: str
    inside: str
    """The region or reservation that it is in; empty if it is in none."""
    size: int
    """Bytes that it had; 0 if unknown."""
    loses_bytes: bool = False
    """Whether it loses bytes."""
    bytes: int = 0
    """How many; 0 if unknown."""
    address: Literal["", "moves", "goes"] = ""
    """Whether bytes of it are at another address afterwards, or at none."""
    rights: list[str] = field(default_factory=list)
    """The right that each device loses, in words."""

    def words(self) -> str:
        """What it loses, in words."""
        part = f"loses {about_size(self.bytes)} of its bytes" if self._in_part else "loses its bytes"
        return ", ".join([*[part] * self.loses_bytes, *self._of_address, *self.rights])

    @property
    def in_short(self) -> str:
        """The same without numbers and devices."""
        part = "loses part of its bytes" if self._in_part else "loses its bytes"
        return ", ".join([*[part] * self.loses_bytes, *self._of_address, *["loses rights"] * bool(self.rights)])

    @property
    def _in_part(self) -> bool:
        return 0 < self.bytes < self.size

    @property
    def _of_address(self) -> list[str]:
        return (
            [{"moves": "moves to another address", "goes": "loses its address"}[self.address]] if self.address else []
        )


def losses(change: Change) -> dict[ObjectKey, Loss]:
    """What objects of the old program lose, in its order. Those that lose nothing are absent."""
    if change.new.added and change.new.comes_from(change.old) and not change.contents:
        return {}
    change = change.about
    known = _Losses(change).all()
    return {key: known[key] for resource in change.old.resources if (key := (resource.kind, resource.name)) in known}


def total(of: Collection[Loss]) -> dict[str, int]:
    """How much several objects lose together."""
    return {
        "bytes_lost": sum(loss.bytes for loss in of),
        "addresses_lost": sum(bool(loss.address) for loss in of),
        "rights_lost": sum(len(loss.rights) for loss in of),
    }


def total_text(of: Collection[Loss]) -> str:
    """The same in words; empty if nothing is lost."""
    size, addresses, rights = total(of).values()
    parts = []
    if any(loss.loses_bytes for loss in of):
        unknown = any(loss.loses_bytes and not loss.bytes for loss in of)
        parts.append(f"{about_size(size)} of bytes" if size else "bytes")
        parts += ["other bytes"] if size and unknown else []
    parts += [f"{addresses} address" + "es" * (addresses > 1)] if addresses else []
    parts += [counted(rights, "right")] if rights else []
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def ranges_of(program: Program) -> dict[str, list[Resource]]:
    """Region or reservation -> its mappings, by address."""
    ranges: dict[str, list[Resource]] = defaultdict(list)
    for resource in program.resources:
        if resource.memory:
            ranges[resource.inside].append(resource)
    for mappings in ranges.values():
        mappings.sort(key=attrgetter("offset"))
    return ranges


class _Side:
    """The old or new program: its objects, and which memory is mapped where. Pieces of memory are one."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.objects = {(resource.kind, resource.name): resource for resource in program.resources}
        self.mapped: dict[str, list[Resource]] = defaultdict(list)
        """Allocation -> its mappings."""
        for resource in program.resources:
            if resource.memory:
                self.mapped[resource.memory].append(resource)
        self.ranges = ranges_of(program)
        self.asleep = {*sleeping_memory(program.sleeping)}
        self._rights: dict[int, dict[int, str]] = {}

    @cached_property
    def names(self) -> dict[int, str]:
        """Ordinal -> the name of the device."""
        return {ordinal: name for name, ordinal in self.program.devices.items()} | {CPU_ORDINAL: f"the {HOST}"}

    @cached_property
    def placed(self) -> dict[tuple[str, str, int], Resource]:
        """(allocation, range, offset in it) -> the mapping there. One allocation may have thousands of mappings."""
        mappings = chain.from_iterable(self.mapped.values())
        return {(mapping.memory, mapping.inside, mapping.offset): mapping for mapping in mappings}

    def owner(self, memory: str) -> Resource:
        """The region of a chunk; another allocation itself."""
        mappings = self.mapped.get(memory)
        inside = mappings[0].inside if mappings else ""
        return self.objects["region", inside] if inside in self.program.regions else self.objects["allocation", memory]

    def user(self, mapping: Resource) -> Resource:
        """The region of a chunk's mapping; another mapping itself."""
        return self.objects["region", mapping.inside] if mapping.inside in self.program.regions else mapping

    def rights(self, access: Access) -> dict[int, str]:
        """Ordinal -> right. Cached, because thousands of mappings share the same tuple."""
        if id(access) not in self._rights:
            given = ((CPU_ORDINAL if who == HOST else self.program.devices[who], right) for who, right in access)
            self._rights[id(access)] = dict(given)
        return self._rights[id(access)]


class _Losses:
    def __init__(self, change: Change) -> None:
        self._change = change
        self._old, self._new = _Side(change.old), _Side(change.new)
        self._gone = {step.name for step in change.gone if step.makes == "allocation"}
        self._gone -= change.carried
        """Allocations whose memory does not stay, and whose bytes are not carried over."""
        self._as_loaded = as_loaded(change.old)
        self._written = where_written(change.contents)
        self._losses: dict[ObjectKey, Loss] = {}
        self._lost_in: dict[str, Intervals] = {}
        self._words: dict[tuple[int, int], list[str]] = {}

    def all(self) -> dict[ObjectKey, Loss]:
        for name in self._gone - self._new.asleep:
            self._of_memory(name)
        for name in self._old.asleep - self._new.asleep:
            if ("allocation", name) not in self._new.objects and self._change.old.backups[name].to != DROP:
                self._lose_bytes(self._old.owner(name), self._old.objects["allocation", name].size)
        for step in self._change.gone:
            if isinstance(step, Buffer):
                if "#" not in step.name:
                    self._of_buffer(step)
            elif isinstance(step, EnablePeer):
                self._of_link(step)
        self._of_overwritten()
        self._of_addresses()
        self._of_rights()
        return self._losses

    def _of(self, resource: Resource) -> Loss:
        key = resource.kind, resource.name
        if key not in self._losses:
            kind, name = key
            self._losses[key] = Loss(kind=kind, name=name, inside=resource.inside, size=resource.size)
        return self._losses[key]

    def _lose_bytes(self, resource: Resource, size: int) -> None:
        loss = self._of(resource)
        loss.loses_bytes, loss.bytes = True, loss.bytes + size

    def _of_memory(self, name: str) -> None:
        """Bytes of an allocation that is recreated or freed."""
        memory, again = self._old.objects["allocation", name], self._new.objects.get(("allocation", name))
        if memory.imported and (again is not None or name in self._of_ranks):
            return  # the caller or another rank has passed what is mapped instead
        size = memory.size
        if again is not None and name in self._as_loaded:
            mappings = self._old.mapped[name]
            size = sum(self._not_loaded_again(mapping.inside).size_within(*_ends(mapping)) for mapping in mappings)
        if size:
            self._lose_bytes(self._old.owner(name), size)

    @cached_property
    def _of_ranks(self) -> set[str]:
        """Allocations of other ranks."""
        return {step.name for step in self._change.gone if step.from_rank >= 0}

    def _not_loaded_again(self, range_: str) -> Intervals:
        """The bytes of a range that contents had loaded, and that the change does not load; found once for each."""
        if range_ not in self._lost_in:
            there = self._loaded.get(range_, _NOTHING)
            self._lost_in[range_] = there.without(self._written.get(range_, _NOTHING))
        return self._lost_in[range_]

    @cached_property
    def _loaded(self) -> dict[str, Intervals]:
        return where_written(self._change.old.contents)

    def _of_buffer(self, step: Buffer) -> None:
        """A buffer that is recreated or freed. Bytes of a bound buffer are the caller's, those of a read-only file are
        in the file."""
        buffer = self._old.objects[step.makes, step.name]
        if step.passed_as:
            return
        if not step.read_only:
            self._lose_bytes(buffer, buffer.size)
        if (step.makes, step.name) in self._new.objects:
            self._of(buffer).address = "moves"

    def _of_link(self, step: EnablePeer) -> None:
        device, peer = (self._old.names[ordinal] for ordinal in (step.device, step.peer))
        self._of(self._old.objects["peer", step.name]).rights.append(f"{device} loses access to buffers of {peer}")

    def _of_overwritten(self) -> None:
        """Bytes of memory that stays, over which contents are written."""
        away = self._gone | self._old.asleep
        for range_, written in self._written.items():
            for mapping in self._new.ranges.get(range_, ()):
                name = mapping.memory
                stays = ("allocation", name) in self._old.objects and name not in away
                if stays and name not in self._as_loaded and (size := written.size_within(*_ends(mapping))):
                    self._lose_bytes(self._old.owner(name), size)

    def _of_addresses(self) -> None:
        kept = self._change.kept
        for (kind, name), resource in self._old.objects.items():
            again = self._new.objects.get((kind, name))
            if kind in RANGES and again is not None and ("reservation", name) not in kept:
                self._of(resource).address = "moves"
            elif kind == "tensor" and again is not None and ("reservation", resource.inside) in kept:
                if resource.offset != again.offset:
                    self._of(resource).address = "moves"
            elif kind == "mapping" and (goes := self._address_of(resource)):
                self._of(self._old.user(resource)).address = goes

    def _address_of(self, mapping: Resource) -> Literal["", "moves", "goes"]:
        """What becomes of the address of a mapping's bytes. Empty if they keep it, or are gone themselves."""
        memory, of_region = mapping.memory, mapping.inside in self._old.program.regions
        if ("allocation", memory) not in self._new.objects or (of_region and memory in self._gone):
            return ""  # a chunk is recreated at its place in the region
        if ("reservation", mapping.inside) in self._change.kept:
            same = self._new.placed.get((memory, mapping.inside, mapping.offset))
            if same is not None:
                return "goes" if same.size < mapping.size else ""
        return "moves" if self._new.mapped.get(memory) else "goes"

    def _of_rights(self) -> None:
        for range_, before in self._old.ranges.items():
            if (range_ in self._old.program.regions) != (range_ in self._new.program.regions):
                continue  # another kind of object
            for mapping, now in overlapping(before, self._new.ranges.get(range_, ())):
                if words := self._taken_from(mapping.access, now.access):
                    rights = self._of(self._old.user(mapping)).rights
                    rights += [text for text in words if text not in rights]

    def _taken_from(self, before: Access, now: Access) -> list[str]:
        """The devices that lose a right, in words. Cached, because thousands of mappings share the same tuples."""
        both = id(before), id(now)
        if both not in self._words:
            fewer = less(self._old.rights(before), self._new.rights(now))
            self._words[both] = [f"{self._old.names[who]} loses {right}" for who, right in fewer]
        return self._words[both]


def less(had: Mapping[Who, str], have: Mapping[Who, str]) -> Iterator[tuple[Who, str]]:
    """(device, what it loses: `access` or `write access`) for each device that has a lesser right than it had."""
    for who, right in had.items():
        now = have.get(who, "none")
        if RIGHTS.index(now) < RIGHTS.index(right):
            yield who, "access" if now == "none" else "write access"


def _ends(mapping: Resource) -> tuple[int, int]:
    return mapping.offset, mapping.offset + mapping.size


def overlapping(before: Sequence[Resource], now: Sequence[Resource]) -> Iterator[tuple[Resource, Resource]]:
    """The pairs of an old and a new mapping that have a place in common. Both are sorted by address."""
    first = 0
    for mapping in before:
        start, end = _ends(mapping)
        while first < len(now) and _ends(now[first])[1] <= start:
            first += 1
        for number in range(first, len(now)):
            if now[number].offset >= end:
                break
            yield mapping, now[number]
