"""Patterns of names: * stands for any text. A change takes all objects that a pattern means, or none. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hipplan.errors import suggest_or_list
from hipplan.plain import called
from hipplan.program.program import Program
from hipplan.program.refusals import refuse
from hipplan.program.resources import RANGES

ANY = "*"
Names = str | Iterable[str]


def listed(names: Names) -> tuple[str, ...]:
    """One name or several. Raises TypeError."""
    if not isinstance(names, Iterable):
        raise TypeError(f"expected one name or several, not {called(names)}")
    wanted = (names,) if isinstance(names, str) else tuple(names)
    for name in wanted:
        if not isinstance(name, str):
            raise TypeError(f"a name is text, not {called(name)}")
    return wanted


def required(name: object, what: str = "the name of an object, or a pattern") -> str:
    """One name. Raises TypeError: it is not text."""
    if not isinstance(name, str):
        raise TypeError(f"expected {what}, not {called(name)}")
    return name


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern means a name: * stands for any text, and every other character for itself."""
    first, *rest = pattern.split("*")
    if not rest:
        return pattern == name
    *middle, last = rest
    at = len(first)
    if not name.startswith(first):
        return False
    for part in middle:
        found_at = name.find(part, at)
        if found_at < 0:
            return False
        at = found_at + len(part)
    return name.endswith(last) and len(name) - len(last) >= at


def chosen(program: Program, names: Iterable[str], *kinds: str) -> tuple[str, ...]:
    """The objects that names and patterns mean, each once. kinds: of objects that a pattern may mean.

    What lies in an object that is meant too is left out. Raises ApplyError (HP420): a pattern means nothing.
    """
    objects: dict[str, None] = {}
    for name in names:
        if ANY not in name:
            objects[name] = None
        elif meant := _meant(program, name, kinds):
            objects |= dict.fromkeys(meant)
        else:
            known = [resource.name for resource in program.resources if resource.kind in kinds]
            raise refuse(f"no {' or '.join(kinds)} is called '{name}'", hint=suggest_or_list(name, known))
    return tuple(objects)


def _meant(program: Program, pattern: str, kinds: Sequence[str]) -> list[str]:
    meant = [
        resource
        for resource in program.resources
        if resource.kind in kinds and "#" not in resource.name and matches(pattern, resource.name)
        and resource.name not in program.parts and resource.inside not in program.regions
    ]  # fmt: skip
    ranges = {resource.name for resource in meant if resource.kind in RANGES}
    mapped = {resource.memory for resource in program.resources if resource.inside in ranges}
    return [
        resource.name
        for resource in meant
        if resource.inside not in ranges and not (resource.kind == "allocation" and resource.name in mapped)
    ]


def hint(name: str, known: Iterable[str]) -> str:
    """What may be meant by a name that no object has: one that is near, or its members and the pattern of all."""
    names = list(known)
    members = any(other.startswith(f"{name}.") for other in names)
    return suggest_or_list(name, names) + (f'; all of them: "{name}.*"' if members else "")
