"""Names of alike objects, which differ in a number."""

from __future__ import annotations

from typing import TypeAlias

from hipplan.language.counted import is_number
from hipplan.program.regions import numbers_in

OF_MEMORY, OF_MAPPING, OF_COUNT = "#", "[", "."
"""The sign before the number of a chunk's memory, of its mapping, and of what `count:` makes."""

Stem: TypeAlias = tuple[str, str]
"""(name, sign before the number) that alike objects have in common."""


def stem_of(name: str) -> tuple[Stem, int] | None:
    """The stem of a name, and its number there. None: it has no number, or stands for several."""
    of, _, number = name.rpartition(OF_COUNT)
    if of and is_number(number) and OF_MEMORY not in of:  # kv#0..3 are chunks
        return (of, OF_COUNT), int(number)
    if (numbers := numbers_in(name)) is None or numbers.last is not None:
        return None
    return (numbers.of, OF_MEMORY if numbers.is_memory else OF_MAPPING), numbers.first


def outer_name(name: str) -> str:
    """The name of a region, from that of its memory or its mapping; any other name."""
    return name.partition("#")[0].partition("[")[0] or name  # that of hipplan's own memory begins with #


def prefixes_of(name: str) -> set[str]:
    """What stands before the numbers in a run that has the object: part of the name, or all of it for a range's."""
    stem = stem_of(name)
    return {outer_name(name)} if stem is None else {outer_name(name), stem[0][0]}
