"""Copies the bytes of memory that is made again into the new memory: those of alike chunks are a run. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain, cycle, islice
from typing import NamedTuple

from hipplan.kinds.allocation.live import CopyBytes, CreateAllocation, before
from hipplan.kinds.mapping.live import Map, Rights, SetAccess, TakeOut
from hipplan.kinds.reservation.live import Reserve
from hipplan.program.chunk_runs import MappingRun, MemoryRun, chunk_runs
from hipplan.program.difference import Difference
from hipplan.program.memory import right_to_copy_from
from hipplan.program.runs import AlikeSteps, Run, plain
from hipplan.program.series import Parts, Series, segments
from hipplan.program.steps import Step


class CopyKind(NamedTuple):
    """How the bytes of an allocation come into the new one."""

    source: int
    """The device that reads the old memory."""
    target: int
    """The device that writes the new memory."""
    in_place: bool
    """The old memory is read where it is mapped, and else at a temporary place."""
    reads: Rights
    """The rights on the old memory at a temporary place."""
    writes: Rights
    """The rights on the new memory at its temporary place."""

    @property
    def pieces(self) -> int:
        """How many mappings the temporary place has."""
        return 1 if self.in_place else 2

    def steps_of(self, name: str, size: int, there: str) -> Iterator[Step]:
        """The steps for an allocation. there: its old mapping, where it is read in place."""
        place, to, from_ = f"{name} (copy)", f"{name} (copied to)", f"{name} (copied from)"
        taken = self.pieces * size
        yield Reserve(place, None, size=taken, asked=taken, alignment=0, slack=0, address=0, exact=False)
        yield Map(to, None, reservation=place, allocation=name, offset=0, size=size, asked=size)
        yield SetAccess(to, None, rights=self.writes)
        if not self.in_place:
            yield Map(from_, None, reservation=place, allocation=before(name), offset=size, size=size, asked=size)
            yield SetAccess(from_, None, rights=self.reads)
        yield CopyBytes(
            name=name,
            origin=None,
            source=there if self.in_place else from_,
            in_place=self.in_place,
            source_device=self.source,
            target=to,
            target_device=self.target,
            size=size,
        )

    @property
    def length(self) -> int:
        """How many these steps are."""
        return 2 + 2 * self.pieces


class CopyRun(AlikeSteps):
    """The steps that copy the bytes of alike chunks, for one chunk after the other."""

    __slots__ = ("kinds", "mapped", "memory")

    def __init__(self, mapped: MappingRun, memory: MemoryRun, kinds: Sequence[CopyKind]) -> None:
        """mapped: the old mappings and memory. memory: the new memory. kinds: of the first chunks, which the others
        repeat."""
        self.mapped = mapped
        self.memory = memory
        self.kinds = tuple(kinds)

    def __len__(self) -> int:
        whole, more = divmod(len(self.memory.chunks), len(self.kinds))
        return whole * sum(kind.length for kind in self.kinds) + sum(kind.length for kind in self.kinds[:more])

    def item(self, number: int) -> Step:
        again, number = divmod(number, sum(kind.length for kind in self.kinds))
        place = again * len(self.kinds)
        for kind in self.kinds:
            if number < kind.length:
                break
            number, place = number - kind.length, place + 1
        return [*self._of_chunk(self.memory.chunks[place])][number]

    def __iter__(self) -> Iterator[Step]:
        return chain.from_iterable(map(self._of_chunk, self.memory.chunks))

    def _of_chunk(self, chunk: int) -> Iterator[Step]:
        kind = self.kinds[(chunk - self.memory.chunks.start) % len(self.kinds)]
        return kind.steps_of(self.memory.name_of(chunk), self.memory.memory_size, self.mapped.name_of(chunk))

    @property
    def temporary(self) -> int:
        """How many objects exist only meanwhile: places and mappings."""
        whole, more = divmod(len(self.memory.chunks), len(self.kinds))
        each = [1 + kind.pieces for kind in self.kinds]
        return whole * sum(each) + sum(each[:more])

    def same_as(self, other: CopyRun) -> bool:
        is_same = self.mapped.same_as(other.mapped) and self.memory.same_as(other.memory)
        return is_same and self.kinds == other.kinds

    def alike(self) -> Iterator[tuple[Step, int]]:
        for place in range(len(self.kinds)):
            if chunks := self.memory.chunks[place :: len(self.kinds)]:
                yield from ((step, len(chunks)) for step in self._of_chunk(chunks[0]))


def carries_of(change: Difference, was: Sequence[Step]) -> Series[Step]:
    """The steps that copy the bytes of each allocation. The new memory is mapped at a temporary place for this, and so
    is the old memory, unless it already has a mapping that the copying devices may read. was: the steps of the old
    program for this memory, as of renewal()."""
    ways = _Ways(change, *map(plain, (change.additions, change.gone, change.changes)))
    new = {(run.region, run.chunks): run for _, run in chunk_runs(change.additions)}
    old = {(run.region, run.chunks): run for _, run in chunk_runs(was) if isinstance(run, MappingRun)}
    made: Parts[Step] = Parts()
    for part in segments(was):
        if isinstance(part, MemoryRun):
            memory = new[part.region, part.chunks]
            assert isinstance(memory, MemoryRun)
            made.extend(ways.run(old[part.region, part.chunks], memory))
        elif not isinstance(part, Run):
            made.extend(chain.from_iterable(map(ways.steps_of, _memory(part))))
    return made.series()


def carries_one_by_one(change: Difference, names: Set[str]) -> Series[Step]:
    """The same for the allocations of these names, without runs."""
    ways = _Ways(change, change.additions, change.gone, change.changes)
    return Series([*chain.from_iterable(ways.steps_of(step) for step in _memory(change.gone) if step.name in names)])


def _memory(some_steps: Iterable[Step]) -> Iterator[CreateAllocation]:
    return (step for step in some_steps if isinstance(step, CreateAllocation))


class _Ways:
    """How the bytes of allocations come into the new ones. All old mappings are taken out."""

    def __init__(
        self, change: Difference, additions: Iterable[Step], gone: Iterable[Step], changes: Iterable[Step]
    ) -> None:
        """additions, gone, changes: those steps of the change that are not looked at in runs."""
        self._program = change.old
        self._machine = change.new.measured
        self._new = {step.name: step for step in _memory(additions)}
        self._maps: dict[str, list[Map]] = {}
        for step in gone:
            if isinstance(step, Map):
                self._maps.setdefault(step.allocation, []).append(step)
        self._rights = {step.name: step.rights for step in changes if isinstance(step, TakeOut)}

    def steps_of(self, was: CreateAllocation) -> Iterator[Step]:
        """The steps for an allocation that goes."""
        maps = (step.name for step in self._maps.get(was.name, ()) if step.size == was.size)
        mapped = {name: self._rights.get(name, ()) for name in maps}
        kind, there = self._kind(was, self._new[was.name], mapped)
        return kind.steps_of(was.name, was.size, there)

    def run(self, mapped: MappingRun, memory: MemoryRun) -> CopyRun:
        """The steps for alike chunks. mapped: their mappings and memory, which go. memory: the new one."""
        few = min(len(memory.chunks), math.lcm(len(mapped.memory.kinds), len(mapped.rights), len(memory.kinds)))
        in_turn = zip(cycle(mapped.memory.kinds), cycle(memory.kinds), cycle(mapped.rights))
        kinds = [self._kind(was, now, {"": rights})[0] for was, now, rights in islice(in_turn, few)]
        return CopyRun(mapped, memory, kinds)

    def _kind(self, was: CreateAllocation, now: CreateAllocation, mapped: Mapping[str, Rights]) -> tuple[CopyKind, str]:
        """How bytes come into the new memory, and the mapping where they are read. mapped: each mapping of all of the
        old memory, and the rights on it."""
        source, target = self._copiers(was, now)
        machine = self._machine
        both = machine is not None and machine.can_access(source, target) and machine.can_access(target, source)
        who = {ordinal: {source, target} if both else {ordinal} for ordinal in (source, target)}
        right = right_to_copy_from(machine)
        needed = {device: "r" if device == source else right for device in who[source]}
        for there, rights in mapped.items():
            given = dict(rights)
            if all(right in given.get(device, "") for device, right in needed.items()):
                return CopyKind(source, target, True, (), _all_rights(who[target])), there
        return CopyKind(source, target, False, _all_rights(who[source]), _all_rights(who[target])), ""

    def _copiers(self, was: CreateAllocation, now: CreateAllocation) -> tuple[int, int]:
        """The devices that read the old memory and write the new one. The GPU of the other side moves memory of the
        host; from one node to another, the first device of the plan does."""
        gpus = [step.device for step in (was, now) if step.is_on_device] or [*self._program.devices.values()]
        source, target = (step.device if step.is_on_device else gpus[0] for step in (was, now))
        return source, target


def _all_rights(devices: Set[int]) -> Rights:
    return tuple((ordinal, "rw") for ordinal in sorted(devices))
