"""Resolves mappings: spreads patterns, computes offsets, checks overlaps and ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise

from hipplan.language.counted import Counted, LineNames
from hipplan.language.model import Reservation
from hipplan.language.objects import AllocationsByName, MappingLine, Path, ResolvedMapping
from hipplan.language.resolve.devices import Devices
from hipplan.language.resolve.names import Names, families
from hipplan.units import format_size, full_size


class Mappings:
    """The mappings of the reservations of one plan."""

    def __init__(self, names: Names, devices: Devices, allocations: AllocationsByName) -> None:
        self._names = names
        self._devices = devices
        self._allocations = allocations
        self._families = families((line.names for line in allocations.lines), names.budget)

    def of(self, name: str, reservation: Reservation, path: Path) -> tuple[MappingLine, ...]:
        """The mappings of a reservation, in order."""
        lines = tuple(self._spread(name, reservation, path))
        # A pattern expands to many mappings, but its line is reported once.
        reported: set[Path] = set()
        if reservation.size is not None:
            self._check_end(name, reservation.size, lines, reported)
        if any(mapping.at is not None for mapping in reservation.mappings):  # others follow each other
            self._check_overlaps(lines, reported)
        return lines

    def _spread(self, name: str, reservation: Reservation, path: Path) -> Iterator[MappingLine]:
        default = self._devices.access(reservation.access, (*path, "access"))
        number = end = 0
        for index, mapping in enumerate(reservation.mappings):
            where = (*path, "mappings", index)
            own = mapping.access
            access = default if own is None else self._devices.access(own, (*where, "access"))
            at, all_of_it = mapping.at, mapping.size is None
            attached = mapping.attached or reservation.attached
            matching = self.matching(mapping.allocation, where)
            spread = f"mapping '{mapping.allocation}'"
            self._names.ask("links", len(matching) * len(access), spread, where)
            self._names.ask("steps", 2 * len(matching), spread, where)
            if len(matching) > 1:
                self._names.ask("objects", len(matching), spread, where)
            for memory in (matching,) if isinstance(matching, Counted) else ([single] for single in matching):
                allocation = memory[0]
                whole = self._allocations[allocation].spec.size
                size = whole if mapping.size is None else mapping.size
                start = end if at is None else at
                if size > whole:
                    self._too_much(allocation, size, whole, where)
                follows, first = at is None and number > 0, f"{name}[{number}]"
                made = ResolvedMapping(first, allocation, start, follows, size, all_of_it, access, where, attached)
                line = MappingLine(made, memory, number)
                yield line
                end, at, number = line.end, None, number + len(memory)

    def matching(self, name: str, path: Path) -> LineNames:
        """The allocations that a name or a pattern such as kv.* means."""
        if name in self._allocations:
            return [name]
        members = self._families.get(name.removesuffix(".*"), [])
        if members and name.endswith(".*"):
            return members
        hint = f"it has a count: write {name}.* for all, or {members[0]} for one" if members else ""

        def known() -> Iterator[str]:
            yield from self._allocations
            yield from (f"{family}.*" for family in self._families)

        self._names.missing("HP202", "allocations", name, (*path, "allocation"), known, hint=hint)
        return []

    def _too_much(self, allocation: str, size: int, whole: int, path: Path) -> None:
        self._names.report(
            "HP207",
            f"{full_size(size)} of '{allocation}' cannot be mapped",
            (*path, "size"),
            why=f"it has {full_size(whole)}",
            hint="remove size to map all of it",
        )

    def _check_end(self, name: str, size: int, lines: Sequence[MappingLine], reported: set[Path]) -> None:
        for line in lines:
            if line.end > size and line.first.path not in reported:
                mapping = next(mapping for mapping in line.members() if mapping.at + mapping.size > size)
                end = mapping.at + mapping.size
                reported.add(mapping.path)
                self._names.report(
                    "HP206",
                    f"'{mapping.allocation}' ends at {full_size(end)}, past the end of '{name}'",
                    (*mapping.path, "at"),
                    why=f"the reservation has {full_size(size)}",
                    hint="move the mapping, or remove the size of the reservation",
                )

    def _check_overlaps(self, lines: Sequence[MappingLine], reported: set[Path]) -> None:
        upward = sorted(lines, key=lambda line: line.first.at)
        if all(before.end <= after.first.at for before, after in pairwise(upward)):
            return
        last, last_end = None, 0
        mappings = chain.from_iterable(line.members() for line in lines)
        for mapping in sorted(mappings, key=lambda m: m.at):
            if last is not None and mapping.at < last_end and mapping.path not in reported:
                reported.add(mapping.path)
                self._names.report(
                    "HP205",
                    f"'{mapping.allocation}' at {full_size(mapping.at)} overlaps '{last.allocation}'",
                    (*mapping.path, "at"),
                    why=f"'{last.allocation}' takes {full_size(last.at)} to {full_size(last_end)}",
                    hint=f"at: {format_size(last_end)} is free; or remove at:",
                )
            if mapping.at + mapping.size > last_end:
                last, last_end = mapping, mapping.at + mapping.size
