"""Facts about all steps of a program, which growing and shrinking carry on: their cost does not depend on the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hipplan.machines.machine import Machine
from hipplan.program import steps
from hipplan.program.taking import ordinal_taken


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is asked about a whole program at each change."""

    in_pieces: bool
    """Whether memory is in several pieces, or rights are set for a whole range at once (pieces.py)."""
    even_sizes: Mapping[str, int]
    """Reservation -> the size of each of its mappings; 0 if they differ."""
    taken: Mapping[int, int]
    """Ordinal -> bytes that the steps take from that device, CPU_ORDINAL for the host (taking.py)."""

    def with_more(self, more: Sequence[steps.Step], machine: Machine | None) -> Facts:
        """The facts of a program with more steps at its end, none of which alters an object that was there."""
        sizes = even_sizes_of(more, self.even_sizes)
        return Facts(
            in_pieces=self.in_pieces or are_in_pieces(more),
            even_sizes={**self.even_sizes, **sizes} if sizes else self.even_sizes,
            taken=_sums(self.taken, taken_by(more, machine), 1),
        )

    def without(self, gone: Sequence[steps.Step], machine: Machine | None) -> Facts:
        """The facts of a program without its last steps. A range of several sizes still counts as one."""
        return Facts(
            in_pieces=self.in_pieces,
            even_sizes=self.even_sizes,
            taken=_sums(self.taken, taken_by(gone, machine), -1),
        )


def facts_of(program_steps: Sequence[steps.Step], machine: Machine | None) -> Facts:
    """The facts of all steps of a program."""
    return Facts(
        in_pieces=are_in_pieces(program_steps),
        even_sizes=even_sizes_of(program_steps, {}),
        taken=taken_by(program_steps, machine),
    )


def are_in_pieces(some_steps: Sequence[steps.Step]) -> bool:
    """See Facts.in_pieces."""
    return any(
        step.together if isinstance(step, steps.SetAccess) else steps.PIECE_SIGN in step.name for step in some_steps
    )


def even_sizes_of(some_steps: Sequence[steps.Step], known: Mapping[str, int]) -> dict[str, int]:
    """Range -> the size of each of its mappings, for ranges that are not known with that size."""
    sizes: dict[str, int] = {}
    for step in some_steps:
        if isinstance(step, steps.Map):
            size = sizes.get(step.reservation, known.get(step.reservation, step.size))
            if size != step.size:
                sizes[step.reservation] = 0
            elif step.reservation not in known:
                sizes[step.reservation] = size
    return sizes


def taken_by(some_steps: Sequence[steps.Step], machine: Machine | None) -> dict[int, int]:
    """See Facts.taken."""
    taken: dict[int, int] = {}
    for step in some_steps:
        ordinal = ordinal_taken(step, machine)
        if ordinal is not None:
            size: Any = getattr(step, "size", 0)
            taken[ordinal] = taken.get(ordinal, 0) + size
    return taken


def _sums(before: Mapping[int, int], other: Mapping[int, int], sign: int) -> dict[int, int]:
    return {ordinal: before.get(ordinal, 0) + sign * other.get(ordinal, 0) for ordinal in {**before, **other}}
