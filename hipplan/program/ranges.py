"""Checks of offsets and sizes within one reservation, after padding for a machine (HP302)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, count, repeat
from operator import attrgetter, itemgetter
from typing import NamedTuple

from hipplan.errors import Diagnostic, Span
from hipplan.language.findings import Findings
from hipplan.language.loader import LoadedPlan
from hipplan.language.objects import MappingLine, ResolvedMapping, ResolvedReservation
from hipplan.units import format_size, full_size

Placed = tuple[ResolvedMapping, int, int]
"""A mapping, its offset and its padded size in bytes."""


class PlacedLine(NamedTuple):
    """The mappings of a line, each of which begins where the one before it ends."""

    line: MappingLine
    at: int
    """Offset of the first one, in bytes."""
    size: int
    """Padded bytes of each."""

    @property
    def end(self) -> int:
        """Where the last one ends, in bytes."""
        return self.at + len(self.line.memory) * self.size

    def members(self) -> Iterator[Placed]:
        """All of them."""
        return zip(self.line.members(), count(self.at, self.size), repeat(self.size))


def check_size(name: str, size: int, padding: str, span: Span | None, findings: Findings) -> None:
    """HP302: more bytes than 64 bits count. padding: the reason why it is larger than in the plan."""
    if size >= 2**64:
        summary = f"'{name}' is too large: {full_size(size)} with {padding}"
        why = "sizes and addresses have 64 bits: less than 16384PiB"
        findings.add(Diagnostic("HP302", summary, span, why=why, hint="make it smaller"))


def check_range(
    plan: LoadedPlan,
    reservation: ResolvedReservation,
    lines: Sequence[PlacedLine],
    size: int,
    step: int,
    findings: Findings,
) -> None:
    """Check a reservation: offsets and sizes against the granularity, and overlap after padding (HP302)."""
    spec, path = reservation.spec, reservation.path
    if spec.address is not None and spec.address % step:
        span = plan.span(*path, "address")
        findings.add(_misaligned(f"the address of '{reservation.name}'", spec.address, step, span, hex))
    upward = sorted(lines, key=attrgetter("at"))
    if _is_sound(upward, size, step):
        return
    before_end, before_name = 0, ""
    placed = chain.from_iterable(line.members() for line in lines)
    for mapping, at, mapped in sorted(placed, key=itemgetter(1)):
        if at % step:
            span = plan.span(*mapping.path, "at")
            findings.add(_misaligned(f"mapping '{mapping.name}'", at, step, span))
        elif at < before_end:
            findings.add(
                Diagnostic(
                    "HP302",
                    f"mapping '{mapping.name}' starts inside '{before_name}', which is padded",
                    plan.span(*mapping.path, "at"),
                    why=f"'{before_name}' ends at {full_size(before_end)} after rounding",
                    hint=f"use {format_size(before_end)}, or remove at:",
                )
            )
        elif at + mapped > size:
            findings.add(
                Diagnostic(
                    "HP302",
                    f"mapping '{mapping.name}' is padded and ends past the end of '{reservation.name}'",
                    plan.span(*mapping.path, "at"),
                    why=f"it ends at {full_size(at + mapped)}, the reservation at {full_size(size)}",
                    hint=f"reserve at least {format_size(at + mapped)}",
                )
            )
        before_end, before_name = at + mapped, mapping.name


def _is_sound(upward: Sequence[PlacedLine], size: int, step: int) -> bool:
    """Whether all mappings begin at multiples of a step, do not overlap, and end in a range of so many bytes. upward:
    by offset."""
    end = 0
    for line in upward:
        if line.at % step or line.at < end or (len(line.line.memory) > 1 and line.size % step):
            return False
        end = line.end
    return end <= size


def _misaligned(
    what: str, value: int, step: int, span: Span | None, shown: Callable[[int], str] = format_size
) -> Diagnostic:
    below = value // step * step
    near = [below] * (below > 0 or shown is not hex) + [below + step]  # no range may have the address 0
    return Diagnostic(
        "HP302",
        f"{what} cannot be {hex(value)}" if shown is hex else f"{what} cannot start at {full_size(value)}",
        span,
        label=f"not a multiple of {full_size(step)}",
        why=f"the minimum granularity is {full_size(step)}",
        hint=f"use {' or '.join(map(shown, near))}",
    )
