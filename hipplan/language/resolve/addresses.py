"""Checks that the ranges of a plan fit into the addresses of one process (HP105)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from hipplan.language.objects import Path, ResolvedRegion, ResolvedReservation
from hipplan.language.resolve.names import Names
from hipplan.units import ADDRESS_SPACE, about_size, full_size

_WHY = f"a process has {full_size(ADDRESS_SPACE)} of addresses, and programs and libraries take some of them"
_HINT = "reserve less"


class _Range(NamedTuple):
    name: str
    size: int
    """In bytes of addresses, with what its alignment may take."""
    path: Path
    """The path of the key that decides the size."""


def check_addresses(
    reservations: Mapping[str, ResolvedReservation], regions: Mapping[str, ResolvedRegion], names: Names
) -> None:
    """HP105: a range, or all ranges together, that no process has addresses for.

    A region without `reserve` takes as many addresses as memory, which is checked against the machine.
    """
    ranges = [*_of_reservations(reservations), *_of_regions(regions)]
    too_large = [range_ for range_ in ranges if range_.size >= ADDRESS_SPACE]
    for range_ in too_large:
        summary = f"'{range_.name}' takes {about_size(range_.size)} of addresses"
        names.report("HP105", summary, range_.path, why=_WHY, hint=_HINT)
    together = sum(range_.size for range_ in ranges)
    if not too_large and together >= ADDRESS_SPACE:
        summary = f"the ranges of this plan take {about_size(together)} of addresses together"
        largest = max(ranges, key=lambda range_: range_.size)
        why = f"{_WHY}; '{largest.name}' takes most: {about_size(largest.size)}"
        names.report("HP105", summary, largest.path, why=why, hint=_HINT)


def _of_reservations(reservations: Mapping[str, ResolvedReservation]) -> Iterator[_Range]:
    for name, reservation in reservations.items():
        spec, path = reservation.spec, reservation.path
        size = spec.size or max((line.end for line in reservation.lines), default=0)
        slack = 0 if spec.alignment is None or spec.address_policy == "exact" else spec.alignment
        yield _Range(name, size + slack, (*path, "alignment" if slack > size else "size"))


def _of_regions(regions: Mapping[str, ResolvedRegion]) -> Iterator[_Range]:
    for name, region in regions.items():
        spec = region.spec
        if spec.range_size is not None:
            slack = spec.alignment or 0
            key = "alignment" if slack > spec.range_size else "reserve"
            yield _Range(name, spec.range_size + slack, (*region.path, key))
