"""The names of what `count` makes: kv.0, kv.1 and so on, made when they are asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, TypeVar, overload

Value = TypeVar("Value")

NUMBER = r"(0|[1-9][0-9]{0,9})"
"""A number in a name, as a pattern."""
is_number = re.compile(NUMBER).fullmatch


class Counted(Sequence[str]):
    """The names that one line makes."""

    def __init__(self, of: str, count: int) -> None:
        """of: the name before the numbers."""
        self.of = of
        self._numbers = range(count)

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[str]:
        return iter([f"{self.of}.{number}" for number in self._numbers])

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        numbers = self._numbers[index]
        return f"{self.of}.{numbers}" if isinstance(numbers, int) else [f"{self.of}.{number}" for number in numbers]

    def __contains__(self, name: object) -> bool:
        of, _, number = str(name).rpartition(".")
        return of == self.of and is_number(number) is not None and int(number) in self._numbers


LineNames = list[str] | Counted
"""The names that a line of the plan makes. To ask whether they are a list is faster than whether they are a Counted."""


class TakenNames(Generic[Value]):
    """The names of a namespace, each with a value. It has no more than one entry for what `count` makes."""

    def __init__(self) -> None:
        self._single: dict[str, Value] = {}
        self._numbered: set[str] = set()
        """The names before the last dot of single ones."""
        self._counted: dict[str, tuple[Counted, Value]] = {}

    def get(self, name: str) -> Value | None:
        """The value of a name; None if it is free."""
        if name in self._single:
            return self._single[name]
        names, value = self._counted.get(name.rpartition(".")[0], ((), None))
        return value if name in names else None

    def taken(self, names: LineNames) -> Mapping[str, Value]:
        """Returns those of these names that are taken."""
        if not isinstance(names, list):
            of = names.of
            if of not in self._counted and of not in self._numbered:
                return {}
        twice: dict[str, Value] = {}
        for name in names:
            if (value := self.get(name)) is not None:
                twice[name] = value
        return twice

    def add(self, names: LineNames, value: Value) -> None:
        """Takes names that are free."""
        if not isinstance(names, list):
            self._counted[names.of] = names, value
            return
        for name in names:
            self._single[name] = value
            self._numbered.add(name.rpartition(".")[0])
