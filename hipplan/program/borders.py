"""Finds the whole chunks of a region, or the whole mappings of a reservation, that a part of it means. Pure."""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import TypeAlias

from hipplan.kinds.mapping.live import Map
from hipplan.plain import called
from hipplan.program.lookup import end_of_mappings, mappings_within
from hipplan.program.program import Program
from hipplan.program.refusals import refuse
from hipplan.program.regions import mapping_of
from hipplan.program.resize import Size, find
from hipplan.program.resources import Resource
from hipplan.units import SizeError, format_size, full_size, parse_size

Part: TypeAlias = str | slice | tuple[Size | None, Size | None]
"""A part of a range, from its start on: "8GiB..16GiB", slice(0, 4096), (0, "2MiB"). What is left out, or None, stands
for the start or the end."""


def chunks_in(program: Program, name: str, part: Part) -> range:
    """The numbers of the chunks of a region that are a part of it. Its cost does not depend on their number.

    Raises ApplyError (HP420): it is no part of it, or not whole chunks.
    """
    region = program.regions[name]

    def starts_at(number: int) -> int:
        return find(program, Map, mapping_of(name, number)).offset

    def number_at(place: int) -> int:
        number = min(place // region.chunks[0][1], len(region.chunks) - 1)  # mostly all chunks have one size
        if starts_at(number) <= place < starts_at(number) + region.chunks[number][1]:
            return number
        return bisect_right(range(len(region.chunks)), place, key=starts_at) - 1

    start, end = _bounds(name, part, region.mapped)
    first, last = number_at(start), number_at(end - 1)
    outer = starts_at(first), starts_at(last) + region.chunks[last][1]
    inner = starts_at(first) + region.chunks[first][1], starts_at(last)
    _require_whole(f"chunks of '{name}'", (start, end), outer, inner)
    return range(first, last + 1)


def mappings_in(program: Program, name: str, part: Part) -> list[Resource]:
    """The mappings of a reservation that are in a part of it. Raises ApplyError (HP420) as chunks_in()."""
    start, end = _bounds(name, part, end_of_mappings(program, name))
    inside = sorted(mappings_within(program, name, start, end), key=attrgetter("offset"))
    if not inside:
        raise refuse(f"nothing is mapped in {_text(start, end)} of '{name}'")
    first, last = inside[0], inside[-1]
    outer = min(start, first.offset), max(end, last.offset + last.size)
    _require_whole(f"mappings of '{name}'", (start, end), outer, (first.offset + first.size, last.offset))
    return inside


def _require_whole(what: str, part: tuple[int, int], outer: tuple[int, int], inner: tuple[int, int]) -> None:
    """Raises ApplyError where a part begins or ends within a chunk or mapping. outer, inner: the borders before and
    after its start, and after and before its end."""
    wrong = [
        f"{format_size(place)} is between its borders at {format_size(min(borders))} and {format_size(max(borders))}"
        for place, *borders in zip(part, outer, inner, strict=True)
        if place != borders[0]
    ]
    if wrong:
        why = "; ".join(wrong)
        raise refuse(f"{_text(*part)} is not whole {what}", why=why, hint=f'part="{_text(*outer)}"')


def _bounds(name: str, part: Part, mapped: int) -> tuple[int, int]:
    """The start and the end of a part, in bytes. mapped: where the last chunk ends. Raises ApplyError (HP420)."""
    start, end = (_bytes(given, default) for given, default in zip(_ends(part), (0, mapped), strict=True))
    if end > mapped:
        raise refuse(f"{_text(start, end)} goes past the end of '{name}'", why=f"{full_size(mapped)} are mapped")
    if start >= end:
        raise refuse(f"{_text(start, end)} of '{name}' has no bytes", hint=_HINT)
    return start, end


def _ends(part: Part) -> tuple[Size | None, Size | None]:
    if isinstance(part, str):
        start, dots, end = (text.strip() for text in part.partition(".."))
        if dots:
            return start or None, end or None
        raise refuse(f"part='{part}' is no part of a range", hint=_HINT)
    if isinstance(part, slice) and part.step is None:
        return part.start, part.stop
    if isinstance(part, (tuple, list)) and len(part) == 2:
        return part[0], part[1]
    what = "a slice with a step" if isinstance(part, slice) else called(part)
    raise refuse(f"part is a range of bytes, not {what}", hint=_HINT)


def _bytes(given: Size | None, default: int) -> int:
    if given is None:
        return default
    try:
        return parse_size(given)
    except SizeError as error:
        raise refuse(str(error), hint=error.hint) from None


def _text(start: int, end: int) -> str:
    return f"{format_size(start)}..{format_size(end)}"


_HINT = 'for example part="8GiB..16GiB", or "8GiB.." up to the end'
