"""Brackets for boxes that are too narrow for their names: one for each family, with its pattern and its count."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

_NUMBERS = re.compile("[0-9]+")
_LEAST = 70.0
"""Families are split into smaller ones while most of these are so wide."""
_DEPTH_MAX = 12
EVERYTHING = "*"
"""The pattern of names that have nothing in common."""


class NamedBox(NamedTuple):
    """A box that has a name of its own."""

    start: int
    end: int
    name: str
    is_labelled: bool
    """Whether its name fits into the box."""


@dataclass(frozen=True, slots=True)
class Bracket:
    start: int
    end: int
    pattern: str
    count: int

    def choices(self) -> Iterator[str]:
        """What it says, then shorter and shorter forms."""
        parts = self.pattern.split(".")
        yield f"{self.pattern} · {self.count}"
        for number in range(1, len(parts)):
            yield f"…{'.'.join(parts[number:])} · {self.count}"


def brackets(boxes: Sequence[NamedBox], width: Callable[[int, int], float]) -> list[Bracket]:
    """The families of neighbours among which some have no label. width: of a range of addresses in the picture."""
    if all(box.is_labelled for box in boxes):
        return []

    def across(group: Sequence[int]) -> float:
        return width(boxes[group[0]].start, boxes[group[-1]].end)

    runs = groupby(range(len(boxes)), key=lambda number: _masked(boxes[number].name))
    families: list[Sequence[int]] = [[*run] for _, run in runs]
    if len(families) > len(boxes) / 2 or not _are_wide([*map(across, families)]):
        families = [*_split(range(len(boxes)), 0, [box.name.split(".") for box in boxes], across)]
    made = []
    for group in families:
        these = [boxes[number] for number in group]
        if len(these) > 1 and not all(box.is_labelled for box in these):
            made.append(Bracket(these[0].start, these[-1].end, _pattern([box.name for box in these]), len(these)))
    return made


def _masked(name: str) -> str:
    """A name with * for each number: equal in a family."""
    return _NUMBERS.sub("*", name)


def _split(
    numbers: Sequence[int], depth: int, parts: Sequence[list[str]], width: Callable[[Sequence[int]], float]
) -> Iterator[Sequence[int]]:
    """Neighbours with the same first words, as many of them as are wide enough for a text."""
    groups: list[list[int]] = []
    while len(groups) < 2:
        if depth == _DEPTH_MAX or all(len(parts[number]) <= depth for number in numbers):
            yield numbers
            return
        groups = [[*group] for _, group in groupby(numbers, key=lambda number: parts[number][depth : depth + 1])]
        depth += 1
    if not _are_wide([*map(width, groups)]):
        yield numbers
        return
    for group in groups:
        yield from _split(group, depth, parts, width)


def _are_wide(widths: Sequence[float]) -> bool:
    """Whether most of the picture that families take is taken by those that are wide enough for a text."""
    return sum(width for width in widths if width >= _LEAST) > 0.6 * sum(widths)


def _pattern(names: Sequence[str]) -> str:
    """What the names have in common, with * for numbers that differ and for the rest."""
    parts = [name.split(".") for name in names]
    common: list[str] = []
    for words in zip(*parts, strict=False):
        same = {*words} if len({*words}) == 1 else {*map(_masked, words)}
        if len(same) > 1:
            break
        common += same
    return ".".join(common if {*map(len, parts)} == {len(common)} else [*common, EVERYTHING])
