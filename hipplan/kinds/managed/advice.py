"""The advice and prefetches of a managed buffer as pieces: all bytes of a piece have the same advice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

from hipplan.errors import Span
from hipplan.program.checks import Check, Reading
from hipplan.program.steps import CPU_ORDINAL, Step, in_words, step_data
from hipplan.units import PAGE, format_size, short_size

NOWHERE = -2
"""No location: HIP's answer for a piece without preferred location, or never prefetched."""


@dataclass(slots=True)
class AdvisedPart:
    """A part of a managed buffer, all of which has the same advice."""

    start: int
    end: int
    read_mostly: int = 0
    preferred: int = NOWHERE
    prefetched: int = NOWHERE
    accessed_by: frozenset[int] = frozenset()
    coarse_grain: int = 0


@step_data
class ChangeAdvice(Step):
    """Changes the advice for a part of an existing managed buffer."""

    call = "hipMemAdvise"
    offset: int
    size: int
    now: tuple[str, int]
    """The advice, and the device."""
    before: tuple[str, int]
    """The advice that undoes it."""

    def describe(self) -> str:
        called, device = self.now
        return f"{called} ({in_words(device)}), {short_size(self.size)} at +{format_size(self.offset)}"

    def listed(self) -> str:
        return self.describe()


class AboutRange(Protocol):
    """A step about a range of a managed buffer."""

    @property
    def offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    def mark(self, part: AdvisedPart, /) -> None: ...


def pieces(todo: Sequence[AboutRange], whole: int, more_ends: Iterable[int] = ()) -> list[AdvisedPart]:
    """The pieces of a buffer of `whole` bytes, in order."""
    ranges = [(s.offset // PAGE * PAGE, min(whole, -(-(s.offset + s.size) // PAGE) * PAGE)) for s in todo]
    ends = sorted({0, whole, *(edge for range_ in ranges for edge in range_), *more_ends})
    out = [AdvisedPart(start, end) for start, end in pairwise(ends)]
    for step, (start, end) in zip(todo, ranges, strict=True):
        for piece in out:
            if start <= piece.start and piece.end <= end:
                step.mark(piece)
    return out


def changes(
    name: str, origin: Span | None, whole: int, before: Sequence[AboutRange], after: Sequence[AboutRange]
) -> list[ChangeAdvice]:
    """The calls that change one list of advice into another, each with the call that undoes it."""
    ends = {end for todo in (before, after) for piece in pieces(todo, whole) for end in (piece.start, piece.end)}
    by_range: dict[tuple[tuple[str, int], tuple[str, int]], list[ChangeAdvice]] = {}
    for old, new in zip(pieces(before, whole, ends), pieces(after, whole, ends), strict=True):
        for now, back in _between(old, new):
            alike = by_range.setdefault((now, back), [])
            if alike and alike[-1].offset + alike[-1].size == old.start:
                alike[-1] = replace(alike[-1], size=old.end - alike[-1].offset)
                continue
            size = old.end - old.start
            alike.append(ChangeAdvice(name, origin, offset=old.start, size=size, now=now, before=back))
    return [change for alike in by_range.values() for change in alike]


def _between(old: AdvisedPart, new: AdvisedPart) -> Iterator[tuple[tuple[str, int], tuple[str, int]]]:
    """(new advice, advice that undoes it) for each difference of two pieces at the same offset."""
    for flag in ("read_mostly", "coarse_grain"):
        if getattr(old, flag) != getattr(new, flag):
            pair = _advice(flag), _advice(f"unset_{flag}")
            yield pair if getattr(new, flag) else pair[::-1]
    if old.preferred != new.preferred:
        yield _location(new.preferred), _location(old.preferred)
    for device in sorted(old.accessed_by ^ new.accessed_by):
        pair = _advice("accessed_by", device), _advice("unset_accessed_by", device)
        yield pair if device in new.accessed_by else pair[::-1]


def _location(device: int) -> tuple[str, int]:
    return _advice("unset_preferred_location") if device == NOWHERE else _advice("preferred_location", device)


def _advice(called: str, device: int = 0) -> tuple[str, int]:
    # HIP ignores the device where the advice has none, but still checks that it exists.
    return called, device


def range_checks(
    name: str, whole: int, about: Sequence[AboutRange], reading: Reading, coherency: bool
) -> Iterator[Check]:
    """Range attributes of a managed buffer of `whole` bytes, piece by piece between the ends of all advised ranges.
    coherency: whether the runtime has advice about it."""
    for piece in pieces(about, whole) if about else ():
        yield from _piece_checks(name, piece, reading, coherency)


def _piece_checks(name: str, piece: AdvisedPart, reading: Reading, coherency: bool) -> Iterator[Check]:
    address, size = reading.address_of(name) + piece.start, piece.end - piece.start
    where = f"[{piece.start}, {piece.end})"

    def current_value(attribute: str) -> str:
        return str(reading.runtime.range_attribute(address, size, attribute))

    yield Check(name, f"read mostly {where}", str(piece.read_mostly), current_value("read_mostly"))
    yield Check(name, f"preferred location {where}", str(piece.preferred), current_value("preferred_location"))
    if coherency:
        yield Check(name, f"coarse grain {where}", str(piece.coarse_grain), current_value("coarse_grain"))
    if piece.prefetched != NOWHERE:  # a prefetch by other code, or of an earlier plan, cannot be undone
        yield Check(name, f"last prefetch {where}", str(piece.prefetched), current_value("last_prefetch"))
    # HIP omits the CPU, even if it was advised.
    desired = sorted(piece.accessed_by - {CPU_ORDINAL})
    current = sorted(set(reading.runtime.accessed_by(address, size)) - {CPU_ORDINAL})
    yield Check(name, f"accessed by {where}", str(desired), str(current))
