"""The bytes of sleeping memory: which device copies which to the backup and back, and how many it takes to wake it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, count, cycle, pairwise
from typing import Any, NamedTuple, TypeVar

from hipplan.errors import ApplyError
from hipplan.files.tensorfiles import WantedBytes
from hipplan.machines.machine import Machine
from hipplan.program import away, sealing
from hipplan.program.alike_backups import AlikeBackups, Backups
from hipplan.program.backups import FILE, HOST, Backup
from hipplan.program.chunk_runs import MappingRun
from hipplan.program.content_steps import ContentStep, Copy, Digest, LoadFiles, MemoryPart, Save, Taken
from hipplan.program.groups import MemoryGroup, first_of
from hipplan.program.lookup import mappings_of_memory, starts_of_ranges
from hipplan.program.memory import Memory, Refused
from hipplan.program.on_demand import Evenly, Repeated
from hipplan.program.program import Program
from hipplan.program.refusals import cannot_sleep
from hipplan.program.resources import Resource
from hipplan.program.series import Series
from hipplan.program.steps import CPU_ORDINAL
from hipplan.program.taking import taken_by

Item = TypeVar("Item")


def plan_name_of(program: Program, memory: str) -> str:
    """An allocation's name in messages: its own, or that of its region."""
    region, is_chunk, _ = memory.partition("#")
    return region if is_chunk and region in program.regions else memory


def movable(program: Program, memory: Sequence[MemoryGroup]) -> dict[str, tuple[MemoryPart, ...]]:
    """Allocation -> its bytes at mappings where a device may write them: the same parts are used to copy out and back.
    Those of all chunks of a run go with the first of them.

    Raises ApplyError (HP440): no device may, or not all of them.
    """
    if single := [group for group in memory if isinstance(group, str)]:
        places, reach = _places(program, single)
    moved: dict[str, tuple[MemoryPart, ...]] = {}
    for group in memory:
        if isinstance(group, str):
            moved[group] = _reached(plan_name_of(program, group), places[group], reach)
        else:
            moved[first_of(group)] = _parts_of(group)
    return moved


def _parts_of(run: MappingRun) -> tuple[MemoryPart, ...]:
    """The bytes of chunks, in as many parts as their backups have."""
    region, size = run.region, run.size
    devices = [run.owner(chunk) for chunk in run.chunks[: len(run.memory.kinds)]]
    if len({*devices}) == 1:
        return (MemoryPart(region, run.offset, len(run.chunks) * size, devices[0]),)
    places = zip(count(run.offset, size), cycle(devices), run.chunks)  # only so many chunks
    return tuple([MemoryPart(region, at, size, device) for at, device, _ in places])


def unmovable(program: Program, memory: Iterable[str]) -> set[str]:
    """The allocations that movable() refuses."""
    places, reach = _places(program, memory)
    refused = set()
    for name, mappings in places.items():
        try:
            _reached(name, mappings, reach)
        except ApplyError:
            refused.add(name)
    return refused


def as_if_awake(machine: Machine, program: Program) -> Machine:
    """The machine with room for the sleeping memory too, which the plan describes and which takes no room now."""
    more = _bytes_asleep(program)
    return machine.with_in_use(
        {at: max(0, device.in_use - more.get(at, 0)) for at, device in enumerate(machine.devices)}
    )


def _bytes_asleep(program: Program) -> dict[int, int]:
    """Device -> bytes that it would need more if everything were awake."""
    bytes_by_device = dict.fromkeys(program.devices.values(), 0)
    for device, size in chain(taken_by(program.sleeping, None).items(), away.bytes_away(program).items()):
        bytes_by_device[device] += size
    return bytes_by_device


def _places(program: Program, memory: Iterable[str]) -> tuple[dict[str, list[Resource]], Memory]:
    """The mappings of each allocation, and who reaches them once everything is unsealed."""
    opened = sealing.all_open(program)
    places: dict[str, list[Resource]] = {name: [] for name in memory}
    mappings = mappings_of_memory(opened, places)
    for mapping in mappings:
        places[mapping.memory].append(mapping)
    return places, Memory(mappings, program.devices, machine=program.measured)


