"""Values that are computed from an object once, and forgotten with it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Generic, TypeVar, cast

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
            self._values[number] = weakref.ref(of, lambda _: self._values.pop(number, None)), value
        return value
