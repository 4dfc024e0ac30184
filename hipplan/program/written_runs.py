"""Runs in the text of a program: what thousands of chunks have in common is written once, and read as runs again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Any

from hipplan.errors import Span
from hipplan.kinds.allocation.live import CreateAllocation
from hipplan.kinds.lives import BUFFERS
from hipplan.kinds.mapping.live import Rights
from hipplan.program.by_name import ByName, OfMember
from hipplan.program.chunk_runs import ChunkRun, MappingRun, MemoryRun
from hipplan.program.chunks import Chunks
from hipplan.program.count_runs import CountMappingRun, CountRun
from hipplan.program.mapped_runs import MappedRun
from hipplan.program.numbered import Stem, stem_of
from hipplan.program.on_demand import Repeated
from hipplan.program.regions import memory_of
from hipplan.program.runs import Run, plain, runs
from hipplan.program.series import Parts, segments
from hipplan.program.steps import Step

_COUNTED: dict[str, type[Step]] = {
    CreateAllocation.__name__: CreateAllocation,
    **{kind.__name__: kind for kind in BUFFERS.values()},
}
"""Name -> kind of step in runs of `count:`."""
_MOST = 1_000_000
"""Objects of a program in runs: a few characters of a text could mean more than a process has memory for."""


def plain_run(run: Run) -> dict[str, Any]:
    """What is written for a run."""
    if isinstance(run, CountRun):
        counts = {"first": run.numbers.start, "count": len(run)}
        return {"run": "counted", "of": run.of, **counts, "step": type(run.kind).__name__, "kind": run.kind}
    if isinstance(run, CountMappingRun):
        places = {"offset": run.offset, "size": run.size, "asked": run.asked, "origin": run.origin}
        of_memory = {"first": run.numbers.start, "memory": plain_run(run.memory)}
        return {"run": "counted mappings", "of": run.of, **of_memory, **places, "rights": run.rights[0]}
    assert isinstance(run, ChunkRun)
    mapped = run if isinstance(run, MappingRun) else None
    memory = run.memory if isinstance(run, MappingRun) else run
    assert isinstance(memory, MemoryRun)
    of_both = {"region": run.region, "first": run.chunks.start, "count": len(run.chunks), "kinds": memory.kinds}
    if mapped is None:
        return {"run": "memory", **of_both}
    return {"run": "mappings", **of_both, "offset": mapped.offset, "origin": mapped.origin, "rights": mapped.rights}


def plain_chunks(chunks: Chunks) -> list[Any]:
    """What is written for the chunks of a region: an entry for each, or for those that are alike."""
    written: list[Any] = []
    for part in segments(chunks):
        written += [{"again": [*part.cycle], "count": len(part)}] if isinstance(part, Repeated) else part
    return written


class Reader:
    """Reads the runs of one program. Its methods raise ValueError, TypeError, LookupError: it is no run."""

    def __init__(self, read: Callable[[Any, Any], Any]) -> None:
        """read: reads a value of a type."""
        self._read = read
        self._left = _MOST

    def run(self, data: dict[str, Any]) -> Run:
        if data["run"] == "counted mappings":
            return self._counted_mappings(data)
        return self._counted(data) if data["run"] == "counted" else self._of_chunks(data)

    def _counted(self, data: dict[str, Any]) -> CountRun:
        kind, of = self._read(_COUNTED[data["step"]], data["kind"]), self._read(str, data["of"])
        first, count = self._read(int, data["first"]), self._count(data["count"], [kind])
        if first < 0 or kind.name != f"{of}.{first}":
            raise ValueError(f"the run of {of} does not begin with {kind.name}")
        return CountRun(of, range(first, first + count), kind)

    def _counted_mappings(self, data: dict[str, Any]) -> CountMappingRun:
        memory, of = self._counted(data["memory"]), self._read(str, data["of"])
        first, offset, size, asked = (self._read(int, data[key]) for key in ("first", "offset", "size", "asked"))
        if not isinstance(memory.kind, CreateAllocation) or not 0 < size <= memory.kind.size or min(first, offset) < 0:
            raise ValueError(f"the mappings of {of} are no run")
        origin, rights = self._read(Span | None, data["origin"]), self._read(Rights, data["rights"])
        return CountMappingRun(of, first, memory, offset, (size, asked), origin, rights)

    def _of_chunks(self, data: dict[str, Any]) -> ChunkRun:
        kinds, region = [self._read(CreateAllocation, kind) for kind in data["kinds"]], self._read(str, data["region"])
        first, count = self._read(int, data["first"]), self._count(data["count"], kinds)
        if first < 0 or len({kind.size for kind in kinds}) != 1:
            raise ValueError(f"the chunks of {region} are no run")
        if [kind.name for kind in kinds] != [memory_of(region, first + number) for number in range(len(kinds))]:
            raise ValueError(f"the memory of {region} has other names")
        memory = MemoryRun(region, range(first, first + count), kinds)
        if data["run"] == "memory":
            return memory
        if data["run"] != "mappings":
            raise ValueError("there is no such kind of run")
        rights: list[Rights] = [self._read(Rights, some) for some in data["rights"]]
        offset = self._read(int, data["offset"])
        if not 0 < len(rights) <= count or len({*map(bool, rights)}) != 1 or offset < 0:
            raise ValueError(f"the mappings of {region} are no run")
        return MappingRun(memory, offset, self._read(Span | None, data["origin"]), rights)

    def chunks(self, data: list[Any]) -> Chunks:
        """The chunks of a region."""
        made: Parts[tuple[str, int]] = Parts()
        for item in data:
            if isinstance(item, dict):
                alike = [self._read(tuple[str, int], chunk) for chunk in item["again"]]
                made.extend(Repeated(alike, self._count(item["count"], alike)))
            else:
                made.append(self._read(tuple[str, int], item))
        return made.series()

    def _count(self, count: Any, items: Sequence[Any]) -> int:
        many: int = self._read(int, count)
        self._left -= many
        if not 0 < len(items) <= many or self._left < 0:
            raise ValueError(f"{many} in a run are too many or too few")
        return many


def require_fitting(some_steps: Sequence[Step], made: Container[str]) -> None:
    """Raises ValueError if runs do not fit together, KeyError if they lack something. made: the names of the objects
    that are made by steps in no run."""
    by_stem: dict[Stem, list[Run]] = defaultdict(list)
    for _, run in runs(some_steps):
        by_stem[run.stem].append(run)
    for (of, _), here in by_stem.items():
        here.sort(key=attrgetter("numbers.start"))
        if any(before.numbers.stop > after.numbers.start for before, after in pairwise(here)):
            raise ValueError(f"two runs have the same number of {of}")
        for run in here:
            if isinstance(run, MappedRun):
                _require_memory(run, by_stem.get(run.memory.stem, ()), made)
                if run.of not in made:
                    raise KeyError(run.of)
    for step in plain(some_steps) if by_stem else ():
        stem, number = (stem_of(step.name) if step.makes else None) or (None, 0)
        if stem is not None and any(number in run.numbers for run in by_stem.get(stem, ())):
            raise ValueError(f"{step.name} is made twice")


def _require_memory(mapped: MappedRun, memory: Sequence[Run], made: Container[str]) -> None:
    """Raises KeyError: one of these mappings has no memory."""
    there, wanted = [run.numbers for run in memory], mapped.memory.numbers
    for number in wanted if wanted not in there else ():
        name = mapped.memory.name_of(number)
        if name not in made and not any(number in numbers for numbers in there):
            raise KeyError(name)


def made_in_runs(some_steps: Sequence[Step]) -> Mapping[str, Container[str]]:
    """Kind of object -> the names of those that runs make."""
    by_kind: dict[str, list[tuple[Run, OfMember]]] = defaultdict(list)
    for _, run in runs(some_steps):
        by_kind[run.makes].append((run, type(run).made))
    return {kind: ByName({}, of_runs) for kind, of_runs in by_kind.items()}
