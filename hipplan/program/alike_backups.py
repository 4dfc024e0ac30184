"""The backups of a program by allocation: those of a run's chunks are made when they are asked for."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from hipplan.program.backups import DROP, Backup
from hipplan.program.by_name import ByName
from hipplan.program.chunk_runs import MemoryRun


@dataclass(frozen=True, slots=True)
class AlikeBackups:
    """The backups of a run's chunks, which have their kinds in turn."""

    run: MemoryRun
    first: tuple[Backup, ...]
    """The backups of the first chunks, one of each kind."""
    steps: tuple[int, ...]
    """From a chunk of each kind to the next one of that kind, in bytes."""

    def places(self) -> list[tuple[str, int]]:
        """(place, offset) of the bytes of each chunk."""
        in_turn = [(each.place, each.offset, step) for each, step in zip(self.first, self.steps, strict=True)]
        many = len(self.run.chunks)
        again = range(-(-many // len(in_turn)))
        return [(place, first + step * number) for number in again for place, first, step in in_turn][:many]

    def stretches(self) -> Iterator[tuple[str, int, int]]:
        """(place, offset, bytes) of the bytes of all chunks in each place, where they lie one after the other."""
        size, places = self.first[0].size, [each.place for each in self.first]
        whole, more = divmod(len(self.run.chunks), len(places))
        for place in dict.fromkeys(places):
            many = whole * places.count(place) + places[:more].count(place)
            yield place, min(each.offset for each in self.first if each.place == place), many * size

    @classmethod
    def to_drop(cls, run: MemoryRun) -> AlikeBackups:
        """Makes backups of bytes that are not kept."""
        return cls(run, (Backup(DROP),), (0,))

    @classmethod
    def in_a_row(cls, run: MemoryRun, first: Backup) -> AlikeBackups:
        """Makes backups of bytes that lie one after the other. first: of the first chunk."""
        return cls(run, (first,), (first.size,))

    def __call__(self, run: MemoryRun, chunk: int, /) -> Backup:
        again, kind = divmod(chunk - run.chunks.start, len(self.first))
        first = self.first[kind]
        return replace(first, offset=first.offset + again * self.steps[kind])


Entry: TypeAlias = Backup | AlikeBackups
"""The backup of an allocation in no run, or those of a run's chunks."""


def first_backup(entry: Entry) -> Backup:
    """The backup, or that of the first chunk."""
    return entry if isinstance(entry, Backup) else entry.first[0]


def with_checksum(entry: Entry, checked: bool) -> Entry:
    """The same bytes, with or without a checksum."""
    if isinstance(entry, Backup):
        return replace(entry, checked=checked)
    return replace(entry, first=tuple(replace(backup, checked=checked) for backup in entry.first))


def is_same_copy(kept: Entry | None, wanted: Entry) -> bool:
    """Whether a copy is where another one is to be, with or without a checksum."""
    if isinstance(kept, AlikeBackups) and isinstance(wanted, AlikeBackups):
        kept = replace(kept, run=wanted.run)  # its memory may be on another device by now
    return kept is not None and with_checksum(kept, first_backup(wanted).checked) == wanted


class Backups(ByName[Backup]):
    """Allocation -> its backup. Those of runs are made when they are asked for."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        """entries: by their first allocations."""
        self.entries = dict(entries)
        alike = [entry for entry in entries.values() if isinstance(entry, AlikeBackups)]
        single = {name: entry for name, entry in entries.items() if isinstance(entry, Backup)}
        super().__init__(single, [(each.run, each) for each in alike])

    @classmethod
    def of(cls, backups: Mapping[str, Backup]) -> Backups:
        """The same backups, of which some may be together."""
        return backups if isinstance(backups, Backups) else cls(backups)

    @cached_property
    def firsts(self) -> dict[str, Backup]:
        """The first of the backups in each entry, by the name of its allocation: the others are in the same place, but
        for those of other devices, in pinned memory."""
        return {name: first_backup(entry) for name, entry in self.entries.items()}

    def apart(self, runs: Iterable[MemoryRun], regions: Container[str]) -> Backups:
        """The same; those of chunks of these regions are only together where one of these runs has these chunks."""
        whole = {(run.region, run.chunks) for run in runs}
        entries: dict[str, Entry] = {}
        for name, entry in self.entries.items():
            run = None if isinstance(entry, Backup) else entry.run
            if run is None or run.region not in regions or (run.region, run.chunks) in whole:
                entries[name] = entry
            else:
                entries |= {chunk: self[chunk] for chunk in map(run.name_of, run.chunks)}
        return Backups(entries)

    def with_more(self, more: Mapping[str, Entry]) -> Mapping[str, Backup]:
        """These and others, which count for memory that has one here already."""
        return _made({**self.entries, **more})

    def without(self, names: Container[str]) -> Mapping[str, Backup]:
        """Returns the backups of other memory. names: that of its first chunk stands for all of a run."""
        return _made({name: entry for name, entry in self.entries.items() if name not in names})


def _made(entries: Mapping[str, Entry]) -> Mapping[str, Backup]:
    backups = Backups(entries)
    return backups if len(backups) > len(entries) else {**backups}


def places_of(backups: Mapping[str, Backup]) -> set[str]:
    """The pinned memory and the files that hold bytes of backups."""
    entries = Backups.of(backups).entries.values()
    return {each.place for entry in entries for each in (entry.first if isinstance(entry, AlikeBackups) else (entry,))}
