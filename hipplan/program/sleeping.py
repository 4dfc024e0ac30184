"""Sleep and wake: memory and its mappings are freed, while addresses stay reserved. Pure.

Falling asleep makes the backup, copies the bytes into it, and frees the memory last. Waking makes memory at the same
places with the same rights, fills it from the backup, and frees the backup last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import chain
from typing import Any

from hipplan.kinds.allocation.live import CreateAllocation
from hipplan.kinds.pinned.live import CreatePinnedBuffer
from hipplan.program import away, contents, sealing, steps
from hipplan.program.alike_backups import (
    AlikeBackups,
    Backups,
    Entry,
    first_backup,
    is_same_copy,
    places_of,
    with_checksum,
)
from hipplan.program.backups import DROP, FILE, HOST, MAPPED, WHERE, Backup, is_backup, pinned_name
from hipplan.program.chunk_runs import ChunkRun, MappingRun, MemoryRun
from hipplan.program.content_steps import MemoryPart, staging_of
from hipplan.program.difference import Difference, difference, sealed_after
from hipplan.program.facts import makers_of
from hipplan.program.groups import (
    MemoryGroup,
    Units,
    by_first,
    first_of,
    groups_asleep,
    is_on_device,
    members_of,
    parted,
)
from hipplan.program.layered import Overlay
from hipplan.program.program import Program
from hipplan.program.refusals import refuse, refuse_asleep
from hipplan.program.regions import numbers_in
from hipplan.program.resize import find
from hipplan.program.runs import without
from hipplan.program.series import Parts, Series, segments
from hipplan.program.sleepers import require_able, units_of
from hipplan.program.sleeping_bytes import digests, movable, moves_in, moves_out, plan_name_of


def falls_asleep(
    program: Program,
    names: Sequence[str],
    *,
    to: str = HOST,
    file: str = "",
    unchanged: Sequence[str] = (),
    checked: bool = False,
) -> Difference:
    """The change after which these sleep. It is empty if they already do.

    names: regions, reservations, mappings or allocations. to: HOST, DROP, MAPPED or FILE, called `file`. unchanged:
    those of them whose bytes are in the copy that was kept already. checked: the copy gets a checksum.
    Raises ApplyError: no such object (HP420), it cannot sleep (HP440), its bytes are elsewhere (HP441); MachineError.
    """
    units = units_of(program, names, is_writable=to != MAPPED)
    require_able(program, units, to)
    _require_nowhere_else(program, units, to, file)
    if to == MAPPED:
        return _goes_away(program, units)
    kept = _together(program, units)
    units = {name: _awake(program, kept, groups) for name, groups in units.items()}
    memory = by_first(chain.from_iterable(units.values()))
    unchanged_units = units_of(program, unchanged).values()
    same = {*by_first(chain.from_iterable(_awake(program, kept, groups) for groups in unchanged_units))}
    moved = {} if to == DROP else movable(program, [*memory.values()])
    if to == FILE:
        moved = _in_the_order_of(kept, moved, file)
        new = _in_file(program, kept, memory, moved, file, checked)
    else:
        new = _with_backups(program, kept, units, moved, to, checked)
    was, now = kept.entries, Backups.of(new.backups).entries
    known = {first for first in same & memory.keys() if is_same_copy(was.get(first), now[first])}
    if absent := sorted(same & memory.keys() - known):
        name = plan_name_of(program, absent[0])
        if absent[0] in was:
            why = "it is in another place, or in one file with other memory"
            hint = "let the same memory sleep to the same place as then, or leave unchanged= out"
            raise refuse(f"the copy of '{name}' that was kept cannot be used", why=why, hint=hint)
        why, hint = "unchanged= needs a copy from an earlier sleep", "wake(..., retain=True) keeps one"
        raise refuse(f"no copy of '{name}' was kept", why=why, hint=hint)
    if to == FILE and known != memory.keys():
        known = set()  # the file is written as a whole
    known_sums = {first for first in known if first_backup(was[first]).checked}
    known_checked = {first: with_checksum(now[first], True) for first in known_sums}
    stay, asleep = parted(new.steps, memory.values())
    new = replace(
        new,
        steps=stay,
        sleeping=Series.joined((program.sleeping, asleep)),
        backups=Backups.of(new.backups).with_more(known_checked),
    )
    moves = moves_out({name: parts for name, parts in moved.items() if name not in known}, new)
    summed = [name for name in memory if to == HOST or name in known] if checked else ()  # else on their way
    filled = (*moves, *digests(summed, new, known_sums))
    change = difference(program, contents.with_lanes(new, staging_of(filled)), unmaps=True)
    return replace(change, contents=filled, saves=bool(filled))


def _together(program: Program, units: Units) -> Backups:
    """The backups, of which those of chunks are only together where the memory of just these chunks is."""
    groups = chain.from_iterable(units.values())
    return Backups.of(program.backups).apart([each.memory for each in groups if isinstance(each, MappingRun)], units)


def _awake(program: Program, kept: Backups, groups: Sequence[MemoryGroup]) -> list[MemoryGroup]:
    """Returns the groups that do not sleep; by themselves those of which chunks have kept copies of their own."""
    awake = [group for first, group in by_first(groups).items() if first in program.makers]
    alone = [name for name, entry in kept.entries.items() if isinstance(entry, Backup)]
    if not alone or all(isinstance(group, str) for group in awake):
        return awake
    chunks = [number for name in alone if (number := numbers_in(name)) is not None]
    numbers = {(number.of, number.first) for number in chunks}
    return [*chain.from_iterable(members_of(group) if _has_any(group, numbers) else (group,) for group in awake)]


def _has_any(group: MemoryGroup, chunks: Set[tuple[str, int]]) -> bool:
    """Whether one of these chunks is in a group. chunks: (region, number)."""
    return isinstance(group, MappingRun) and any(
        region == group.region and number in group.chunks for region, number in chunks
    )


def _require_nowhere_else(program: Program, units: Units, to: str, file: str) -> None:
    """Raises ApplyError (HP441): some of it sleeps, and its bytes are in another place."""
    for name, groups in units.items():
        asleep = [first for first in by_first(groups) if first not in program.makers]
        other = next((first for first in asleep if not program.backups[first].is_at(to, file)), "")
        if other:
            raise refuse_asleep(name, f"its bytes are {WHERE[program.backups[other].to]}")


def _goes_away(program: Program, units: Units) -> Difference:
    """The change after which the memory that is on devices is on the host, still mapped."""
    groups = chain.from_iterable(units.values())
    return away.goes_away(program, [*chain.from_iterable(_on_devices(program, group) for group in groups)])


def _on_devices(program: Program, group: MemoryGroup) -> Iterable[MemoryGroup]:
    """What of a group is on devices."""
    if isinstance(group, MappingRun) and first_of(group) in program.makers:
        there = {step.is_on_device for step, _ in group.memory.alike()}
        if len(there) == 1:
            return [group] if True in there else []
    return [name for name in members_of(group) if is_on_device(program.makers.get(name))]


def wakes_up(program: Program, names: Sequence[str] | None = None, *, retain: bool = False) -> Difference:
    """The change after which these are awake. names None: everything that sleeps.

    retain: the copies stay. Memory that sleeps on the host, still mapped, is not among these (away.py). Raises
    ApplyError (HP420), MachineError (HP309).
    """
    units = None if names is None else units_of(program, names)
    wanted = None if units is None else by_first(chain.from_iterable(units.values()))
    asleep = by_first(groups_asleep(program))
    memory = {first: group for first, group in asleep.items() if wanted is None or first in wanted}
    new = woken(program, memory.values())
    dropped = {first for first in memory if program.backups[first].to == DROP}
    if gone := dropped if retain else memory.keys():
        new = without_unused(replace(new, backups=Backups.of(new.backups).without(gone)))
    filled = (
        *digests([first for first in memory if program.backups[first].to == HOST], program),
        *moves_in(movable(new, [group for first, group in memory.items() if first not in dropped]), program),
    )
    if dropped and new.contents:
        lost = {*chain.from_iterable(members_of(memory[first]) for first in dropped)}
        filled = (*filled, *contents.of_new(program, new, lambda name: name not in lost))
    opened = contents.with_lanes(sealing.opened(new, filled), staging_of(filled))
    change = replace(difference(program, opened), contents=filled)
    if opened.sealed != new.sealed:
        change = sealed_after(change, sealing.resealed(change.new, new.sealed))
    return change


def _with_backups(
    program: Program,
    kept: Backups,
    units: Units,
    moved: Mapping[str, Sequence[MemoryPart]],
    to: str,
    checked: bool,
) -> Program:
    """The program with a backup for each allocation; a retained one is used again."""
    backups: dict[str, Entry] = {}
    taken: Overlay[str, Any] = Overlay(program.makers)
    made: list[steps.Step] = []
    for unit, groups in units.items():
        places = _Places(unit, taken)
        for group in groups:
            first = first_of(group)
            was = kept.entries.get(first)
            if to == DROP:
                entry: Entry = AlikeBackups.to_drop(group.memory) if isinstance(group, MappingRun) else Backup(to)
            elif was is not None and first_backup(was).is_at(to, "") and _is_as_large(was, group, moved):
                entry = was
            elif isinstance(group, MappingRun):
                entry = places.of_run(group.memory)
            else:
                device = find(program, CreateAllocation, group).device
                entry = places.take(device, _bytes_of(moved.get(group, ())))
            backups[first] = entry if to == DROP else with_checksum(entry, checked)
        made += _pinned(places.ends, program)
    new = without_unused(replace(program, backups=kept.with_more(backups)))
    return replace(new, steps=Series(new.steps).with_more(made))


def _is_as_large(was: Entry, group: MemoryGroup, moved: Mapping[str, Sequence[MemoryPart]]) -> bool:
    """Whether a backup has as many bytes as the memory of a group."""
    if isinstance(group, MappingRun):
        return first_backup(was).size == group.size
    return first_backup(was).size == _bytes_of(moved.get(group, ()))


def _bytes_of(parts: Iterable[MemoryPart]) -> int:
    return sum(part.size for part in parts)


class _Places:
    """The pinned memory near each device for the bytes of a name that the caller passed."""

    def __init__(self, unit: str, taken: Overlay[str, Any]) -> None:
        """taken: the names that have a meaning."""
        self._unit = unit
        self._taken = taken
        self.ends: dict[int, tuple[str, int]] = {}
        """Device -> the name of its memory, and how many bytes of it are used."""

    def take(self, device: int, size: int) -> Backup:
        """So many bytes more."""
        place, end = self.ends.get(device, ("", 0))
        place = place or pinned_name(self._unit, device, self._taken)
        self._taken[place] = None
        self.ends[device] = place, end + size
        return Backup(HOST, place, end, size)

    def of_run(self, run: MemoryRun) -> AlikeBackups:
        """Bytes for all chunks of a run."""
        few = run.kinds[: len(run.chunks)]
        first = tuple(self.take(kind.device, kind.size) for kind in few)
        in_turn = Counter(kind.device for kind in few)
        for kind, (_, many) in zip(few, run.alike(), strict=True):
            self.take(kind.device, (many - 1) * kind.size)
        return AlikeBackups(run, first, tuple(in_turn[kind.device] * kind.size for kind in few))


def _in_file(
    program: Program,
    kept: Backups,
    memory: Mapping[str, MemoryGroup],
    moved: Mapping[str, Sequence[MemoryPart]],
    file: str,
    checked: bool,
) -> Program:
    """The program with one file for all bytes. Kept copies of other memory in that file are forgotten.

    Raises ApplyError (HP420): other sleeping memory is in that file.
    """
    end = 0
    file_size = sum(part.size for parts in moved.values() for part in parts)
    others = [name for name, backup in kept.firsts.items() if backup.place == file and name not in moved]
    asleep = makers_of(program.sleeping) if others else {}
    for name in others:
        if name in asleep:
            other = plan_name_of(program, name)
            raise refuse(f"{file} already holds the bytes of '{other}'", hint="name another file")
    in_file: dict[str, Entry] = {}
    for name, parts in moved.items():
        size, group = _bytes_of(parts), memory[name]
        first = Backup(FILE, file, end, group.size if isinstance(group, MappingRun) else size, file_size, checked)
        in_file[name] = AlikeBackups.in_a_row(group.memory, first) if isinstance(group, MappingRun) else first
        end += size
    return without_unused(replace(program, backups=Backups.of(kept.without({*others})).with_more(in_file)))


def _in_the_order_of(
    backups: Mapping[str, Backup], moved: dict[str, tuple[MemoryPart, ...]], file: str
) -> dict[str, tuple[MemoryPart, ...]]:
    """The same memory in the order in which a kept file has it, if it has all of it."""
    if not all(name in backups and backups[name].place == file for name in moved):
        return moved
    return dict(sorted(moved.items(), key=lambda item: backups[item[0]].offset))


def _pinned(ends: Mapping[int, tuple[str, int]], program: Program) -> Iterator[steps.Step]:
    """Pinned memory near each device."""
    for device, (name, size) in ends.items():
        node = program.measured.devices[device].numa_node if program.measured is not None else None
        yield CreatePinnedBuffer(
            name=name,
            origin=None,
            device=device,
            size=size,
            flags=("portable",),
            numa_node=-1 if node is None else node,
        )


def without_unused(program: Program) -> Program:
    """The program without pinned memory of backups that are gone."""
    used = places_of(program.backups)
    unused = {step.name for _, step in program.single if is_backup(step) and step.name not in used}
    return replace(program, steps=without(program.steps, lambda step: step.name in unused, ())) if unused else program


def woken(program: Program, memory: Iterable[MemoryGroup]) -> Program:
    """The program with the steps of this memory again: memory first, then mappings in the order of addresses."""
    asleep, woken = parted(program.sleeping, memory)
    made: Parts[steps.Step] = Parts()
    for is_memory in (True, False):
        for part in segments(woken):
            if isinstance(part, ChunkRun):
                made.extend(part if (part.makes == "allocation") == is_memory else [])
            else:
                made.extend([step for step in part if step.owns_memory == is_memory])
    return replace(program, steps=Series.joined((program.steps, made.series())), sleeping=asleep)
