"""Writes a program as text and reads it again: for another process, a file or a review.

The text is JSON with a version. The same program gives the same text, and the program that is read is equal to the one
written, with the place of each step in its plan. Runs are written as runs since version 2 (written_runs.py).
"""

from __future__ import annotations

import hashlib
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from operator import attrgetter
from typing import Any, cast, get_type_hints

from pydantic import BaseModel, TypeAdapter, ValidationError

from hipplan.errors import Diagnostic, PlanError
from hipplan.files import strict_json
from hipplan.kinds.lives import STEPS
from hipplan.kinds.mapping.live import RIGHTS, Map, SetAccess, rights_of
from hipplan.program import content_steps, steps, written_runs
from hipplan.program.facts import makers_of, owners_by_name
from hipplan.program.families import in_families, one_by_one
from hipplan.program.program import Program
from hipplan.program.regions import PlacedRegion
from hipplan.program.runs import Run, alike, plain
from hipplan.program.series import Parts, Series, segments

VERSION = 2
_WRITTEN_OUT = 1
"""The version in which each step and each chunk of a run is written out. It is read, and digests are of it."""
_KEY = "hipplan_program"
_WHY_MAX = 200
_OF_STEPS = ("steps", "sleeping")
"""Fields of a program that are steps."""
_IN_FAMILIES = ("sealed", "unwritten")
"""Fields about mappings, of which neighbours are written as one since version 2."""
_WRITTEN_AS: Mapping[int, Mapping[str, str]] = {_WRITTEN_OUT: {"reads_advice": "ranges_told"}, VERSION: {}}
"""Version -> fields with another name in it."""
_STEPS = {kind.__name__: kind for kind in STEPS} | {
    kind.__name__: kind
    for kind in vars(content_steps).values()
    if isinstance(kind, type) and issubclass(kind, steps.Step) and hasattr(kind, "call")
}
"""Name -> kind of step; the others of a change are in no program."""


def write(program: Program) -> str:
    """The program as text for read()."""
    values = {field_.name: getattr(program, field_.name) for field_ in fields(program) if field_.compare}
    plain = _PlainSteps()
    written = {name: _plain(value) for name, value in values.items() if name not in (*_OF_STEPS, "regions")}
    written |= {of: plain.in_runs(values[of]) for of in _OF_STEPS}
    written["sealed"] = _plain(in_families(program.sealed.items()))
    written["unwritten"] = [*in_families((name, True) for name in sorted(program.unwritten))]
    written["regions"] = {name: _plain_region(placed) for name, placed in program.regions.items()}
    return "".join(strict_json.pieces({_KEY: VERSION, **written}))


def _plain_region(placed: PlacedRegion) -> dict[str, Any]:
    return {**_plain(replace(placed, chunks=())), "chunks": written_runs.plain_chunks(placed.chunks)}


class _PlainSteps:
    """What JSON has for steps. Thousands share their place in the plan, and rights: these are made once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Any]] = {}
        """The id of a value -> the value, and what JSON has for it."""

    def in_runs(self, some_steps: Sequence[steps.Step]) -> Iterator[dict[str, Any]]:
        """Yields an entry for each run, and for each other step."""
        for part in segments(some_steps):
            if isinstance(part, Run):
                yield {key: _plain(value) for key, value in written_runs.plain_run(part).items()}
            else:
                yield from self.of(part, placed=True)

    def of(self, some_steps: Iterable[steps.Step], *, placed: bool) -> Iterator[dict[str, Any]]:
        """placed: with their place in the plan."""
        known, make = self._known, self._made
        for step in some_steps:
            kind: Any = type(step)
            names, get_values = _fields_of(kind)
            made = [
                value if type(value) in _AS_IT_IS else known[id(value)][1] if id(value) in known else make(value)
                for value in get_values(step)
            ]
            plain = {"step": kind.__name__, **dict(zip(names, made, strict=True))}
            yield plain if placed else {**plain, "origin": None}

    def _made(self, value: Any) -> Any:
        self._known[id(value)] = value, _plain(value)
        return self._known[id(value)][1]


_AS_IT_IS = frozenset({str, int, bool, type(None)})


@cache
def _fields_of(kind: type[steps.Step]) -> tuple[tuple[str, ...], Callable[[steps.Step], tuple[Any, ...]]]:
    """The names of a step's fields, and what gets their values."""
    names = tuple(field_.name for field_ in fields(kind))
    return names, attrgetter(*names)


