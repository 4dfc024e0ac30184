"""Sequences whose items are made when they are asked for: thousands of alike items then cost as much as one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
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

    def cut(self, first: int, end: int) -> Iterable[Sequence[Item]]:
        """The items from the number `first` on, before `end`, in parts: made on demand as far as that is possible."""
        return (tuple(map(self.item, range(first, end))),)

    def continued_by(self, other: Any) -> OnDemand[Item] | None:
        """The items of both, if what follows is of the same class and goes on as this does; else None."""
        return None

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
        if not isinstance(other, (OnDemand, tuple, list)):
            return NotImplemented  # a Series compares what it has on demand
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

    def cut(self, first: int, end: int) -> Iterable[Sequence[Item]]:
        return (Repeated(turned(self.cycle, first)[: end - first], end - first),)

    def continued_by(self, other: Repeated[Item]) -> Repeated[Item] | None:
        goes_on = turned(self.cycle, self._count) == other.cycle
        return Repeated(self.cycle, self._count + other._count) if goes_on else None

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


def are_many(count: int) -> bool:
    """Whether so many alike items are worth making on demand."""
    return count >= LEAST


def repeated(items: Sequence[Item], count: int) -> Sequence[Item]:
    """These items again and again, `count` in all."""
    alike = Repeated(items, count)
    return alike if count >= max(LEAST, len(items)) else tuple(alike)


def turned(pattern: tuple[Item, ...], first: int) -> tuple[Item, ...]:
    """A pattern that begins at another place, which may be behind its end."""
    first %= len(pattern)
    return pattern[first:] + pattern[:first]


def shortest(pattern: Sequence[Item]) -> tuple[Item, ...]:
    """The fewest items that make a pattern if they are repeated."""
    items = tuple(pattern)
    parts = (items[:n] for n in range(1, len(items)) if len(items) % n == 0)
    return next((part for part in parts if part * (len(items) // len(part)) == items), items)


def is_equal(mine: Any, other: Any) -> bool:
    """Whether two items are equal, as a tuple compares them."""
    return mine is other or bool(mine == other)
