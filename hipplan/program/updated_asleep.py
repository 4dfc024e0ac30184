"""An update of a layout that sleeps: what is the same in both plans stays asleep. Pure."""

from __future__ import annotations

from dataclasses import replace

from hipplan.errors import ApplyError
from hipplan.kinds.mapping.live import Map
from hipplan.program import away, steps
from hipplan.program.backups import is_backup
from hipplan.program.content_steps import where_written
from hipplan.program.difference import Difference
from hipplan.program.groups import about_memory, groups_asleep, parted
from hipplan.program.intervals import Intervals
from hipplan.program.inventory import sleeping_memory
from hipplan.program.program import Program
from hipplan.program.refusals import refuse_asleep
from hipplan.program.sleeping import without_unused, woken
from hipplan.program.sleeping_bytes import plan_name_of


def carried_over(old: Program, new: Program) -> Program:
    """The new program with the old one's sleep: objects that sleep and are equal in both stay asleep.

    Raises ApplyError (HP441): the plan changes something that sleeps.
    """
    new = _away_too(old, new)
    if not old.backups:
        return new
    asleep = {*sleeping_memory(old.sleeping)}
    was, now = _steps_of_each(woken(old, groups_asleep(old))), _steps_of_each(new)
    stays = {name for name in asleep if name in now}
    before, after = _memory_of_regions(old), _memory_of_regions(new)
    for region in sorted(before.keys() & after.keys()):
        if before[region] != after[region] and not asleep.isdisjoint(before[region]):
            raise _changed(region)
    for name in sorted(stays):
        if was[name] != now[name]:
            raise _changed(plan_name_of(old, name))
    kept = stays | {name for name in old.backups if name not in asleep and was.get(name) == now.get(name, ())}
    is_gone = about_memory(old.sleeping, asleep - stays)
    made, _ = parted(new.steps, stays)
    new = replace(
        new,
        steps=made.with_more([step for _, step in old.single if is_backup(step)]),
        sleeping=tuple(step for step in old.sleeping if not is_gone(step)),
        backups={name: backup for name, backup in old.backups.items() if name in kept},
    )
    return without_unused(new)


def _away_too(old: Program, new: Program) -> Program:
    """The new program with memory on the host that sleeps there, still mapped. Raises as carried_over()."""
    if not old.away:
        return new
    home = away.at_home(old)
    was, now = _steps_of_each(home), _steps_of_each(new)
    for name in sorted(old.away.keys() & now.keys()):
        if was[name] != now[name]:
            raise _changed(plan_name_of(old, name))
    before, after = _memory_of_regions(home), _memory_of_regions(new)
    for region in sorted(before.keys() & after.keys()):
        if before[region] != after[region] and not old.away.keys().isdisjoint(before[region]):
            raise _changed(region)
    return away.away_as(old, new, old.away.keys() & now.keys())


def _memory_of_regions(program: Program) -> dict[str, set[str]]:
    """Region -> its allocations."""
    memory: dict[str, set[str]] = {}
    for resource in program.resources:
        if resource.memory and resource.inside in program.regions:
            memory.setdefault(resource.inside, set()).add(resource.memory)
    return memory


def require_places(change: Difference) -> None:
    """Raises ApplyError (HP441): the change would free addresses of sleeping memory."""
    for step in change.new.sleeping:
        if isinstance(step, Map) and ("reservation", step.reservation) not in change.kept:
            raise _changed(plan_name_of(change.old, step.allocation))


def require_awake(change: Difference) -> None:
    """Raises ApplyError (HP441): the change would write into memory that sleeps."""
    if not change.new.sleeping or not change.contents:
        return
    written, nothing = where_written(change.contents), Intervals()
    for mapping in change.new.resources:
        parts = written.get(mapping.inside, nothing) if mapping.memory and mapping.asleep else nothing
        if next(parts.within(mapping.offset, mapping.offset + mapping.size), None) is not None:
            raise refuse_asleep(mapping.inside, "the plan has contents for it that the copy lacks")


def _changed(name: str) -> ApplyError:
    return refuse_asleep(name, "the plan changes it or its place")


def _steps_of_each(program: Program) -> dict[str, tuple[steps.Step, ...]]:
    """Allocation -> all steps about it."""
    memory = {step.name: step.allocation for step in program.mappings()}
    steps_by_name: dict[str, list[steps.Step]] = {}
    for step in program.steps:
        if step.makes == "allocation":
            steps_by_name.setdefault(step.name, []).append(replace(step, origin=None))
        elif step.of_mapping:
            steps_by_name.setdefault(memory[step.name], []).append(replace(step, origin=None))
    return {name: tuple(about) for name, about in steps_by_name.items()}
