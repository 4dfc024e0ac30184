"""Writes a program as text and reads it again: for another process, a file or a review.

The text is JSON with a version. Equal programs give equal text, and the program that is read is equal to the one
written, with the place of each step in its plan.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from operator import attrgetter
from typing import Any, get_type_hints

from pydantic import BaseModel, TypeAdapter, ValidationError

from hipplan.errors import Diagnostic, PlanError
from hipplan.files import strict_json
from hipplan.kinds.lives import STEPS
from hipplan.program import content_steps, steps
from hipplan.program.alterations import ReserveBeside
from hipplan.program.facts import owners_by_name
from hipplan.program.program import Program

VERSION = 1
_KEY = "hipplan_program"
_WHY_MAX = 200
_OF_STEPS = ("steps", "sleeping")
"""Fields of a program that are steps."""
_WRITTEN_AS = {"reads_advice": "ranges_told"}
"""Fields with another name in version 1."""
_STEPS = (
    {ReserveBeside.__name__: ReserveBeside}
    | {kind.__name__: kind for kind in STEPS}
    | {
        kind.__name__: kind
        for module in (steps, content_steps)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, steps.Step) and hasattr(kind, "call")
    }
)
"""Name -> kind of step; the others of a change are in no program."""


def write(program: Program) -> str:
    """The program as text for read()."""
    return _written(program, placed=True)


def _written(program: Program, *, placed: bool) -> str:
    """placed: with the place in the plan of each step that is awake."""
    data = {_WRITTEN_AS.get(field_.name, field_.name): getattr(program, field_.name) for field_ in fields(program)}
    plain = _PlainSteps()
    data |= {of: plain.of(data[of], placed=placed or of != "steps") for of in _OF_STEPS}
    written = {key: value if key in _OF_STEPS else _plain(value) for key, value in data.items()}
    return "".join(strict_json.pieces({_KEY: VERSION, **written}))


class _PlainSteps:
    """What JSON has for steps. Thousands share their place in the plan, and rights: these are made once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Any]] = {}
        """The id of a value -> the value, and what JSON has for it."""

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
    return hashlib.sha256(_written(bare, placed=False).encode()).hexdigest()


def read(text: str | bytes) -> Program:
    """Raises PlanError (HP028): it is no program, of another version, or its steps do not fit together."""
    try:
        data = strict_json.loads(text)
        if not isinstance(data, dict) or _KEY not in data:
            raise ValueError(f"it has no {_KEY}")
        if data.pop(_KEY) != VERSION:
            raise ValueError(f"only version {VERSION} can be read")
        made: dict[str, Any] = {
            of: tuple(map(_read_step, data.pop(of))) for of in _OF_STEPS if of in data or of == "steps"
        }
        types = get_type_hints(Program)
        named = {_WRITTEN_AS.get(name, name): name for name in types}
        program = Program(**made, **{named[key]: _read(types[named[key]], value) for key, value in data.items()})
        woken = (*program.making, *program.sleeping)
        _require_objects(woken)
        mapped = {resource.name for resource in program.resources if resource.memory}
        if unknown := program.sealed.keys() - mapped:
            raise ValueError(f"{min(unknown)} is sealed but not mapped")
        for access in program.sealed.values():
            steps.rights_of(dict(access), program.devices)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise PlanError(Diagnostic("HP028", "this is not a program", why=_reason(error)[:_WHY_MAX])) from None
    return program


def _require_objects(some_steps: Sequence[steps.Step]) -> None:
    """Raises KeyError: a step names an object that does not exist."""
    owners = owners_by_name(some_steps)
    named = {(step.makes, step.name) for step in some_steps if step.makes}
    made = {name for _, name in named}
    for step in some_steps:
        if isinstance(step, steps.SetAccess):
            owners[step.name]
        for kind, name in step.needs:
            if (kind, name) not in named:
                raise KeyError(name)
        if step.name not in made and (step.name or not step.awaits_stream):
            raise KeyError(step.name)


def _read_step(data: dict[str, Any]) -> Any:
    return _read(_STEPS[data.pop("step")], data)


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
