"""The memory that a name means: single allocations, and the memory of alike chunks together. Pure."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import chain, compress
from typing import TypeAlias

from hipplan.kinds.mapping.live import Map
from hipplan.program import steps
from hipplan.program.chunk_runs import ChunkRun, MappingRun, MemoryRun
from hipplan.program.mapped_runs import MappedRun
from hipplan.program.program import Program
from hipplan.program.runs import Run
from hipplan.program.series import Parts, Series, segments

MemoryGroup: TypeAlias = str | MappingRun
"""An allocation; or the mappings of alike chunks, for their memory, which a device may write there unless the caller
wants all of it together."""

Units = Mapping[str, Sequence[MemoryGroup]]
"""A name that the caller passed -> its allocations."""


def members_of(group: MemoryGroup) -> Iterable[str]:
    """The allocations of a group."""
    return (group,) if isinstance(group, str) else map(group.memory.name_of, group.chunks)


def first_of(group: MemoryGroup) -> str:
    """The first allocation of a group."""
    return group if isinstance(group, str) else group.memory.name_of(group.chunks.start)


def by_first(groups: Iterable[MemoryGroup]) -> dict[str, MemoryGroup]:
    """The groups by their first allocations."""
    return {group if isinstance(group, str) else first_of(group): group for group in groups}


def groups_in(program: Program, region: str, *, is_writable: bool = True) -> list[MemoryGroup]:
    """The memory of a region, where some of it is in runs; else nothing. is_writable: only memory that a device may
    write is together."""
    there = [part for some_steps in (program.steps, program.sleeping) for part in segments(some_steps)]
    if not any(isinstance(part, MemoryRun) and part.region == region for part in there):
        return []
    near = (part for part in there if not isinstance(part, Run) or part.of == region)
    return [group for group in _groups(near, is_writable=is_writable) if first_of(group).startswith(f"{region}#")]


def groups_asleep(program: Program) -> list[MemoryGroup]:
    """The memory that sleeps."""
    return _groups(segments(program.sleeping))


def _groups(parts: Iterable[Sequence[steps.Step]], *, is_writable: bool = True) -> list[MemoryGroup]:
    there = [*parts]
    mapped = {(part.region, part.chunks): part for part in there if isinstance(part, MappingRun)}
    groups: list[MemoryGroup] = []
    for part in there:
        if isinstance(part, MemoryRun):
            run = mapped.get((part.region, part.chunks))
            is_together = run is not None and (not is_writable or _is_writable(run, part))
            groups += [run] if run is not None and is_together else map(part.name_of, part.chunks)
        elif not isinstance(part, Run) or part.makes == "allocation":
            groups += [step.name for step in part if step.makes == "allocation"]
    return groups


def _is_writable(run: MappingRun, memory: MemoryRun) -> bool:
    """Whether devices have the memory of these mappings, and each may write its own."""
    few = run.chunks[: max(len(memory.kinds), len(run.rights))]
    on_devices = all(kind.is_on_device for kind in memory.kinds)
    return (
        on_devices
        and run.memory.same_as(memory)
        and all((run.owner(chunk), "rw") in run.access(chunk).rights for chunk in few)
    )


def is_on_device(step: steps.Step | None) -> bool:
    """Whether a step makes memory on a device."""
    return step is not None and step.is_on_device


def about_memory(candidates: Iterable[steps.Step], memory: Container[str]) -> Callable[[steps.Step], bool]:
    """Whether one of these steps makes one of these allocations, maps it, or sets the rights of such a mapping."""
    mapped = {step.name for step in candidates if isinstance(step, Map) and step.allocation in memory}

    def is_about(step: steps.Step) -> bool:
        if step.of_mapping:
            return step.name in mapped
        return step.makes == "allocation" and step.name in memory

    return is_about


def parted(
    some_steps: Sequence[steps.Step], groups: Iterable[MemoryGroup]
) -> tuple[Series[steps.Step], Series[steps.Step]]:
    """The steps without those about these groups, and those about them: that make the memory, map it, and give rights
    on it. They stay in their order."""
    groups = [*groups]
    names = {group for group in groups if isinstance(group, str)}
    whole = {(group.region, group.chunks) for group in groups if isinstance(group, MappingRun)}
    regions = {name.partition("#")[0] for name in names}
    counted = {name.rpartition(".")[0] for name in names}
    rest: Parts[steps.Step] = Parts()
    about: Parts[steps.Step] = Parts()
    near: list[tuple[bool, Sequence[steps.Step]]] = []
    for part in segments(some_steps):
        if isinstance(part, ChunkRun):
            is_whole = (part.region, part.chunks) in whole
            near.append((not is_whole and part.region in regions, part))
        elif isinstance(part, Run):
            near.append(((part.memory if isinstance(part, MappedRun) else part).of in counted, part))
        else:
            near.append((bool(names), part))
    is_about = about_memory(chain.from_iterable(part for is_near, part in near if is_near), names)
    for is_near, part in near:
        if is_near:
            goes = [is_about(step) for step in part]
            about.extend(compress(part, goes))
            rest.extend([step for step, go in zip(part, goes, strict=True) if not go])
        elif isinstance(part, ChunkRun) and (part.region, part.chunks) in whole:
            about.extend(part)
        else:
            rest.extend(part)
    return rest.series(), about.series()
