"""The bytes of sleeping memory: which device copies which to the backup and back, and how many it takes to wake it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, count, cycle, pairwise
from typing import NamedTuple

from hipplan.errors import ApplyError
from hipplan.files.tensorfiles import WantedBytes
from hipplan.machines.machine import Machine
from hipplan.program import away, sealing
from hipplan.program.alike_backups import Backups
from hipplan.program.alterations import cannot_sleep
from hipplan.program.backups import FILE, HOST, Backup
from hipplan.program.content_steps import ContentStep, Copy, Digest, LoadFiles, MemoryPart, Save, Taken
from hipplan.program.groups import Group, first_of
from hipplan.program.memory import Memory, Refused
from hipplan.program.program import Program
from hipplan.program.regions import memory_of
from hipplan.program.resources import Resource
from hipplan.program.runs import MappingRun
from hipplan.program.steps import CPU_ORDINAL
from hipplan.program.taking import taken_by


def plan_name_of(program: Program, memory: str) -> str:
    """An allocation's name in messages: its own, or that of its region."""
    region, is_chunk, _ = memory.partition("#")
    return region if is_chunk and region in program.regions else memory


def movable(program: Program, memory: Sequence[Group]) -> dict[str, tuple[MemoryPart, ...]]:
    """Allocation -> its bytes at mappings where a device may write them: the same parts are used to copy out and back.
    Those of all chunks of a run go with the first of them.

    Raises ApplyError (HP440): no device may, or not all of them.
    """
    if single := [group for group in memory if isinstance(group, str)]:
        places, reach = _places(program, single)
    moved: dict[str, tuple[MemoryPart, ...]] = {}
    for group in memory:
        if isinstance(group, str):
            moved[group] = _reached(group, places[group], reach)
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
    devices = [
        device.model_copy(update={"in_use": max(0, device.in_use - more.get(ordinal, 0))})
        for ordinal, device in enumerate(machine.devices)
    ]
    return machine.model_copy(update={"devices": devices}) if any(more.values()) else machine


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
    resources = opened.outer
    if not places.keys() <= {resource.memory for resource in resources}:
        resources = opened.resources
    reach = Memory(resources, program.devices, machine=program.measured)
    for resource in resources:
        if resource.memory in places:
            places[resource.memory].append(resource)
    return places, reach


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
            there = tuple([(copy, part) for part, copy in _pairs(moved, new.backups)])
            yield Copy(name=name, origin=None, source="its device", pairs=there)
        else:
            places = [*_in_files(moved, new.backups)]
            parts, sums = tuple(place.part for place in places), tuple(place.sum for place in places)
            yield Save(name=name, origin=None, file=first.place, parts=parts, private=True, sums=sums)


def moves_in(moved: Mapping[str, Sequence[MemoryPart]], program: Program) -> Iterator[ContentStep]:
    """Steps that copy them back."""
    on_host = {name: parts for name, parts in moved.items() if program.backups[name].to == HOST}
    if on_host:
        name, pairs = _called(program, on_host), tuple(_pairs(on_host, program.backups))
        yield Copy(name=name, origin=None, source="its copy", pairs=pairs)
    in_files = {name: parts for name, parts in moved.items() if name not in on_host}
    by_file: dict[str, list[_InFile]] = {}
    for place in _in_files(in_files, program.backups):
        by_file.setdefault(place.file, []).append(place)
    if in_files:
        name, loads = _called(program, in_files), []
        sizes = {backup.place: backup.file_size for backup in program.backups.values()}
        for file, places in by_file.items():
            wanted = WantedBytes(name=name, size=sizes[file], asked=sizes[file], file=file)
            pieces = tuple((place.offset, place.part) for place in places)
            loads.append(Taken(wanted, pieces, sums=tuple(place.sum for place in places)))
        yield LoadFiles(name=name, origin=None, loads=tuple(loads), files=tuple(by_file))


def digests(names: Container[str], program: Program, known: Container[str] | None = None) -> Iterator[Digest]:
    """Steps for the checksums of backups in pinned memory, and of files that nothing is copied to or from.

    names: allocations. known: those of them whose checksum is stored; None: all.
    """
    groups: dict[tuple[str, bool], list[str]] = {}
    for name, backup in Backups.of(program.backups).single.items():
        if name in names and backup.checked:
            groups.setdefault((backup.place, known is None or name in known), []).append(name)
    for (place, compares), names in groups.items():
        backups = [program.backups[name] for name in names]
        yield Digest(
            name=_called(program, names),
            origin=None,
            place=place,
            is_file=backups[0].to == FILE,
            pieces=tuple((backup.offset, backup.size) for backup in backups),
            compares=compares,
        )


def _called(program: Program, memory: Iterable[str]) -> str:
    """The name in messages of the allocations in one place."""
    first, *more = dict.fromkeys(plan_name_of(program, allocation) for allocation in memory)
    return f"{first} and {len(more)} more" if more else first


def _pairs(
    moved: Mapping[str, Sequence[MemoryPart]], backups: Mapping[str, Backup]
) -> list[tuple[MemoryPart, MemoryPart]]:
    """(part of the memory, part of its backup)."""
    pairs: list[tuple[MemoryPart, MemoryPart]] = []
    of_runs = {memory_of(alike.run.region, alike.run.chunks.start): alike for alike in Backups.of(backups).of_runs}
    for name, parts in moved.items():
        backup, done = backups[name], 0
        if len(parts) > 1 and name in of_runs:
            copies = [
                MemoryPart(place, at, part.size, CPU_ORDINAL)
                for (place, at), part in zip(of_runs[name].places(), parts, strict=True)
            ]
            _join(pairs, parts[0], copies[0])
            both = zip(parts[1:], copies[1:], strict=True)
            if any(part.device == after.device for part, after in pairwise(parts[: len(of_runs[name].first) + 1])):
                for part, copy in both:
                    _join(pairs, part, copy)
            else:
                pairs += both
            continue
        for part in parts:
            _join(pairs, part, MemoryPart(backup.place, backup.offset + done, part.size, CPU_ORDINAL))
            done += part.size
    return pairs


class _InFile(NamedTuple):
    """A part of memory, and where its bytes are in a file."""

    part: MemoryPart
    file: str
    offset: int
    sum: int | None
    """Where in the file the bytes of its allocation begin, if they have a checksum."""


def _in_files(moved: Mapping[str, Sequence[MemoryPart]], backups: Mapping[str, Backup]) -> Iterator[_InFile]:
    for name, parts in moved.items():
        backup = backups[name]
        for part, copy in _pairs({name: parts}, backups):
            yield _InFile(part, backup.place, copy.offset, backup.offset if backup.checked else None)


def _join(pairs: list[tuple[MemoryPart, MemoryPart]], part: MemoryPart, copy: MemoryPart) -> None:
    """Append a pair, or extend the last one if both sides continue it."""
    if pairs and all(_goes_on(earlier, later) for earlier, later in zip(pairs[-1], (part, copy), strict=True)):
        last, size = pairs[-1], pairs[-1][0].size + part.size
        pairs[-1] = last[0].cut(0, size), last[1].cut(0, size)
    else:
        pairs.append((part, copy))


def _goes_on(part: MemoryPart, next_part: MemoryPart) -> bool:
    return (part.object, part.device, part.offset + part.size) == (next_part.object, next_part.device, next_part.offset)
