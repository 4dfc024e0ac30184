"""A sequence that a longer or a shorter one is made from without copying what both have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, TypeVar, overload

from hipplan.program.layered import Layered

Item = TypeVar("Item")
_NONE: Any = object()


class Series(Sequence[Item]):
    """A sequence in parts, each at most half as long as the one before, so that there are few. It equals every sequence
    with the same items.

    Items that were changed are kept beside the parts, until they are half of all.
    """

    __slots__ = ("_changed", "_count", "_parts")

    def __init__(self, items: Sequence[Item] = ()) -> None:
        self._count = len(items)
        self._parts: tuple[tuple[tuple[Item, ...], int], ...]
        """(items, how many of them count) of each part."""
        self._changed: Layered[int, Item] | None = None
        """Number -> the item that counts instead of the one in the parts."""
        if isinstance(items, Series):
            self._parts, self._changed = items._parts, items._changed
        else:
            self._parts = ((tuple(items), len(items)),) if items else ()

    def with_more(self, more: Sequence[Item]) -> Series[Item]:
        """The same items, and others behind them."""
        parts = [*self._parts, *Series(tuple(more))._parts]
        while len(parts) > 1 and parts[-2][1] <= 2 * parts[-1][1]:
            (last, counted), (first, before) = parts.pop(), parts.pop()
            parts.append(((*first[:before], *last[:counted]), before + counted))
        return self._of(parts, self._count + len(more), self._changed)

    def with_changed(self, changed: Mapping[int, Item]) -> Series[Item]:
        """The same, with other items at these numbers, which are from 0 on."""
        known: Layered[int, Item] = Layered({}) if self._changed is None else self._changed
        made = self._of([*self._parts], self._count, known.with_changed({**changed}))
        return Series(tuple(made)) if 2 * len(made._changed or ()) >= self._count else made

    def first(self, count: int) -> Series[Item]:
        """Only so many items, from the first one on. count: at most as many as there are."""
        parts, surplus = [*self._parts], self._count - count
        while surplus:
            items, counted = parts.pop()
            if counted > surplus:
                parts.append((items, counted - surplus))
            surplus -= min(counted, surplus)
        changed = self._changed
        if changed is not None:
            changed = changed.without([number for number in range(count, self._count) if number in changed])
        return self._of(parts, count, changed)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Item]:
        planned = chain.from_iterable(
            items if counted == len(items) else islice(items, counted) for items, counted in self._parts
        )
        if not self._changed:
            return planned
        items = list(planned)
        for number, item in self._changed.items():
            items[number] = item
        return iter(items)

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
        changed: Item = _NONE if self._changed is None else self._changed.get(place, _NONE)
        if changed is not _NONE:
            return changed
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

    def __reduce__(self) -> tuple[type[Series[Item]], tuple[tuple[Item, ...]]]:
        return Series, (tuple(self),)

    def _last(self, count: int) -> tuple[Item, ...]:
        found: tuple[Item, ...] = ()
        for items, counted in reversed(self._parts):
            missing = count - len(found)
            if not missing:
                break
            found = items[max(0, counted - missing) : counted] + found
        if not self._changed:
            return found
        numbers = range(self._count - len(found), self._count)
        return tuple(self._changed.get(number, item) for number, item in zip(numbers, found, strict=True))

    def _of(
        self, parts: list[tuple[tuple[Item, ...], int]], count: int, changed: Layered[int, Item] | None
    ) -> Series[Item]:
        made: Series[Item] = Series.__new__(Series)
        made._parts, made._count, made._changed = tuple(parts), count, changed
        return made


def _equal(mine: Any, other: Any) -> bool:
    return mine is other or bool(mine == other)
