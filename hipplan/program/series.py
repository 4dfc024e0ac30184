"""A sequence that a longer or a shorter one is made from without copying what both have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any, TypeVar, overload

Item = TypeVar("Item")


class Series(Sequence[Item]):
    """A sequence in parts, each at most half as long as the one before, so that there are few. It equals every sequence
    with the same items."""

    __slots__ = ("_count", "_parts")

    def __init__(self, items: Sequence[Item] = ()) -> None:
        self._count = len(items)
        self._parts: tuple[tuple[tuple[Item, ...], int], ...]
        """(items, how many of them count) of each part."""
        if isinstance(items, Series):
            self._parts = items._parts
        else:
            self._parts = ((tuple(items), len(items)),) if items else ()

    def with_more(self, more: Sequence[Item]) -> Series[Item]:
        """The same items, and others behind them."""
        parts = [*self._parts, *Series(more)._parts]
        while len(parts) > 1 and parts[-2][1] <= 2 * parts[-1][1]:
            (last, counted), (first, before) = parts.pop(), parts.pop()
            parts.append(((*first[:before], *last[:counted]), before + counted))
        return self._of(parts, self._count + len(more))

    def first(self, count: int) -> Series[Item]:
        """Only so many items, from the first one on. count: at most as many as there are."""
        parts, surplus = [*self._parts], self._count - count
        while surplus:
            items, counted = parts.pop()
            if counted > surplus:
                parts.append((items, counted - surplus))
            surplus -= min(counted, surplus)
        return self._of(parts, count)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Item]:
        return chain.from_iterable(
            items if counted == len(items) else islice(items, counted) for items, counted in self._parts
        )

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Item, ...]: ...
    def __getitem__(self, index: int | slice) -> Item | tuple[Item, ...]:
        if isinstance(index, slice):
            places = range(self._count)[index]
            if places.step == 1 and places.stop == self._count:
                return self._last(len(places))
            return tuple(self)[index]
        place: int = range(self._count)[index]  # raises IndexError
        for items, counted in self._parts:
            if place < counted:
                item: Item = items[place]
                return item
            place -= counted
        raise IndexError(index)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(_equal, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(tuple(self))

    def _last(self, count: int) -> tuple[Item, ...]:
        found: tuple[Item, ...] = ()
        for items, counted in reversed(self._parts):
            missing = count - len(found)
            if not missing:
                break
            found = items[max(0, counted - missing) : counted] + found
        return found

    def _of(self, parts: list[tuple[tuple[Item, ...], int]], count: int) -> Series[Item]:
        made: Series[Item] = Series.__new__(Series)
        made._parts, made._count = tuple(parts), count
        return made


def _equal(mine: Any, other: Any) -> bool:
    return mine is other or bool(mine == other)
