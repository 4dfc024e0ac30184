"""Values that are computed from an object once, and forgotten with it: beside the object (Memo), or in its cached
properties, which whoever makes it may know already (keep)."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Set
from functools import cache, cached_property, partial
from typing import Any, Generic, TypeVar, cast

Of = TypeVar("Of")
Value = TypeVar("Value")


class Memo(Generic[Of, Value]):
    """A value for each object that is alive. It asks for the same object, not for an equal one: to compare two
    programs, or to hash one, costs as much as all of their steps. A value must not refer to its object, which would
    live for ever; one that is the object itself is not kept."""

    def __init__(self) -> None:
        self._values: dict[int, tuple[weakref.ref[Of], Value]] = {}

    def value(self, of: Of, compute: Callable[[], Value]) -> Value:
        """The value of an object, computed when it is asked for first. Raises what `compute` raises."""
        number = id(of)
        reference, value = self._values.get(number, (None, None))
        if value is None or reference is None or reference() is not of:
            value = compute()
            if cast("object", value) is of:
                return value
            # The callback runs no Python code, in which the interpreter would swallow an interrupt.
            self._values[number] = weakref.ref(of, partial(self._values.pop, number)), value
        return value


def keep(of: Any, **known: Any) -> None:
    """Gives a new object values of its cached properties, as the first access to each would. Its fields stay as they
    are: a name that is no cached property is a mistake (TypeError)."""
    if unknown := known.keys() - _cached_properties(of.__class__):
        raise TypeError(f"{type(of).__name__}.{min(unknown)} is no cached property")
    of.__dict__.update(known)


@cache
def _cached_properties(kind: type) -> frozenset[str]:
    return frozenset(name for name in dir(kind) if isinstance(getattr(kind, name, None), cached_property))


def kept(of: object) -> Set[str]:
    """What an object has in its own namespace: its fields, and those of its cached properties that were computed."""
    return of.__dict__.keys()
