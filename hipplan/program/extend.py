"""Grows and shrinks a reservation: makes the program with more or fewer mappings at its end. Pure.

A reservation that is full gets more addresses right behind it (ReserveBeside): code sees both
as one range that begins at the first one's address.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from hipplan.kinds.allocation.live import CreateAllocation
from hipplan.kinds.mapping.live import Map
from hipplan.kinds.reservation.live import ReserveBeside
from hipplan.machines.machine import FALLBACK_GRANULARITY
from hipplan.program import steps
from hipplan.program.program import Program
from hipplan.program.refusals import refuse
from hipplan.program.resize import Size, require_unsealed, to_bytes
from hipplan.program.window import to_next_step
from hipplan.units import PAGE, round_up


@dataclass(frozen=True, slots=True)
class LiveRange:
    """Facts about a reservation that only the live layout has."""

    base: int
    capacity: Callable[[str], int]
    """Bytes of addresses from a reservation's base to its end."""


@dataclass(frozen=True, slots=True)
class _Placed:
    """A mapping with its offset from the base of the whole range."""

    step: Map
    at: int

    @property
    def end(self) -> int:
        return self.at + self.step.size


def grown(
    program: Program, name: str, live: LiveRange, *, by: Size | None = None, to: Size | None = None, step: int = 0
) -> Program:
    """The program with new memory like the last mapping's, after it: at least `by` bytes more, or at least `to` in all.

    step: the new size is a multiple of this; 0: of the granularity.

    Raises ApplyError (HP420): there is no mapping to copy the kind of memory from.
    """
    ranges = _ranges(program, name, live)
    placed = _placed(program, ranges)
    if not placed:
        raise refuse(f"'{name}' has no mapping that could grow", hint="add a mapping to the plan, then update()")
    last = placed[-1]
    create = program.makers[last.step.allocation]
    if not isinstance(create, CreateAllocation):
        raise refuse(f"'{last.step.allocation}' is imported: it cannot be extended")
    require_unsealed(program, last.step.name)
    missing = to_bytes(last.end, by, to, sign=1) - last.end
    if missing <= 0:
        return program
    left = round_up(missing, step or _granularity(program, create))
    made: list[steps.Step] = []
    pieces: list[tuple[str, int, int]] = []
    at = last.end
    for reservation, start in ranges.items():
        size = min(left, start + live.capacity(reservation) - at)
        if size > 0 and left:
            pieces.append((reservation, at - start, size))
            at, left = at + size, left - size
    for size in _sizes_beside(live.base + at, left):
        beside = ReserveBeside(
            name=f"{name}+{len(ranges) + len(made)}",
            origin=None,
            size=size,
            asked=size,
            alignment=0,
            slack=0,
            address=live.base + at,
            exact=True,
            follows=name,
            at=at,
        )
        made.append(beside)
        pieces.append((beside.name, 0, size))
        at += size
    return _with_pieces(program, name, last, create, made, pieces)


def _sizes_beside(address: int, size: int) -> list[int]:
    """The sizes of ranges, one behind the other from an address on, which every driver takes there."""
    first = min(size, to_next_step(address))
    return [part for part in (first, size - first) if part]


def shrunk(program: Program, name: str, live: LiveRange, *, by: Size | None = None, to: Size | None = None) -> Program:
    """The program without mappings at the end: at most `by` bytes less, or so that at least `to` stay mapped.

    Memory without any mapping is freed too, and so are addresses that were added for growing.
    """
    ranges = _ranges(program, name, live)
    placed = _placed(program, ranges)
    end = placed[-1].end if placed else 0
    wanted = to_bytes(end, by, to, sign=-1)
    kept = list(placed)
    while kept and (kept[-2].end if len(kept) > 1 else 0) >= wanted:
        kept.pop()
    gone = {piece.step.name for piece in placed[len(kept) :]}
    if not gone:
        return program
    maps = [*program.mappings()]
    used = {s.allocation for s in maps if s.name not in gone}
    gone |= {s.allocation for s in maps if s.name in gone} - used
    filled = {piece.step.reservation for piece in kept}
    gone |= {reservation for reservation in ranges if reservation != name and reservation not in filled}
    return replace(
        program,
        steps=tuple(step for step in program.steps if step.name not in gone),
        sealed={mapping: rights for mapping, rights in program.sealed.items() if mapping not in gone},
    )


def _granularity(program: Program, create: CreateAllocation) -> int:
    """The size of more memory of this kind must be a multiple of this: of large pages, if the memory is."""
    if create.location != "device":
        return (program.measured and program.measured.host_granularity) or PAGE
    if program.measured is None:
        return FALLBACK_GRANULARITY
    device = program.measured.devices[create.device]
    steps_of = (device.granularity_recommended, device.granularity_minimum)
    return next((step for step in steps_of if step and create.size % step == 0), FALLBACK_GRANULARITY)


def _ranges(program: Program, name: str, live: LiveRange) -> dict[str, int]:
    """The reservation and those added behind it -> the offset of each from the base of the first."""
    ranges: dict[str, int] = {}
    at = 0
    for step in program.reservations.values():
        if step.name == name or getattr(step, "follows", "") == name:
            ranges[step.name] = at
            at += live.capacity(step.name)
    return ranges


def _placed(program: Program, ranges: dict[str, int]) -> list[_Placed]:
    maps = (s for s in program.mappings() if s.reservation in ranges)
    return sorted((_Placed(s, ranges[s.reservation] + s.offset) for s in maps), key=lambda placed: placed.at)


def _with_pieces(
    program: Program,
    name: str,
    last: _Placed,
    create: CreateAllocation,
    made: list[steps.Step],
    pieces: list[tuple[str, int, int]],
) -> Program:
    """The program with a new allocation and mapping for each of `pieces`: (reservation, offset, bytes)."""
    names = {*program.makers}
    access = program.rights.get(last.step.name)
    for reservation, offset, size in pieces:
        memory, mapping = _free(f"{name}#{{}}", names), _free(f"{name}[{{}}]", names)
        names |= {memory, mapping}
        made.append(replace(create, name=memory, size=size, asked=size))
        place = replace(last.step, name=mapping, reservation=reservation, allocation=memory, offset=offset)
        made.append(replace(place, size=size, asked=size))
        if access is not None:
            made.append(replace(access, name=mapping))
    return program.grown(tuple(made), program.regions)


def _free(pattern: str, taken: set[str]) -> str:
    number = 0
    while pattern.format(number) in taken:
        number += 1
    return pattern.format(number)
