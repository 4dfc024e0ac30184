"""Sequences whose items are made when they are asked for: thousands of alike items then cost as much as one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice
from typing import Any, TypeVar, overload

Item = TypeVar("Item")


class OnDemand(Sequence[Item]):
    """A sequence that makes its items. It equals every sequence with the same items."""

    __slots__ = ()

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def item(self, number: int) -> Item:
        """One item. number: from 0 on, less than the length."""

    @abstractmethod
    def same_as(self, other: Any) -> bool:
        """Whether a sequence of the same class makes the same items."""

    def first(self, count: int) -> Sequence[Item]:
        """Only so many items, from the first one on."""
        return tuple(islice(self, count))

    def __iter__(self) -> Iterator[Item]:
        return map(self.item, range(len(self)))

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Item, ...]: ...
    def __getitem__(self, index: int | slice) -> Item | tuple[Item, ...]:
        numbers = range(len(self))[index]  # raises IndexError
        return tuple(map(self.item, numbers)) if isinstance(numbers, range) else self.item(numbers)

    def __eq__(self, other: object) -> bool:
        if type(other) is type(self) and self.same_as(other):
            return True
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(is_equal, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(tuple(self))


class Repeated(OnDemand[Item]):
    """A few items again and again."""

    __slots__ = ("_count", "cycle")

    def __init__(self, items: Sequence[Item], count: int) -> None:
        """count: of all items, which is at least that of the repeated ones."""
        self.cycle = tuple(items)
        self._count = count

    def __len__(self) -> int:
        return self._count

    def item(self, number: int) -> Item:
        return self.cycle[number % len(self.cycle)]

    def first(self, count: int) -> Sequence[Item]:
        return Repeated(self.cycle, count) if count >= len(self.cycle) else self.cycle[:count]

    def same_as(self, other: Repeated[Item]) -> bool:
        return self._count == other._count and self.cycle == other.cycle

    def __iter__(self) -> Iterator[Item]:
        return islice(cycle(self.cycle), self._count)

    def count_of(self, place: int) -> int:
        """How often the item at this place of the cycle occurs."""
        whole, more = divmod(self._count, len(self.cycle))
        return whole + (place < more)


class Evenly(OnDemand[Item]):
    """Items about bytes that lie one after the other, as many bytes for each."""

    __slots__ = ("_count", "_make", "each")

    def __init__(self, make: Callable[[int], Item], each: int, count: int) -> None:
        """make: makes the item that is so many bytes behind the first one. each: bytes of each item."""
        self._make = make
        self.each = each
        self._count = count

    def __len__(self) -> int:
        return self._count

    def item(self, number: int) -> Item:
        return self._make(number * self.each)

    def same_as(self, other: Evenly[Item]) -> bool:
        return (self.each, self._count) == (other.each, other._count) and self.item(0) == other.item(0)

    @property
    def size(self) -> int:
        """Bytes of all items."""
        return self._count * self.each


LEAST = 32
"""Fewer alike items are written out: they cost less than what makes them."""


def repeated(items: Sequence[Item], count: int) -> Sequence[Item]:
    """These items again and again, `count` in all."""
    alike = Repeated(items, count)
    return alike if count >= max(LEAST, len(items)) else tuple(alike)


def is_equal(mine: Any, other: Any) -> bool:
    """Whether two items are equal, as a tuple compares them."""
    return mine is other or bool(mine == other)
