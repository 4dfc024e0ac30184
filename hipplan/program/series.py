"""A sequence that a longer or a shorter one is made from without copying what both have."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, islice
from typing import Any, Generic, TypeVar, cast, overload

from hipplan.program.layered import Layered
from hipplan.program.on_demand import OnDemand, Repeated, are_many, is_equal

Item = TypeVar("Item")
_NONE: Any = object()


class Series(Sequence[Item]):
    """A sequence in parts. Those that are added at its end are each at most half as long as the one before, so that
    there are few. It equals every sequence with the same items.

    Items that are made on demand stay so. Items that were changed are kept beside the parts, until they are all of
    them.
    """

    __slots__ = ("_changed", "_count", "_parts", "_segments", "_starts")

    def __init__(self, items: Sequence[Item] = ()) -> None:
        self._count = len(items)
        self._parts: tuple[tuple[_Part[Item], int], ...]
        """(items, how many of them count) of each part; all of those that are made on demand."""
        self._changed: Layered[int, Item] | None = None
        """Number -> the item that counts instead of the one in the parts."""
        self._segments: tuple[Sequence[Item], ...] | None = None
        self._starts: tuple[int, ...] | None = None
        if isinstance(items, (tuple, list)):  # to ask whether they are of an abstract class takes longer
            self._parts = ((tuple(items), len(items)),) if items else ()
        elif isinstance(items, Series):
            self._parts, self._changed = items._parts, items._changed
        else:
            self._parts = ((items if isinstance(items, OnDemand) else tuple(items), len(items)),)

    @classmethod
    def joined(cls, parts: Iterable[Sequence[Item]]) -> Series[Item]:
        """The items of these sequences, one after the other."""
        flat = chain.from_iterable(map(segments, parts))
        made = [(_as_part(part), len(part)) for part in flat if part]
        return cls()._of(made, sum(count for _, count in made), None)

    def segments(self) -> Sequence[Sequence[Item]]:
        """All items in order: those that are made on demand by themselves, others as tuples."""
        if self._segments is None:
            self._segments = tuple(self._made_segments())
        return self._segments

    def _starts_of_segments(self) -> Sequence[int]:
        """The number of the first item of each segment."""
        if self._starts is None:
            self._starts = tuple(accumulate(map(len, self.segments()), initial=0))[:-1]
        return self._starts

    def _made_segments(self) -> Iterator[Sequence[Item]]:
        changed, start = sorted(self._changed or ()), 0
        for items, counted in self._parts:
            here = changed[bisect_left(changed, start) : bisect_left(changed, start + counted)]
            if here and self._changed is not None:
                yield from self._with_changes(items, counted, start, here, self._changed)
            else:
                yield items if isinstance(items, OnDemand) or counted == len(items) else items[:counted]
            start += counted

    @staticmethod
    def _with_changes(
        items: _Part[Item], counted: int, start: int, here: Sequence[int], changed: Mapping[int, Item]
    ) -> Iterable[Sequence[Item]]:
        """The segments of a part, some of whose items have changed. start: the number of its first item. here: the
        numbers of those that have changed."""
        if not isinstance(items, OnDemand):
            written_out = [*items[:counted]]
            for number in here:
                written_out[number - start] = changed[number]
            return (tuple(written_out),)
        made: Parts[Item] = Parts()
        first = 0
        for number in (*here, start + counted):
            stays = number - start - first
            if are_many(stays):
                for part in items.cut(first, first + stays):
                    made.extend(part)
            else:
                made.extend([items.item(place) for place in range(first, first + stays)])
            if stays < counted - first:
                made.append(changed[number])
            first += stays + 1
        return made.series().segments()

    def with_parts(self, others: Mapping[int, Sequence[Item]]) -> Series[Item]:
        """The same, with other items from each of these numbers on. What is made on demand, and goes on behind what is
        so before it, becomes one with it."""
        if not others:
            return self
        made: list[Sequence[Item]] = []
        start = 0
        for number in (*sorted(others), self._count):
            there = self.parts_between(start, number) if start < number else ()
            for part in chain(there, segments(others[number]) if number < self._count else ()):
                is_alike = made and isinstance(part, OnDemand) and type(made[-1]) is type(part)
                both = cast(OnDemand[Item], made[-1]).continued_by(part) if is_alike else None
                if both is not None:
                    made[-1] = both
                else:
                    made.append(part)
            start = number + len(others.get(number, ()))
        return Series.joined(made)

    def with_more(self, more: Sequence[Item]) -> Series[Item]:
        """The same items, and others behind them."""
        if not more:
            return self
        if not isinstance(more, _WRITTEN_OUT):
            return Series.joined((self, more))
        parts = [*self._parts, (tuple(more), len(more))]
        while len(parts) > 1 and parts[-2][1] <= 2 * parts[-1][1] and not isinstance(parts[-2][0], OnDemand):
            (last, counted), (first, before) = parts.pop(), parts.pop()
            parts.append(((*first[:before], *last[:counted]), before + counted))
        return self._of(parts, self._count + len(more), self._changed)

    def with_changed(self, changed: Mapping[int, Item], apart: Container[int] = ()) -> Series[Item]:
        """The same, with other items at these numbers, which are from 0 on. apart: of those that no run has any longer,
        not even where they are equal."""
        differ = {number: item for number, item in changed.items() if number in apart or self[number] != item}
        if not differ:
            return self
        known: Layered[int, Item] = Layered({}) if self._changed is None else self._changed
        made = self._of([*self._parts], self._count, known.with_changed(differ))
        return Series(tuple(made)) if len(made._changed or ()) >= self._count else made

    def first(self, count: int) -> Series[Item]:
        """Only so many items, from the first one on. count: at most as many as there are."""
        parts, surplus = [*self._parts], self._count - count
        while surplus:
            items, counted = parts.pop()
            if counted > surplus:
                stay = counted - surplus
                parts.append((_first(items, stay), stay))
            surplus -= min(counted, surplus)
        changed = self._changed
        if changed is not None:
            changed = changed.without([number for number in range(count, self._count) if number in changed])
        return self._of(parts, count, changed)

    def without(self, numbers: Sequence[int]) -> Series[Item]:
        """The same without the items of these numbers, which are in their order."""
        if numbers[0] == self._count - len(numbers):
            return self.first(numbers[0])
        kept: Parts[Item] = Parts()
        start = 0
        for end in (*numbers, self._count):
            for part in self.parts_between(start, end) if start < end else ():
                kept.extend(part)
            start = end + 1
        return kept.series()

    def parts_between(self, first: int, end: int) -> Iterator[Sequence[Item]]:
        """The items from the number `first` on, before `end`, as of segments()."""
        parts, starts = self.segments(), self._starts_of_segments()
        for number in range(max(0, bisect_right(starts, first) - 1), bisect_left(starts, end)):
            part, start = parts[number], starts[number]
            low, high = max(0, first - start), min(end - start, len(part))
            if low < high and isinstance(part, OnDemand):
                yield from (part,) if high - low == len(part) else part.cut(low, high)
            elif low < high:
                yield part[low:high]

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
            return self._between(places.start, places.stop) if places.step == 1 else tuple(self)[index]
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
        if isinstance(other, (Series, OnDemand)):
            mine, others = self.segments(), tuple(segments(other))
            if [*map(len, mine)] == [*map(len, others)]:
                return all(map(is_equal, mine, others))
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(is_equal, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __reduce__(self) -> tuple[type[Series[Item]], tuple[tuple[Item, ...]]]:
        return Series, (tuple(self),)

    def _between(self, first: int, end: int) -> tuple[Item, ...]:
        """Returns the items with the numbers from `first` on, before `end`, without a look at others."""
        items: list[Item] = []
        ends = [*accumulate(counted for _, counted in self._parts)]
        for number in range(bisect_right(ends, first), len(self._parts)):
            part, counted = self._parts[number]
            start = ends[number] - counted
            if start >= end:
                break
            items += part[max(0, first - start) : min(end - start, counted)]
        changed: Mapping[int, Item] = self._changed or {}
        return tuple(changed.get(number, item) for number, item in enumerate(items, first)) if changed else tuple(items)

    def _of(
        self, parts: Sequence[tuple[_Part[Item], int]], count: int, changed: Layered[int, Item] | None
    ) -> Series[Item]:
        made: Series[Item] = Series.__new__(Series)
        made._parts, made._count, made._changed = tuple(parts), count, changed
        made._segments = made._starts = None
        return made


_Part = tuple[Item, ...] | OnDemand[Item]


_WRITTEN_OUT = (tuple, list)
"""What most parts are. To ask whether one is of an abstract class takes longer."""


def _is_on_demand(items: Iterable[Item]) -> bool:
    return not isinstance(items, _WRITTEN_OUT) and isinstance(items, OnDemand)


def _as_part(items: Sequence[Item]) -> _Part[Item]:
    return cast(OnDemand[Item], items) if _is_on_demand(items) else tuple(items)


def _first(items: _Part[Item], count: int) -> _Part[Item]:
    if not isinstance(items, OnDemand):
        return items  # only so many count
    first = items.first(count)
    return first if isinstance(first, OnDemand) else tuple(first)


class Parts(Generic[Item]):
    """Collects the items of a Series, in their order."""

    def __init__(self) -> None:
        self._parts: list[Sequence[Item]] = []

    def append(self, item: Item) -> None:
        self._written_out().append(item)

    def extend(self, items: Iterable[Item]) -> None:
        for part in items.segments() if isinstance(items, Series) else (items,):
            if _is_on_demand(part):
                self._parts.append(cast(OnDemand[Item], part))
            else:
                self._written_out().extend(part)

    def series(self) -> Series[Item]:
        return Series.joined(self._parts)

    def _written_out(self) -> list[Item]:
        if not self._parts or not isinstance(self._parts[-1], list):
            self._parts.append([])
        return cast(list[Item], self._parts[-1])


def segments(items: Sequence[Item]) -> Iterable[Sequence[Item]]:
    """All items in order: those that are made on demand by themselves, and others."""
    if isinstance(items, _WRITTEN_OUT):
        return (items,)
    return items.segments() if isinstance(items, Series) else (items,)


def counted(items: Sequence[Item]) -> Iterator[tuple[Item, int]]:
    """(item, how often it occurs there) for all items, in the order in which each occurs first."""
    for part in segments(items):
        if isinstance(part, Repeated):
            yield from ((item, part.count_of(place)) for place, item in enumerate(part.cycle))
        else:
            yield from ((item, 1) for item in part)
