"""Seals mapped memory against writing, and unseals it. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace

from hipplan.program import steps
from hipplan.program.alterations import ChangeAccess, refuse
from hipplan.program.content_steps import ContentStep, Part, written_by
from hipplan.program.program import Program
from hipplan.program.resize import require
from hipplan.program.resources import Access, Resource
from hipplan.program.sure_access import concerned


def sealed(program: Program, name: str) -> Program:
    """Makes a region, a reservation's mappings or one mapping read-only: rw becomes r. ApplyError (HP420)."""
    before = {
        mapping.name: mapping.access for mapping in mappings_of(program, name) if mapping.name not in program.sealed
    }
    if name in program.shared and program.shared[name].right == "rw":
        raise refuse(
            f"'{name}' is mapped by other ranks, which have write access",
            hint="give them read access: map: {access: r}",
        )
    return _closed(program, before)


def sealed_ranges(program: Program, names: Set[str]) -> Program:
    """Seal what the plan marks as sealed. names: regions and reservations."""
    if not names:
        return program
    return _closed(
        program,
        {
            resource.name: resource.access
            for resource in program.resources
            if resource.inside in names and resource.memory
        },
    )


def unsealed(program: Program, name: str) -> Program:
    """Unseal: sealed mappings get their access back. ApplyError (HP420)."""
    names = {mapping.name for mapping in mappings_of(program, name)}
    return _open(program, {mapping: access for mapping, access in program.sealed.items() if mapping in names})


def all_open(program: Program) -> Program:
    """The program with everything unsealed."""
    return _open(program, program.sealed) if program.sealed else program


def opened(program: Program, contents: Iterable[ContentStep]) -> Program:
    """The program with mappings unsealed that these contents write. Mappings of unequal sizes in one range are unsealed
    together where HIP 7.0 to 7.2 set their rights in one call."""
    if not program.sealed:
        return program
    written = _Written(part for step in contents for part in written_by(step))
    mappings = [resource for resource in program.resources if resource.memory]
    sizes: dict[str, set[int]] = {}
    for mapping in mappings if concerned(program.measured) else ():
        sizes.setdefault(mapping.inside, set()).add(mapping.size)

    def is_written(resource: Resource) -> bool:
        alone = len(sizes.get(resource.inside, ())) < 2
        return (
            written.touches(resource.inside, resource.offset, resource.size)
            if alone
            else written.touches(resource.inside)
        )

    again = [mapping.name for mapping in mappings if mapping.name in program.sealed and is_written(mapping)]
    return _open(program, {name: program.sealed[name] for name in again}) if again else program


class _Written:
    """Which bytes contents write, of each object."""

    def __init__(self, parts: Iterable[Part]) -> None:
        self._ends: dict[str, list[int]] = {}
        self._starts: dict[str, list[int]] = {}
        for part in sorted(parts, key=lambda part: part.offset):
            ends, starts = self._ends.setdefault(part.object, []), self._starts.setdefault(part.object, [])
            starts.append(part.offset)
            ends.append(max(part.offset + part.size, ends[-1] if ends else 0))

    def touches(self, name: str, start: int = 0, size: int = 2**64) -> bool:
        """Whether contents write into a range of bytes."""
        before_end = bisect_left(self._starts.get(name, ()), start + size)
        return before_end > 0 and self._ends[name][before_end - 1] > start


def resealed(opened: Program, sealed: Mapping[str, Access]) -> Program:
    """Undo opened(). sealed: mapping -> its access when it is not sealed."""
    return _closed(opened, {mapping: access for mapping, access in sealed.items() if mapping not in opened.sealed})


def seals(opened: Program, sealed: Program) -> Iterator[ChangeAccess]:
    """The steps that seal what opened() unsealed."""
    for was, now in zip(opened.steps, sealed.steps, strict=True):
        if isinstance(was, steps.SetAccess) and isinstance(now, steps.SetAccess) and was.rights != now.rights:
            yield ChangeAccess(
                name=now.name, now=now.rights, before=was.rights, together=now.together, origin=now.origin
            )


def mappings_of(program: Program, name: str) -> list[Resource]:
    """The mappings of a region, a reservation or one mapping. ApplyError (HP420)."""
    kind = require(program, name, "region", "reservation", "mapping", "allocation")
    mappings = [resource for resource in program.resources if resource.kind == "mapping"]
    if kind == "mapping":
        (mapping,) = (mapping for mapping in mappings if mapping.name == name)
        if mapping.inside in program.regions:
            raise refuse(f"'{name}' is a piece of the region '{mapping.inside}'", hint=f"name '{mapping.inside}'")
        return [mapping]
    if kind == "allocation":
        raise refuse(f"'{name}' has no address", hint="name its mapping or reservation")
    return [mapping for mapping in mappings if mapping.inside == name]


def _closed(program: Program, before: Mapping[str, Access]) -> Program:
    now = {name: tuple((who, "r") for who, _ in access) for name, access in before.items()}
    return replace(with_access(program, now), sealed={**program.sealed, **before})


def _open(program: Program, again: Mapping[str, Access]) -> Program:
    rest = {mapping: access for mapping, access in program.sealed.items() if mapping not in again}
    return replace(with_access(program, again), sealed=rest)


def with_access(program: Program, access: Mapping[str, Access]) -> Program:
    """The program with this access for these mappings."""
    ordinals = program.devices
    rights = {mapping: steps.rights_of(dict(given), ordinals) for mapping, given in access.items()}
    had = {step.name for step in program.steps if isinstance(step, steps.SetAccess)}

    def changed(step: steps.Step) -> Iterator[steps.Step]:
        now = rights.get(steps.whole_name(step.name))
        if now is None or not isinstance(step, (steps.Map, steps.SetAccess)):
            yield step
        elif isinstance(step, steps.Map):
            yield step
            if now and step.name not in had:
                yield steps.SetAccess(name=step.name, rights=now, origin=step.origin)
        elif now:
            yield step if step.rights == now else replace(step, rights=now)

    return replace(program, steps=tuple(changed_step for step in program.steps for changed_step in changed(step)))
