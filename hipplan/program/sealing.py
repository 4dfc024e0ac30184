"""Seals mapped memory against writing, and unseals it. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import cycle
from typing import Any

from hipplan.kinds.mapping.live import ChangeAccess, Rights, SetAccess, rights_of
from hipplan.program import steps
from hipplan.program.access_runs import changed_rights, regiven_runs
from hipplan.program.change import Change
from hipplan.program.chunk_runs import MappingRun, chunk_runs
from hipplan.program.content_steps import ContentStep, where_written
from hipplan.program.intervals import Intervals
from hipplan.program.inventory import device_names
from hipplan.program.lookup import mappings_within, resource_of
from hipplan.program.memo import Memo
from hipplan.program.program import Program
from hipplan.program.refusals import refuse, refuse_piece
from hipplan.program.regions import mapping_of
from hipplan.program.resize import require, require_memory
from hipplan.program.resources import Access, Resource


def sealed(program: Program, names: Iterable[str]) -> Program:
    """Makes regions, the mappings of reservations and single mappings read-only: rw becomes r. ApplyError (HP420)."""
    before: dict[str, Access] = {}
    for name in names:
        mappings = _access_of(program, name).items()
        before |= {mapping: access for mapping, access in mappings if mapping not in program.sealed}
        if name in program.shared and program.shared[name].right == "rw":
            raise refuse(
                f"'{name}' is mapped by other ranks, which have write access",
                hint="give them read access: map: {access: r}",
            )
    return _closed(program, before, unwritten=program.unwritten.difference(before))


def sealed_ranges(program: Program, names: Set[str]) -> Program:
    """Seal what the plan marks as sealed, as soon as its contents are loaded. names: regions and reservations."""
    if not names:
        return program
    before = {
        resource.name: resource.access for resource in program.resources if resource.inside in names and resource.memory
    }
    return _closed(program, before, unwritten=frozenset(before))


def unsealed(program: Program, names: Iterable[str]) -> Program:
    """Unseal: sealed mappings get their access back. ApplyError (HP420)."""
    meant = {mapping for name in names for mapping in _access_of(program, name)}
    return _open(program, {mapping: access for mapping, access in program.sealed.items() if mapping in meant})


def all_open(program: Program) -> Program:
    """The program with everything unsealed."""
    return _open(program, program.sealed) if program.sealed else program


def opened(program: Program, contents: Iterable[ContentStep], whole: Container[str] = ()) -> Program:
    """The program with mappings unsealed that these contents write. whole: ranges of which all mappings are unsealed if
    one is."""
    if not program.sealed:
        return program
    written, nothing = where_written(contents), Intervals()
    mappings = [resource for resource in program.resources if resource.memory]

    def is_written(resource: Resource) -> bool:
        if resource.inside in whole:
            return resource.inside in written
        parts = written.get(resource.inside, nothing).within(resource.offset, resource.offset + resource.size)
        return next(parts, None) is not None

    again = [mapping.name for mapping in mappings if mapping.name in program.sealed and is_written(mapping)]
    return _open(program, {name: program.sealed[name] for name in again}) if again else program


def as_loaded(program: Program) -> set[str]:
    """Allocations with the bytes that contents have loaded: all of their mappings were sealed then and stayed sealed,
    and no other process may write them."""
    if not program.unwritten:
        return set()
    mappings = [resource for resource in program.resources if resource.memory]
    closed = program.unwritten & program.sealed.keys()
    others = {step.name for step in (*program.steps, *program.sleeping) if _is_shared(step, program)}
    written = {mapping.memory for mapping in mappings if mapping.name not in closed} | others
    return {mapping.memory for mapping in mappings} - written


def _is_shared(step: steps.Step, program: Program) -> bool:
    """Whether another process may have write access to an allocation. Ranks map a sealed region to read it."""
    return step.is_shareable and (step.is_import or step.name.partition("#")[0] not in program.shared)


def after_change(change: Change) -> Program:
    """The new program of a change, which knows what may have been written: memory that stays, and was not sealed since
    it was loaded, even if it is sealed now."""
    new, old = change.new, change.old
    if not new.unwritten:
        return new
    stays = {step.name for step in (*old.steps, *old.sleeping) if step.makes == "allocation"}
    stays -= {step.name for step in change.gone}
    written = stays - as_loaded(old)
    mappings = {resource.name for resource in new.resources if resource.memory in written}
    return new if mappings.isdisjoint(new.unwritten) else replace(new, unwritten=new.unwritten - mappings)


def resealed(opened: Program, sealed: Mapping[str, Access]) -> Program:
    """Undo opened(). sealed: mapping -> its access when it is not sealed."""
    return _closed(opened, {mapping: access for mapping, access in sealed.items() if mapping not in opened.sealed})


def seals(opened: Program, sealed: Program) -> Sequence[steps.Step]:
    """The steps that seal what opened() unsealed."""
    if (given := sealed.given_since(opened)) is not None:
        return changed_rights(given)
    if (given := opened.given_since(sealed)) is not None:
        return changed_rights((was, now) for now, was in given)
    return [
        ChangeAccess(now.name, now.origin, now.rights, was.rights, now.together)
        for was, now in zip(opened.steps, sealed.steps, strict=True)
        if isinstance(was, SetAccess) and isinstance(now, SetAccess) and was.rights != now.rights
    ]


def mappings_of(program: Program, name: str) -> list[Resource]:
    """The mappings of a region, a reservation or one mapping. ApplyError (HP420)."""
    kind = require(program, name, "region", "reservation", "mapping", "allocation")
    if kind == "mapping":
        mapping = resource_of(program, name)
        assert mapping is not None, "require() has found it"
        if mapping.inside in program.regions:
            raise refuse_piece(name, mapping.inside)
        return [mapping]
    if kind == "allocation":
        raise refuse(f"'{name}' has no address", hint="name its mapping or reservation")
    return mappings_within(program, name)


def _access_of(program: Program, name: str) -> dict[str, Access]:
    """Mapping -> who may use it, of a region, a reservation or one mapping; its cost for a region does not depend on
    others. ApplyError (HP420)."""
    if name not in program.regions:
        return {mapping.name: mapping.access for mapping in mappings_of(program, name)}
    require(program, name, "region")
    require_memory(program, name)
    names = device_names(program.devices)
    rights = dict(_rights_of_chunks(program, name))
    access = {few: tuple((names[who], right) for who, right in few) for few in {*rights.values()}}
    return {mapping: access[few] for mapping, few in rights.items()}


_mapped: Memo[Program, dict[str, dict[int, MappingRun]]] = Memo()


def _mapped_in_runs(program: Program) -> dict[str, dict[int, MappingRun]]:
    """Region -> the number of its first chunk -> run, for the runs of mappings of chunks."""
    regions: dict[str, dict[int, MappingRun]] = {}
    for _, run in chunk_runs(program.steps):
        if isinstance(run, MappingRun):
            regions.setdefault(run.region, {})[run.chunks.start] = run
    return regions


def _rights_of_chunks(program: Program, region: str) -> Iterator[tuple[str, Rights]]:
    """(mapping, rights on it) for each chunk of a region."""
    in_run = _mapped.value(program, lambda: _mapped_in_runs(program)).get(region, {})
    chunk, count = 0, len(program.regions[region].chunks)
    while chunk < count:
        if (run := in_run.get(chunk)) is not None:
            yield from zip(map(run.name_of, run.numbers), cycle(run.rights))  # they repeat
            chunk = run.chunks.stop
        else:
            name = mapping_of(region, chunk)
            yield name, step.rights if (step := program.rights.get(name)) else ()
            chunk += 1


def _closed(program: Program, before: Mapping[str, Access], **fields: Any) -> Program:
    """fields: others of the new program."""
    closed = {access: tuple((who, "r") for who, _ in access) for access in {*before.values()}}
    now = {name: closed[access] for name, access in before.items()}
    return with_access(program, now, sealed={**program.sealed, **before}, **fields)


def _open(program: Program, again: Mapping[str, Access]) -> Program:
    rest = {mapping: access for mapping, access in program.sealed.items() if mapping not in again}
    return with_access(program, again, sealed=rest)


def with_access(program: Program, access: Mapping[str, Access], **fields: Any) -> Program:
    """The program with this access for these mappings. fields: others of the new program."""
    ordinals = program.devices
    known = {given: rights_of(dict(given), ordinals) for given in {*access.values()}}
    rights = {mapping: known[given] for mapping, given in access.items()}
    had = program.rights
    if all(known.values()):
        in_runs = [*regiven_runs(program.steps, rights)]
        there = rights.keys() - {name for run, _ in in_runs for name in map(run.name_of, run.numbers)}
        single = [step for mapping in there if (step := had.get(mapping)) is not None]
        if len(single) == len(there):
            now = ((step, rights[step.name]) for step in single)
            others = [SetAccess(step.name, step.origin, given) for step, given in now if step.rights != given]
            return program.regiven(others, ((was, now) for was, now in in_runs if was.rights != now.rights), **fields)

    def changed(step: steps.Step) -> Iterator[steps.Step]:
        now = rights.get(step.name)
        if now is None or not step.of_mapping:
            yield step
        elif step.makes:
            yield step
            if now and step.name not in had:
                yield SetAccess(name=step.name, rights=now, origin=step.origin)
        elif now:
            yield replace(had[step.name], rights=now)

    made = tuple(changed_step for step in program.steps for changed_step in changed(step))
    return replace(program, steps=made, **fields)