def digest(program: Program) -> str:
    """sha256 of what the program makes: equal for equal driver calls, wherever the plan is and whatever else is on the
    machine."""
    bare = replace(program, name="", source="", machine="", selectors={}, measured=None, warnings=())
    names = _WRITTEN_AS[_WRITTEN_OUT]
    data = {
        names.get(field_.name, field_.name): getattr(bare, field_.name) for field_ in fields(bare) if field_.compare
    }
    plain = _PlainSteps()
    data |= {of: plain.of(data[of], placed=of != "steps") for of in _OF_STEPS}
    written = {key: value if key in _OF_STEPS else _plain(value) for key, value in data.items()}
    text = strict_json.pieces({_KEY: _WRITTEN_OUT, **written})
    return hashlib.sha256("".join(text).encode()).hexdigest()


def read(text: str | bytes) -> Program:
    """Raises PlanError (HP028): it is no program, of another version, or its steps do not fit together."""
    try:
        data = strict_json.loads(text)
        if not isinstance(data, dict) or _KEY not in data:
            raise ValueError(f"it has no {_KEY}")
        version = data.pop(_KEY)
        if type(version) is not int or version not in _WRITTEN_AS:
            raise ValueError(f"only versions {_WRITTEN_OUT} and {VERSION} can be read")
        runs = written_runs.Reader(_read)
        made: dict[str, Any] = {of: _read_steps(data.pop(of), runs) for of in _OF_STEPS if of in data or of == "steps"}
        types = get_type_hints(Program)
        named = {_WRITTEN_AS[version].get(name, name): name for name in types}
        made["regions"] = _read_regions(types["regions"], data.pop("regions", {}), runs)
        made |= {named[key]: _read(types[named[key]], value) for key, value in data.items()}
        for of in _IN_FAMILIES if version == VERSION else ():
            together = made.get(of, ())
            alone = one_by_one(together if isinstance(together, Mapping) else dict.fromkeys(together, True))
            made[of] = alone if isinstance(together, Mapping) else frozenset(alone)
        program = Program(**made)
        _require_objects(program.making, program.sleeping)
        makers = ChainMap(cast(Any, program.makers), cast(Any, makers_of(program.sleeping)))
        for name in program.sealed:
            if not isinstance(makers.get(name), Map):
                raise ValueError(f"{name} is sealed but not mapped")
        for access in program.sealed.values():
            rights_of(dict(access), program.devices)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise PlanError(Diagnostic("HP028", "this is not a program", why=_reason(error)[:_WHY_MAX])) from None
    return program


def _read_steps(data: Any, runs: written_runs.Reader) -> Series[steps.Step]:
    """Raises ValueError, TypeError, LookupError."""
    made: Parts[steps.Step] = Parts()
    for item in data:
        if "run" in item:
            made.extend(runs.run(item))
        else:
            made.append(_read(_STEPS[item.pop("step")], item))
    return made.series()


def _read_regions(kind: Any, data: dict[str, Any], runs: written_runs.Reader) -> dict[str, PlacedRegion]:
    """Raises as _read_steps(), and AttributeError."""
    chunks = {name: runs.chunks(placed.pop("chunks")) for name, placed in data.items()}
    read_regions = _read(kind, {name: {**placed, "chunks": ()} for name, placed in data.items()})
    return {name: replace(placed, chunks=chunks[name]) for name, placed in read_regions.items()}


def _require_objects(awake: Sequence[steps.Step], asleep: Sequence[steps.Step]) -> None:
    """Raises KeyError: a step names an object that does not exist; ValueError: runs do not fit together, or a right is
    none."""
    all_steps = Series.joined((awake, asleep))
    for step, _ in alike(all_steps):
        if isinstance(step, SetAccess) and (unknown := {right for _, right in step.rights}.difference(RIGHTS)):
            raise ValueError(f"'{min(unknown)}' is no right")
    owners = owners_by_name(all_steps)
    single = [*plain(all_steps)]
    named = {(step.makes, step.name) for step in single if step.makes}
    made = {name for _, name in named}
    written_runs.require_fitting(all_steps, made)
    in_runs = written_runs.made_in_runs(all_steps)
    for step in single:
        if isinstance(step, SetAccess):
            owners[step.name]
        for kind, name in step.needs:
            if (kind, name) not in named and name not in in_runs.get(str(kind), ()):
                raise KeyError(name)
        is_made = step.name in made or any(step.name in names for names in in_runs.values())
        if not is_made and (step.name or not step.awaits_stream):
            raise KeyError(step.name)


def _read(kind: Any, data: Any) -> Any:
    return _adapter(kind).validate_python(data)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        try:
            first = error.errors(include_url=False, include_input=False)[0]
        except UnicodeEncodeError:  # pydantic cannot put half of a surrogate pair into its message
            return "a text in it is not Unicode"
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return f"it lacks {error}" if isinstance(error, LookupError) else str(error)


def _plain(value: Any) -> Any:
    """What JSON has."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True)
    if is_dataclass(value):
        return {field_.name: _plain(getattr(value, field_.name)) for field_ in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(member) for key, member in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    return [_plain(item) for item in value] if isinstance(value, Sequence) and not isinstance(value, str) else value
