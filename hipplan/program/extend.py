"""Grows and shrinks reservations: makes the program with more or fewer mappings at their ends. Pure.

A reservation that is full gets more addresses right behind it (ReserveBeside): code sees both
as one range that begins at the first one's address.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
    step: int = 0
    """Its new size is a multiple of this; 0: of the granularity."""


@dataclass(frozen=True, slots=True)
class _Placed:
    """A mapping with its offset from the base of the whole range."""

    step: Map
    at: int

    @property
    def end(self) -> int:
        return self.at + self.step.size


@dataclass(frozen=True, slots=True)
class _Whole:
    """A reservation with those that were added behind it, and what is mapped there."""

    ranges: dict[str, int]
    """Each of these reservations -> its offset from the base of the first."""
    placed: list[_Placed]
    """In the order of addresses."""


def grown(
    program: Program, lives: Mapping[str, LiveRange], *, by: Size | None = None, to: Size | None = None
) -> Program:
    """The program with new memory behind the last mapping of each of these reservations, like that of this mapping: at
    least `by` bytes more, or at least `to` in all.

    Raises ApplyError (HP420): there is no mapping to copy the kind of memory from.
    """
    taken = {*program.makers}
    more = [
        step
        for name, whole in _wholes(program, lives).items()
        for step in _more(program, name, whole, lives[name], by, to, taken)
    ]
    return program.grown(tuple(more), program.regions) if more else program


def _more(
    program: Program, name: str, whole: _Whole, live: LiveRange, by: Size | None, to: Size | None, taken: set[str]
) -> Iterable[steps.Step]:
    """The steps for the new memory of one reservation. taken: all names; those of these steps are added."""
    if not whole.placed:
        raise refuse(f"'{name}' has no mapping that could grow", hint="add a mapping to the plan, then update()")
    last = whole.placed[-1]
    create = program.makers[last.step.allocation]
    if not isinstance(create, CreateAllocation):
        raise refuse(f"'{last.step.allocation}' is imported: it cannot be extended")
    require_unsealed(program, last.step.name)
    missing = to_bytes(last.end, by, to, sign=1) - last.end
    if missing <= 0:
        return
    left = round_up(missing, live.step or _granularity(program, create))
    made: list[steps.Step] = []
    pieces: list[tuple[str, int, int]] = []
    at = last.end
    for reservation, start in whole.ranges.items():
        size = min(left, start + live.capacity(reservation) - at)
        if size > 0 and left:
            pieces.append((reservation, at - start, size))
            at, left = at + size, left - size
    for size in _sizes_beside(live.base + at, left):
        beside = ReserveBeside(
            name=f"{name}+{len(whole.ranges) + len(made)}",
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
    yield from made
    yield from _memory(program, name, last.step, create, pieces, taken)


def _sizes_beside(address: int, size: int) -> list[int]:
    """The sizes of ranges, one behind the other from an address on, which every driver takes there."""
    first = min(size, to_next_step(address))
    return [part for part in (first, size - first) if part]


def shrunk(
    program: Program, lives: Mapping[str, LiveRange], *, by: Size | None = None, to: Size | None = None
) -> Program:
    """The program without mappings at the ends of these reservations: of each at most `by` bytes less, or so that at
    least `to` stay mapped.

    Memory without any mapping is freed too, and so are addresses that were added for growing.
    """
    gone: set[str] = set()
    for name, whole in _wholes(program, lives).items():
        gone |= _less(name, whole, by, to)
    if not gone:
        return program
    maps = [*program.mappings()]
    used = {s.allocation for s in maps if s.name not in gone}
    gone |= {s.allocation for s in maps if s.name in gone} - used
    sealed = {mapping: rights for mapping, rights in program.sealed.items() if mapping not in gone}
    if any(step.name in gone for step in (*program.contents, *program.bindings)):  # which shrunk() carries on
        steps_left = tuple(step for step in program.steps if step.name not in gone)
        return replace(program, steps=steps_left, sealed=sealed)
    made, given = program.makers, program.rights
    less = [*(made[name] for name in gone), *(given[name] for name in gone if name in given)]
    return program.shrunk(less, program.regions, sealed)


def _less(name: str, whole: _Whole, by: Size | None, to: Size | None) -> set[str]:
    """The mappings of one reservation that go, and those of its added reservations that are empty then."""
    end = whole.placed[-1].end if whole.placed else 0
    wanted = to_bytes(end, by, to, sign=-1)
    kept = list(whole.placed)
    while kept and (kept[-2].end if len(kept) > 1 else 0) >= wanted:
        kept.pop()
    gone = {piece.step.name for piece in whole.placed[len(kept) :]}
    if not gone:
        return gone
    filled = {piece.step.reservation for piece in kept}
    return gone | {reservation for reservation in whole.ranges if reservation != name and reservation not in filled}


def _granularity(program: Program, create: CreateAllocation) -> int:
    """The size of more memory of this kind must be a multiple of this: of large pages, if the memory is."""
    if create.location != "device":
        return (program.measured and program.measured.host_granularity) or PAGE
    if program.measured is None:
        return FALLBACK_GRANULARITY
    device = program.measured.devices[create.device]
    steps_of = (device.granularity_recommended, device.granularity_minimum)
    return next((step for step in steps_of if step and create.size % step == 0), FALLBACK_GRANULARITY)


def without_added(program: Program, names: Sequence[str]) -> list[str]:
    """Reservations without the addresses that were added behind another one of them."""
    return [name for name in names if _follows(program.makers[name]) not in names]


def _follows(step: steps.Step) -> str:
    """The reservation behind which a range was added; empty for a range of its own."""
    return step.follows if isinstance(step, ReserveBeside) else ""


def _wholes(program: Program, lives: Mapping[str, LiveRange]) -> dict[str, _Whole]:
    """The reservations with all that is mapped in each, found in one look at all steps."""
    wholes = {name: _Whole({}, []) for name in lives}
    of: dict[str, str] = {}
    ends = dict.fromkeys(lives, 0)
    for step in program.reservations.values():
        name = step.name if step.name in lives else _follows(step)
        if name in lives:
            of[step.name] = name
            wholes[name].ranges[step.name] = ends[name]
            ends[name] += lives[name].capacity(step.name)
    for mapping in program.mappings():
        if name := of.get(mapping.reservation, ""):
            whole = wholes[name]
            whole.placed.append(_Placed(mapping, whole.ranges[mapping.reservation] + mapping.offset))
    for whole in wholes.values():
        whole.placed.sort(key=lambda placed: placed.at)
    return wholes


def _memory(
    program: Program,
    name: str,
    last: Map,
    create: CreateAllocation,
    pieces: Iterable[tuple[str, int, int]],
    taken: set[str],
) -> Iterable[steps.Step]:
    """A new allocation and mapping, with rights, for each of `pieces`: (reservation, offset, bytes)."""
    access = program.rights.get(last.name)
    for reservation, offset, size in pieces:
        memory, mapping = _free(f"{name}#{{}}", taken), _free(f"{name}[{{}}]", taken)
        taken |= {memory, mapping}
        yield replace(create, name=memory, size=size, asked=size)
        place = replace(last, name=mapping, reservation=reservation, allocation=memory, offset=offset)
        yield replace(place, size=size, asked=size)
        if access is not None:
            yield replace(access, name=mapping)


def _free(pattern: str, taken: set[str]) -> str:
    number = 0
    while pattern.format(number) in taken:
        number += 1
    return pattern.format(number)
