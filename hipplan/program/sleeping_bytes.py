"""The copies of sleep and wake: which device moves which bytes to the backup and back. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from hipplan.files.tensorfiles import Wanted
from hipplan.program import sealing
from hipplan.program.alterations import cannot_sleep
from hipplan.program.backups import FILE, HOST, Backup
from hipplan.program.content_steps import ContentStep, Copy, Digest, LoadFiles, Part, Save, Taken
from hipplan.program.memory import Memory, Refused, cut
from hipplan.program.program import Program
from hipplan.program.resources import Resource
from hipplan.program.steps import CPU_ORDINAL, whole_name


def plan_name_of(program: Program, memory: str) -> str:
    """An allocation's name in messages: its own, or that of its region."""
    whole = whole_name(memory)
    inside = next((resource.inside for resource in program.resources if resource.memory == whole), "")
    return inside if inside in program.regions else whole


def movable(program: Program, memory: Iterable[str]) -> dict[str, tuple[Part, ...]]:
    """Allocation -> its bytes at mappings where a device may write them: the same parts are used to copy out and back.

    Raises ApplyError (HP440): no device may, or not all of them.
    """
    opened = sealing.all_open(program)
    reach = Memory(opened.resources, program.devices, machine=program.measured)
    places: dict[str, list[Resource]] = {name: [] for name in memory}
    for resource in opened.resources:
        if resource.memory in places:
            places[resource.memory].append(resource)
    return {name: _reached(name, mappings, reach) for name, mappings in places.items()}


def _reached(name: str, mapped: Sequence[Resource], reach: Memory) -> tuple[Part, ...]:
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


def moves_out(moved: Mapping[str, Sequence[Part]], new: Program) -> Iterator[ContentStep]:
    """Steps that copy bytes to their backups, on all devices at the same time."""
    if moved:
        name, first = _called(new, moved), new.backups[next(iter(moved))]
        pairs = _pairs(moved, new.backups)
        if first.to == HOST:
            there = tuple((copy, part) for part, copy in pairs)
            yield Copy(name=name, origin=None, source="its device", pairs=there)
        else:
            yield Save(name=name, origin=None, file=first.place, parts=tuple(part for part, _ in pairs))


def moves_in(moved: Mapping[str, Sequence[Part]], program: Program) -> Iterator[ContentStep]:
    """Steps that copy them back."""
    on_host = {name: parts for name, parts in moved.items() if program.backups[name].to == HOST}
    if on_host:
        name, pairs = _called(program, on_host), tuple(_pairs(on_host, program.backups))
        yield Copy(name=name, origin=None, source="its copy", pairs=pairs)
    in_files = {name: parts for name, parts in moved.items() if name not in on_host}
    pieces_of: dict[str, list[tuple[int, Part]]] = {}
    for part, copy in _pairs(in_files, program.backups):
        pieces_of.setdefault(copy.object, []).append((copy.offset, part))
    if in_files:
        name, loads = _called(program, in_files), []
        sizes = {backup.place: backup.file_size for backup in program.backups.values()}
        for file, pieces in pieces_of.items():
            size = sizes[file]
            loads.append(Taken(Wanted(name=name, size=size, asked=size, file=file), tuple(pieces)))
        yield LoadFiles(name=name, origin=None, loads=tuple(loads), files=tuple(pieces_of))


def digests(memory: Container[str], program: Program, known: Container[str] | None = None) -> Iterator[Digest]:
    """Steps for the checksum of each backup, where one is requested.

    known: allocations whose bytes are unchanged; None: all of them.
    """
    groups: dict[tuple[str, bool], list[str]] = {}
    for name, backup in program.backups.items():
        if name in memory and backup.checked:
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
    regions = {
        resource.memory: resource.inside
        for resource in program.resources
        if resource.inside in program.regions and resource.memory
    }
    first, *more = dict.fromkeys(regions.get(allocation, allocation) for allocation in memory)
    return f"{first} and {len(more)} more" if more else first


def _pairs(moved: Mapping[str, Sequence[Part]], backups: Mapping[str, Backup]) -> list[tuple[Part, Part]]:
    """(part of the memory, part of its backup)."""
    pairs: list[tuple[Part, Part]] = []
    for name, parts in moved.items():
        backup, done = backups[name], 0
        for part in parts:
            _join(pairs, part, Part(backup.place, backup.offset + done, part.size, CPU_ORDINAL))
            done += part.size
    return pairs


def _join(pairs: list[tuple[Part, Part]], part: Part, copy: Part) -> None:
    """Append a pair, or extend the last one if both sides continue it."""
    if pairs and all(_goes_on(earlier, later) for earlier, later in zip(pairs[-1], (part, copy), strict=True)):
        last, size = pairs[-1], pairs[-1][0].size + part.size
        pairs[-1] = cut(last[0], 0, size), cut(last[1], 0, size)
    else:
        pairs.append((part, copy))


def _goes_on(part: Part, next_part: Part) -> bool:
    return (part.object, part.device, part.offset + part.size) == (next_part.object, next_part.device, next_part.offset)
