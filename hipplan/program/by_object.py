"""What a program makes, object by object, and when two steps make the same. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields

from hipplan.kinds.mapping.live import SetAccess
from hipplan.program import steps
from hipplan.program.steps import Key


class StepsByObject:
    """Steps of a program, by the object that they make or alter."""

    def __init__(self, some_steps: Iterable[steps.Step]) -> None:
        self.made: dict[Key, steps.Step] = {}
        self.of: dict[str, Key] = {}
        self.rights: dict[str, SetAccess] = {}
        """Mapping -> the step that gives it its rights."""
        self.more: dict[str, list[steps.Step]] = {}
        """Object -> the steps about it that make nothing."""
        self.fixed: dict[str, list[steps.Step]] = {}
        """Object -> those of them that cannot differ while it stays."""
        for step in some_steps:
            key = step.key
            if key is not None:
                self.made[key] = step
                self.of[step.name] = key
            elif isinstance(step, SetAccess):
                self.rights[step.name] = step
            else:
                self.more.setdefault(step.name, []).append(step)
                if step.is_fixed:
                    self.fixed.setdefault(step.name, []).append(step)

    def repeated(self, name: str) -> list[steps.Step]:
        """The steps about an object that are done again where they differ."""
        return [step for step in self.more.get(name, ()) if step.is_repeated]


def alike(first: steps.Step, second: steps.Step) -> bool:
    """Whether two steps are equal except for their name and their place in the plan."""
    if type(first) is not type(second):
        return False
    return all(getattr(first, name) == getattr(second, name) for name in _compared(type(first)))


def all_alike(first: Sequence[steps.Step], second: Sequence[steps.Step]) -> bool:
    return len(first) == len(second) and all(map(alike, first, second))


_NOT_COMPARED = ("name", "origin", "asked")
_compared_fields: dict[type[steps.Step], tuple[str, ...]] = {}


def _compared(kind: type[steps.Step]) -> tuple[str, ...]:
    if kind not in _compared_fields:
        _compared_fields[kind] = tuple(field_.name for field_ in fields(kind) if field_.name not in _NOT_COMPARED)
    return _compared_fields[kind]