def _reached(name: str, mapped: Sequence[Resource], reach: Memory) -> tuple[MemoryPart, ...]:
    hint = 'sleep(to="drop") frees the memory without keeping its bytes'
    largest = max((mapping.size for mapping in mapped), default=0)
    why = "it is mapped nowhere"
    for mapping in mapped:
        if mapping.size == largest:
            try:
                return reach.parts(mapping.name, "rw")
            except Refused as refused:
                why = refused.summary
    raise cannot_sleep(name, f"its bytes cannot be restored: {why}", hint)


def moves_out(moved: Mapping[str, Sequence[MemoryPart]], new: Program) -> Iterator[ContentStep]:
    """Steps that copy bytes to their backups, on all devices at the same time."""
    if moved:
        name, first = _called(new, moved), new.backups[next(iter(moved))]
        if first.to == HOST:
            there = tuple([(copy, part) for part, copy in _pairs(moved, new, Backups.of(new.backups))])
            yield Copy(name=name, origin=None, source="its device", pairs=there)
        else:
            places = _in_files(moved, new)
            parts, sums = _flat([place.parts for place in places]), _flat([place.sums for place in places])
            yield Save(name=name, origin=None, file=first.place, parts=parts, private=True, sums=sums)


def moves_in(moved: Mapping[str, Sequence[MemoryPart]], program: Program) -> Iterator[ContentStep]:
    """Steps that copy them back."""
    on_host = {name: parts for name, parts in moved.items() if program.backups[name].to == HOST}
    if on_host:
        name, pairs = _called(program, on_host), tuple(_pairs(on_host, program, Backups.of(program.backups)))
        yield Copy(name=name, origin=None, source="its copy", pairs=pairs)
    in_files = {name: parts for name, parts in moved.items() if name not in on_host}
    by_file: dict[str, list[_InFile]] = {}
    for place in _in_files(in_files, program):
        by_file.setdefault(place.file, []).append(place)
    if in_files:
        name, loads = _called(program, in_files), []
        sizes = {backup.place: backup.file_size for backup in Backups.of(program.backups).firsts.values()}
        for file, places in by_file.items():
            wanted = WantedBytes(name=name, size=sizes[file], asked=sizes[file], file=file)
            pieces: Any = _flat([place.pieces() for place in places])
            sums: Any = _flat([place.sums for place in places])
            loads.append(Taken(wanted, pieces, sums=sums))
        yield LoadFiles(name=name, origin=None, loads=tuple(loads), files=tuple(by_file))


def digests(names: Container[str], program: Program, known: Container[str] | None = None) -> Iterator[Digest]:
    """Steps for the checksums of backups in pinned memory, and of files that nothing is copied to or from.

    names: the first allocations of groups. known: those of them whose checksums are stored; None: all.
    """
    pieces: dict[tuple[str, bool], list[tuple[str, Sequence[tuple[int, int]]]]] = {}
    backups = Backups.of(program.backups)
    for name, entry in backups.entries.items():
        size = backups.firsts[name].size
        if name not in names or not backups.firsts[name].checked:
            continue
        there = [*entry.stretches()] if isinstance(entry, AlikeBackups) else [(entry.place, entry.offset, size)]
        for place, offset, in_all in there:
            here = pieces.setdefault((place, known is None or name in known), [])
            here.append((name, _pieces(offset, in_all, size)))
    for (place, compares), named in pieces.items():
        yield Digest(
            name=_called(program, [name for name, _ in named]),
            origin=None,
            place=place,
            is_file=backups.firsts[named[0][0]].to == FILE,
            pieces=_flat([some for _, some in named]),
            compares=compares,
        )


def _called(program: Program, memory: Iterable[str]) -> str:
    """The name in messages of the allocations in one place."""
    first, *more = dict.fromkeys(plan_name_of(program, allocation) for allocation in memory)
    return f"{first} and {len(more)} more" if more else first


def _pairs(
    moved: Mapping[str, Sequence[MemoryPart]], program: Program, backups: Backups
) -> list[tuple[MemoryPart, MemoryPart]]:
    """(part of the memory, part of its backup). backups: of the program; to make them costs as much as all of them."""
    pairs = _Pairs(program)
    for name, parts in moved.items():
        backup, entry, done = backups[name], backups.entries.get(name), 0
        if len(parts) > 1 and isinstance(entry, AlikeBackups):
            copies = [
                MemoryPart(place, at, part.size, CPU_ORDINAL)
                for (place, at), part in zip(entry.places(), parts, strict=True)
            ]
            pairs.join(parts[0], copies[0])
            both = zip(parts[1:], copies[1:], strict=True)
            if any(part.device == after.device for part, after in pairwise(parts[: len(entry.first) + 1])):
                for part, copy in both:
                    pairs.join(part, copy)
            else:
                pairs.all += both
            continue
        for part in parts:
            pairs.join(part, MemoryPart(backup.place, backup.offset + done, part.size, CPU_ORDINAL))
            done += part.size
    return pairs.all


