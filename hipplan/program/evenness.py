"""Whether the mappings of a range have one size, as HIP 7.0 to 7.2 want it (pieces.py). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hipplan.program import steps


@dataclass(frozen=True, kw_only=True)
class Evenness:
    """What pieces.py asks of a whole program at each change."""

    in_pieces: bool
    """Whether memory is in several pieces, or rights are set for a whole range at once."""
    sizes: Mapping[str, int]
    """Reservation -> the size of each of its mappings; 0 if they differ."""

    def with_more(self, more: Sequence[steps.Step]) -> Evenness:
        """That of a program with more steps at its end. A range keeps its size when mappings are removed."""
        sizes = _sizes_of(more, self.sizes)
        return Evenness(
            in_pieces=self.in_pieces or _are_in_pieces(more), sizes={**self.sizes, **sizes} if sizes else self.sizes
        )


def evenness_of(program_steps: Sequence[steps.Step]) -> Evenness:
    """That of all steps of a program."""
    return Evenness(in_pieces=_are_in_pieces(program_steps), sizes=_sizes_of(program_steps, {}))


def _are_in_pieces(some_steps: Sequence[steps.Step]) -> bool:
    return any(
        step.together if isinstance(step, steps.SetAccess) else steps.PIECE_SIGN in step.name for step in some_steps
    )


def _sizes_of(some_steps: Sequence[steps.Step], known: Mapping[str, int]) -> dict[str, int]:
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
