"""The backups of a program by allocation: those of a run's chunks are made when they are asked for."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hipplan.program.backups import DROP, Backup
from hipplan.program.runs import ByName, MemoryRun, Run


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

    @classmethod
    def to_drop(cls, run: MemoryRun) -> AlikeBackups:
        """For bytes that are not kept."""
        return cls(run, (Backup(DROP),), (0,))

    def __call__(self, run: Run, chunk: int, /) -> Backup:
        again, kind = divmod(chunk - run.chunks.start, len(self.first))
        first = self.first[kind]
        return Backup(first.to, first.place, first.offset + again * self.steps[kind], first.size)


class Backups(ByName[Backup]):
    """Allocation -> its backup. Those of runs are made when they are asked for; they have no checksums, and are not in
    files."""

    def __init__(self, single: Mapping[str, Backup], of_runs: Iterable[AlikeBackups] = ()) -> None:
        """single: of allocations in no run."""
        self.single = dict(single)
        self.of_runs = tuple(of_runs)
        super().__init__(self.single, [(alike.run, alike) for alike in self.of_runs])

    @classmethod
    def of(cls, backups: Mapping[str, Backup]) -> Backups:
        """The same backups, for more to be added to."""
        return cls(backups.single, backups.of_runs) if isinstance(backups, Backups) else cls(backups)

    def with_more(self, single: Mapping[str, Backup], of_runs: Iterable[AlikeBackups] = ()) -> Mapping[str, Backup]:
        """These and others, which count for memory that has one here already. of_runs: for memory that has none."""
        changed = [alike for alike in self.of_runs if alike.run.name_of(alike.run.chunks.start) in single]
        written_out = {name: self[name] for alike in changed for name in map(alike.run.name_of, alike.run.chunks)}
        stay = [alike for alike in self.of_runs if alike not in changed]
        return _made({**self.single, **written_out, **single}, (*stay, *of_runs))

    def without(self, names: Container[str]) -> Mapping[str, Backup]:
        """Returns the backups of other memory. names: that of its first chunk stands for all of a run."""
        of_runs = [alike for alike in self.of_runs if alike.run.name_of(alike.run.chunks.start) not in names]
        return _made({name: backup for name, backup in self.single.items() if name not in names}, of_runs)


def _made(single: dict[str, Backup], of_runs: Sequence[AlikeBackups]) -> Mapping[str, Backup]:
    return Backups(single, of_runs) if of_runs else single


def places_of(backups: Mapping[str, Backup]) -> set[str]:
    """The pinned memory and the files that hold bytes of backups."""
    of = Backups.of(backups)
    return {each.place for each in of.single.values()} | {each.place for alike in of.of_runs for each in alike.first}
