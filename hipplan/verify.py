"""After apply: read back what HIP can tell, and compare it with what the steps asked for.

One function per kind of step. A check says what was compared; success is observed, not assumed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import singledispatch
from itertools import pairwise

from hipplan import steps
from hipplan.live import Live
from hipplan.program import Program

PAGE = 4096
"""Advice and prefetch are rounded outward to this."""

_MEMORY_KINDS = {0: "unregistered", 1: "host", 2: "device", 3: "managed"}
_RIGHT_NAMES = {flags: right for right, flags in steps.RIGHTS.items()}


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison of desired and current."""

    name: str
    what: str
    desired: str
    current: str

    @property
    def ok(self) -> bool:
        return self.desired == self.current


def verify(program: Program, live: Live) -> tuple[Check, ...]:
    """Every check of every step, in order. Raises HipError if a query fails."""
    return tuple(check for step in program.steps for check in read_back(step, program, live)) + tuple(
        _managed_checks(program, live)
    )


@singledispatch
def read_back(step: steps.Step, program: Program, live: Live) -> Iterator[Check]:
    """What HIP can tell about one step. Of a stream, a peer link or a wait it can tell nothing."""
    return iter(())


@read_back.register
def _(step: steps.CreateAllocation, program: Program, live: Live) -> Iterator[Check]:
    have = live.runtime.properties_of(live.handle(step.name))
    yield Check(step.name, "location", _location(step.location_type, step.device),
                _location(have.location_type, have.device))  # fmt: skip
    yield Check(step.name, "type", f"{step.memory_type:#x}", f"{have.type:#x}")
    yield Check(step.name, "handle type", str(step.handle_type), str(have.handle_type))


@read_back.register
def _(step: steps.Reserve, program: Program, live: Live) -> Iterator[Check]:
    if step.alignment:
        rest = live.address(step.name) % step.alignment
        yield Check(step.name, f"address modulo {step.alignment}", "0", str(rest))


@read_back.register
def _(step: steps.Map, program: Program, live: Live) -> Iterator[Check]:
    address = live.address(step.reservation) + step.offset
    base, size = live.runtime.address_range_of(address)
    yield Check(step.name, "mapped piece", f"{step.size} at {address:#x}", f"{size} at {base:#x}")


@read_back.register
def _(step: steps.SetAccess, program: Program, live: Live) -> Iterator[Check]:
    """Of every device of the plan: who was not named must have no access. The host cannot be asked."""
    desired = dict(step.rights)
    address = live.address(step.name)
    for name, ordinal in program.devices.items():
        current = live.runtime.access(ordinal, address)
        yield Check(step.name, f"access of {name}", desired.get(ordinal, "none"),
                    _RIGHT_NAMES.get(current, str(current)))  # fmt: skip


@read_back.register
def _(step: steps.CreateDeviceBuffer, program: Program, live: Live) -> Iterator[Check]:
    yield from _pointer(step.name, live, "device")
    have = live.runtime.pointer_attributes(live.address(step.name))
    yield Check(step.name, "device", str(step.device), str(have.device))
    base, size = live.runtime.address_range_of(live.address(step.name))
    desired = f"{step.size} at {live.address(step.name):#x}"
    # A runtime may round the size up; then what is there contains what was asked for.
    yield Check(step.name, "range", desired, desired if size >= step.size and base == live.address(step.name)
                else f"{size} at {base:#x}")  # fmt: skip


@read_back.register
def _(step: steps.CreatePinnedBuffer, program: Program, live: Live) -> Iterator[Check]:
    yield from _pointer(step.name, live, "host")


@read_back.register
def _(step: steps.RegisterBuffer, program: Program, live: Live) -> Iterator[Check]:
    yield from _pointer(step.name, live, "host")


@read_back.register
def _(step: steps.CreateManagedBuffer, program: Program, live: Live) -> Iterator[Check]:
    yield from _pointer(step.name, live, "managed")


def _pointer(name: str, live: Live, kind: str) -> Iterator[Check]:
    have = live.runtime.pointer_attributes(live.address(name))
    yield Check(name, "kind", kind, _MEMORY_KINDS.get(have.type, str(have.type)))


def _location(kind: int, ordinal: int) -> str:
    return f"device {ordinal}" if kind == 1 else "host"


@dataclass(slots=True)
class _Piece:
    """What a piece of a managed buffer should look like after all advice and prefetches."""

    start: int
    end: int
    read_mostly: int = 0
    preferred: int = -2
    prefetched: int = -2
    accessed_by: frozenset[int] = frozenset()

    def follow(self, step: steps.Advise | steps.Prefetch) -> None:
        if isinstance(step, steps.Prefetch):
            self.prefetched = step.device
            return
        match step.advice:
            case "read_mostly" | "unset_read_mostly":
                self.read_mostly = int(step.advice == "read_mostly")
            case "preferred_location":
                self.preferred = step.device
            case "unset_preferred_location":
                self.preferred = -2
            case "accessed_by":
                self.accessed_by |= {step.device}
            case "unset_accessed_by":
                self.accessed_by -= {step.device}


def _managed_checks(program: Program, live: Live) -> Iterator[Check]:
    """Range attributes of managed buffers, piece by piece between the ends of all advised ranges."""
    if not program.ranges_told:
        return
    advised: dict[str, list[steps.Advise | steps.Prefetch]] = {}
    for step in program.steps:
        if isinstance(step, (steps.Advise, steps.Prefetch)):
            advised.setdefault(step.name, []).append(step)
    sizes = {s.name: s.size for s in program.steps if isinstance(s, steps.CreateManagedBuffer)}
    for name, todo in advised.items():
        for piece in _pieces(todo, sizes[name]):
            yield from _piece_checks(name, piece, live)


def _pieces(todo: list[steps.Advise | steps.Prefetch], whole: int) -> list[_Piece]:
    ranges = [(s.offset // PAGE * PAGE, min(whole, -(-(s.offset + s.size) // PAGE) * PAGE)) for s in todo]
    ends = sorted({0, whole, *(edge for one in ranges for edge in one)})
    pieces = [_Piece(start, end) for start, end in pairwise(ends)]
    for step, (start, end) in zip(todo, ranges, strict=True):
        for piece in pieces:
            if start <= piece.start and piece.end <= end:
                piece.follow(step)
    return pieces


def _piece_checks(name: str, piece: _Piece, live: Live) -> Iterator[Check]:
    address, size = live.address(name) + piece.start, piece.end - piece.start
    where = f"[{piece.start}, {piece.end})"
    attribute = live.runtime.range_attribute
    yield Check(name, f"read mostly {where}", str(piece.read_mostly), str(attribute(address, size, 1)))
    yield Check(name, f"preferred location {where}", str(piece.preferred), str(attribute(address, size, 2)))
    yield Check(name, f"last prefetch {where}", str(piece.prefetched), str(attribute(address, size, 4)))
    # The CPU is not told of, even where it was advised.
    desired = sorted(piece.accessed_by - {steps.HOST})
    current = sorted(set(live.runtime.accessed_by(address, size)) - {steps.HOST})
    yield Check(name, f"accessed by {where}", str(desired), str(current))


def mismatches(checks: tuple[Check, ...]) -> list[Check]:
    return [check for check in checks if not check.ok]
