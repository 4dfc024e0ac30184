"""Steps that write bytes into memory or files.

They need no undo: a roll back frees the memory, and its bytes with it. The pinned memory and streams that they use are
made by steps of their own, before them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from operator import itemgetter
from pathlib import PurePath
from typing import Any, Protocol, TypeAlias

from hipplan.errors import ApplyError, Diagnostic, Span
from hipplan.files.tensorfiles import FileProblem, Files, WantedBytes
from hipplan.language.findings import in_order
from hipplan.program.intervals import Intervals
from hipplan.program.on_demand import Evenly
from hipplan.program.series import segments
from hipplan.program.steps import CPU_ORDINAL, Step, step_data
from hipplan.units import PAGE, round_up, short_size

STREAMS = 4
"""Streams for copies on each device, shared by all threads."""

STAGING_MAX = 64 * 2**20
"""At most so many bytes of pinned memory for each device: memory that fits the processor's cache is copied fastest."""

_STAGING_WHOLE = 2**20
"""Up to so many bytes to copy, the pinned memory is as large as they are."""

_STAGING_SHARE = 64
"""Above that, it has about 1/64 of them: pinning a page takes ten times as long as copying it."""


def staging_size(moved: int) -> int:
    """Bytes of pinned memory to use for copying so many bytes to or from a device."""
    if moved <= _STAGING_WHOLE:
        return max(round_up(moved, PAGE), 16 * PAGE)
    share = 1 << ((moved - 1) // _STAGING_SHARE).bit_length()
    return min(max(share, _STAGING_WHOLE), STAGING_MAX)


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """A piece of memory that one device can reach."""

    object: str
    """The live object that contains it."""
    offset: int
    size: int
    device: int
    """The device that moves the bytes; CPU_ORDINAL: the CPU may do it."""

    def cut(self, start: int, size: int) -> MemoryPart:
        """A slice of it."""
        return MemoryPart(self.object, self.offset + start, size, self.device)


Fresh: TypeAlias = Callable[[str, MemoryPart], Iterator[MemoryPart]]
"""(name, part of it) -> what of the part has to be written."""


class CarriesOut(Protocol):
    """Who carries out content steps."""

    def fill(self, step: Fill) -> None: ...
    def copy(self, step: Copy) -> None: ...
    def load(self, step: LoadFiles) -> None: ...
    def save(self, step: Save) -> None: ...
    def digest(self, step: Digest) -> None: ...


@step_data
class ContentStep(Step):
    """What the steps that move bytes have, and what hipplan asks each."""

    is_content = True

    def done_by(self, mover: CarriesOut) -> None:
        """Has it carried out."""
        raise NotImplementedError

    @property
    def is_staged(self) -> bool:
        """Whether devices move its bytes through pinned memory."""
        return False

    def written(self) -> Sequence[MemoryPart]:
        """The memory that it writes."""
        return ()

    def read(self) -> Sequence[MemoryPart]:
        """The memory that it reads."""
        return ()

    def sides(self) -> Iterator[tuple[MemoryPart, ...]]:
        """The parts that each piece of the work uses together."""
        yield from ((part,) for part in self.written())

    @property
    def file_written(self) -> str:
        """The path of the file that it writes; empty where it writes none."""
        return ""

    @property
    def files_read(self) -> Sequence[str]:
        """The paths of the files that it reads."""
        return ()

    def only(self, fresh: Fresh) -> ContentStep | None:
        """The step, only for what `fresh` returns of each part; None if that is nothing, or if it is in no plan."""
        return None

    def given(self, folder: PurePath) -> Iterator[tuple[str, object]]:
        """(name, what tells its contents apart) of each object that it fills. folder: the plan's."""
        return iter(())

    def objects(self) -> Sequence[str]:
        """The names of the objects whose bytes it moves."""
        return (self.name,)

    def problems(self, files: Files) -> list[Diagnostic]:
        """What is wrong with the files that it reads: they cannot be read, or do not fit. Moves nothing."""
        return []


@step_data
class Fill(ContentStep):
    call = "hipMemsetAsync"
    parts: tuple[MemoryPart, ...]
    value: str
    """The value, as the plan says it."""
    pattern: str
    """One element's bytes, in hexadecimal digits."""

    def describe(self) -> str:
        return f"{short_size(sum(part.size for part in self.parts))} of {self.value}"

    def done_by(self, mover: CarriesOut) -> None:
        mover.fill(self)

    def written(self) -> Sequence[MemoryPart]:
        return self.parts

    def only(self, fresh: Fresh) -> Fill | None:
        parts = tuple(new for part in self.parts for new in fresh(self.name, part))
        return replace(self, parts=parts) if parts else None

    def given(self, folder: PurePath) -> Iterator[tuple[str, object]]:
        yield self.name, self.pattern


@step_data
class Copy(ContentStep):
    call = "hipMemcpyAsync"
    source: str
    pairs: tuple[tuple[MemoryPart, MemoryPart], ...]
    """(to, from), of equal size each."""
    staged: bool = False
    """Each device copies only between its own memory and hipplan's pinned memory."""

    def describe(self) -> str:
        size = short_size(sum(to.size for to, _ in self.pairs))
        return f"{size} from {self.source}" + (", through pinned memory" if self.staged else "")

    def done_by(self, mover: CarriesOut) -> None:
        mover.copy(self)

    @property
    def is_staged(self) -> bool:
        return self.staged

    def written(self) -> Sequence[MemoryPart]:
        return [to for to, _ in self.pairs]

    def read(self) -> Sequence[MemoryPart]:
        return [source for _, source in self.pairs]

    def sides(self) -> Iterator[tuple[MemoryPart, ...]]:
        yield from self.pairs

    def only(self, fresh: Fresh) -> Copy | None:
        pairs = tuple(
            (new, from_.cut(new.offset - to.offset, new.size))
            for to, from_ in self.pairs
            for new in fresh(self.name, to)
        )
        return replace(self, pairs=pairs) if pairs else None

    def given(self, folder: PurePath) -> Iterator[tuple[str, object]]:
        yield self.name, self.source


@dataclass(frozen=True, slots=True)
class Taken:
    """Memory to fill from a file, and with which of its bytes."""

    wanted: WantedBytes
    pieces: tuple[tuple[int, MemoryPart], ...]
    """(offset in the file's data, destination). Of a backup they may also be a Series, in which alike ones are made
    when they are asked for."""
    origin: Span | None = None
    sums: tuple[int | None, ...] = ()
    """For each piece of a backup what Save.sums is. The checksums are compared with the stored ones."""


@step_data
class LoadFiles(ContentStep):
    """Loads from files. Neighbouring loads are one step, so that all devices load at the same time."""

    call = "hipMemcpyAsync"
    loads: tuple[Taken, ...]
    files: tuple[str, ...]

    def describe(self) -> str:
        size = short_size(sum(part.size for part in self.written()))
        of = f"{self.files[0]}" if len(self.files) == 1 else f"{len(self.files)} files"
        return f"{size} from {of}" + (f", {len(self.loads)} places" if len(self.loads) > 1 else "")

    def done_by(self, mover: CarriesOut) -> None:
        mover.load(self)

    @property
    def is_staged(self) -> bool:
        return True

    def written(self) -> Sequence[MemoryPart]:
        return [part for load in self.loads for (_, part), _, _ in joined_pieces(load.pieces)]

    @property
    def files_read(self) -> Sequence[str]:
        return self.files

    def only(self, fresh: Fresh) -> LoadFiles | None:
        loads = []
        for load in self.loads:
            name = load.wanted.name
            pieces = ((at + new.offset - part.offset, new) for at, part in load.pieces for new in fresh(name, part))
            loads.append(replace(load, pieces=tuple(pieces)))
        needed = tuple(load for load in loads if load.pieces)
        return replace(self, loads=needed) if needed else None

    def given(self, folder: PurePath) -> Iterator[tuple[str, object]]:
        for wanted in (load.wanted for load in self.loads):
            path = PurePath(wanted.file)
            file = path.relative_to(folder) if path.is_relative_to(folder) else path
            yield wanted.name, (file, wanted.at, wanted.tensor, wanted.part, wanted.parts)

    def objects(self) -> Sequence[str]:
        return [load.wanted.name for load in self.loads]

    def problems(self, files: Files) -> list[Diagnostic]:
        problems: dict[tuple[str, str], Diagnostic] = {}
        for load in self.loads:
            try:
                files.rows(load.wanted)
            except FileProblem as problem:
                diagnostic = problem.diagnostic(load.origin)
                problems.setdefault((diagnostic.code, diagnostic.summary), diagnostic)
        return in_order(problems.values())


@step_data
class Save(ContentStep):
    """Writes bytes to a new file, which replaces an old one when it is complete."""

    call = "hipMemcpyAsync"
    file: str
    parts: Sequence[MemoryPart]
    header: bytes = b""
    places: tuple[tuple[int, int], ...] | None = None
    """For each part the descriptor of a file that is open and large enough, and where in it. None: the new file."""
    private: bool = False
    """The file is a backup: only this user may open it."""
    sums: Sequence[int | None] = ()
    """For each part of a backup, where in the file the bytes of its allocation begin, which have a checksum; None: they
    have none."""

    def describe(self) -> str:
        return f"{short_size(size_of(self))} to {self.file}"

    def done_by(self, mover: CarriesOut) -> None:
        mover.save(self)

    @property
    def is_staged(self) -> bool:
        return True

    @property
    def file_written(self) -> str:
        return self.file

    def read(self) -> Sequence[MemoryPart]:
        return [part for part, _, _ in joined(self.parts)]


@step_data
class Digest(ContentStep):
    """The checksums of pieces of a backup that are not copied by the same change: stored, or compared with the stored
    ones."""

    call = "checksum"
    place: str
    """The pinned memory's name, or the file's path."""
    is_file: bool
    pieces: Sequence[tuple[int, int]]
    """(offset, bytes) in that memory or file, of each allocation."""
    compares: bool

    def describe(self) -> str:
        where = self.place if self.is_file else "its copy"
        size = sum(
            part.size if isinstance(part, Evenly) else sum(map(itemgetter(1), part)) for part in segments(self.pieces)
        )
        return f"{short_size(size)} of {where}" + (", compared with the copy" if self.compares else "")

    def done_by(self, mover: CarriesOut) -> None:
        mover.digest(self)


Staging = dict[int, int]
"""Device -> bytes of pinned memory."""


def staging_of(steps: Iterable[ContentStep]) -> Staging:
    """The pinned memory that these steps need. They run one after the other and share it."""
    need: Staging = {}
    for step in steps:
        for device, moved in _staged(step).items():
            need[device] = max(need.get(device, 0), staging_size(moved))
    return need


def _staged(step: ContentStep) -> dict[int, int]:
    """Device -> bytes that pass through pinned memory; 0 for a device that moves its bytes without it."""
    bytes_by_device: dict[int, int] = {}
    for part in (*step.written(), *step.read()):
        if part.device != CPU_ORDINAL:
            bytes_by_device[part.device] = bytes_by_device.get(part.device, 0) + part.size * step.is_staged
    return bytes_by_device


def size_of(step: Save) -> int:
    """Bytes of all parts."""
    return sum([part.size for part, _, _ in joined(step.parts)])


Joined: TypeAlias = list[tuple[Any, int, int | None]]


def joined(parts: Sequence[MemoryPart], sums: Sequence[int | None] = ()) -> Joined:
    """(part, bytes of each allocation in it, that of `sums` for the first of them). The parts of alike allocations that
    lie one after the other are one; for any other part the bytes are 0."""
    return _joined(parts, sums, lambda run: replace(run[0], size=run.size))


def joined_pieces(pieces: Sequence[tuple[int, MemoryPart]], sums: Sequence[int | None] = ()) -> Joined:
    """The same for pieces of Taken."""
    return _joined(pieces, sums, lambda run: (run[0][0], replace(run[0][1], size=run.size)))


def _joined(items: Sequence[Any], sums: Sequence[int | None], whole: Callable[[Evenly[Any]], Any]) -> Joined:
    """whole: makes one item of those of a run."""
    made: Joined = []
    number = 0
    for segment in segments(items):
        if isinstance(segment, Evenly):
            made.append((whole(segment), segment.each, sums[number] if sums else None))
        else:
            of_these = sums[number : number + len(segment)] if sums else repeat(None)
            made += zip(segment, repeat(0), of_these)  # what is repeated does not end
        number += len(segment)
    return made


def where_written(steps: Iterable[ContentStep]) -> dict[str, Intervals]:
    """Object -> the bytes of it that these steps write."""
    written: dict[str, list[tuple[int, int]]] = {}
    for step in steps:
        for part in step.written():
            written.setdefault(part.object, []).append((part.offset, part.offset + part.size))
    return {name: Intervals(ranges) for name, ranges in written.items()}


def check_files(steps: Iterable[ContentStep], files: Files) -> None:
    """Check all files of these steps before anything is done. Raises ApplyError."""
    problems = [problem for step in steps for problem in step.problems(files)]
    if problems:
        raise ApplyError(problems)