def _pieces(offset: int, size: int, each: int) -> Sequence[tuple[int, int]]:
    """Digest.pieces for allocations of `each` bytes. size: of all of them."""
    return [(offset, size)] if size == each else Evenly(lambda at: (offset + at, each), each, size // each)


class _InFile(NamedTuple):
    """A part of memory, or those of alike allocations one after the other, and where the bytes are in a file."""

    parts: Sequence[MemoryPart]
    file: str
    offset: int
    """Of the first part."""
    sums: Sequence[int | None]
    """As of Save."""

    def pieces(self) -> Sequence[tuple[int, MemoryPart]]:
        """Returns what Taken.pieces() returns."""
        offset, parts = self.offset, self.parts
        if isinstance(parts, tuple):
            return [(offset, parts[0])]
        each = parts[0].size
        return Evenly(lambda at: (offset + at, parts[at // each]), each, len(parts))


def _in_files(moved: Mapping[str, Sequence[MemoryPart]], program: Program) -> list[_InFile]:
    backups, there = Backups.of(program.backups), list[_InFile]()
    for name, parts in moved.items():
        backup, entry = backups[name], backups.entries.get(name)
        if isinstance(entry, AlikeBackups) and len(parts) > 1:
            places = zip(parts, entry.places(), strict=True)
            there += [_InFile((part,), place, at, (at if backup.checked else None,)) for part, (place, at) in places]
        elif isinstance(entry, AlikeBackups):
            there.append(_alike_in_file(parts[0], backup, len(entry.run.chunks)))
        else:
            sums, pairs = (backup.offset if backup.checked else None,), _pairs({name: parts}, program, backups)
            there += [_InFile((part,), backup.place, copy.offset, sums) for part, copy in pairs]
    return there


def _alike_in_file(part: MemoryPart, first: Backup, many: int) -> _InFile:
    """The bytes of many allocations in a file. part: all of them. first: the backup of the first one."""
    parts = Evenly(lambda at: MemoryPart(part.object, part.offset + at, first.size, part.device), first.size, many)
    if not first.checked:
        return _InFile(parts, first.place, first.offset, Repeated((None,), many))
    return _InFile(parts, first.place, first.offset, Evenly(lambda at: first.offset + at, first.size, many))


def _flat(parts: Sequence[Sequence[Item]]) -> Sequence[Item]:
    """The items of all of these: as a tuple, if all are written out."""
    if [part for part in parts if not isinstance(part, (tuple, list))]:
        return Series.joined(parts)
    return tuple(chain.from_iterable(parts))


class _Pairs:
    """(part of the memory, part of its backup), as few as copies can be."""

    def __init__(self, program: Program) -> None:
        self.all: list[tuple[MemoryPart, MemoryPart]] = []
        self._program = program
        self._starts: dict[str, frozenset[int]] = {}

    def join(self, part: MemoryPart, copy: MemoryPart) -> None:
        """Append a pair, or extend the last one if both sides continue it."""
        if self.all and self._continues(self.all[-1], part, copy):
            last, size = self.all[-1], self.all[-1][0].size + part.size
            self.all[-1] = last[0].cut(0, size), last[1].cut(0, size)
        else:
            self.all.append((part, copy))

    def _continues(self, last: tuple[MemoryPart, MemoryPart], part: MemoryPart, copy: MemoryPart) -> bool:
        if not _goes_on(last[0], part) or not _goes_on(last[1], copy):
            return False
        if part.object in self._program.regions:
            return True
        if part.object not in self._starts:
            self._starts[part.object] = starts_of_ranges(self._program, part.object)
        return part.offset not in self._starts[part.object]


def _goes_on(part: MemoryPart, next_part: MemoryPart) -> bool:
    return (part.object, part.device, part.offset + part.size) == (next_part.object, next_part.device, next_part.offset)
