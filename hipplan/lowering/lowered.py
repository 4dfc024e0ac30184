"""From what is planned to what the driver is asked for: the one place that fits a program or a change to a HIP release.

Where the release needs nothing, what is lowered is the planned object itself. On HIP 7.0 to 7.2 memory may be in pieces
(pieces.py), rights may be set for a whole range at once (sure_access.py), and peer links are made between calls that
keep mappings closed (openings.py). Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

from hipplan.errors import MachineError
from hipplan.kinds.allocation.live import CreateAllocation
from hipplan.kinds.mapping.live import ChangeAccess, Map, SetAccess
from hipplan.kinds.peer.live import EnablePeer
from hipplan.lowering.openings import with_rights_kept
from hipplan.lowering.pieces import fitted, is_uneven, named, no_way, whole_name
from hipplan.lowering.sure_access import concerned, unsure
from hipplan.program import sealing
from hipplan.program.carries import carries_one_by_one
from hipplan.program.change import Change
from hipplan.program.difference import Difference, difference, from_nothing, sealed_after
from hipplan.program.facts import range_sizes_of
from hipplan.program.memo import Memo
from hipplan.program.program import Program
from hipplan.program.runs import alike
from hipplan.program.steps import Step


@dataclass(frozen=True, slots=True)
class Lowering:
    """A change, and what the driver is asked for to make it."""

    planned: Difference
    """What people read, and what they agree to."""
    lowered: Difference
    """What becomes rows. Its programs may be in pieces, and have no regions."""

    @classmethod
    def as_planned(cls, change: Difference) -> Lowering:
        """A change that each release takes as it is."""
        return cls(change, change)


_in_pieces_of: Memo[Program, Program] = Memo()


def lowered(program: Program) -> Program:
    """The program that an apply of this one makes, in pieces where the release needs them; the same where it needs
    none. It is kept with the program. Raises MachineError (HP309)."""
    if not (concerned(program.measured) and is_uneven(program)):
        return program
    return _in_pieces_of.value(program, lambda: fitted(program))


def require_attachable(program: Program) -> None:
    """Raises MachineError (HP309): processes that attach to a held program could not get its rights."""
    fitted(program, is_held=True)


def lower(change: Difference, before: Program) -> Lowering:
    """A change, fitted to the release. before: the lowered form of the program that it begins with, whose memory stays
    in the pieces that it has.

    Raises MachineError (HP309): this release cannot make the change, or could not undo it safely; ApplyError (HP424):
    it cannot keep a mapping closed that a link opens.
    """
    if not concerned(change.new.measured) or _stays_even(change, before):
        return Lowering.as_planned(change)
    fitted_from, made = _known.value(change, lambda: (before, _fitted(change, before)))
    if fitted_from is not before:
        made = _fitted(change, before)
    return Lowering(change, change if made is None else made)


_known: Memo[Difference, tuple[Program, Difference | None]] = Memo()
"""A change -> the lowered program that it begins with, and what it is lowered to, None if that is the change itself: a
verb that asks what the driver needs, and then makes the change, lowers it once."""


def _fitted(change: Difference, before: Program) -> Difference | None:
    """The change for a release that may need it in pieces; None if it is the planned one. Raises as lower()."""
    if not before.steps:
        new = lowered(change.new)
        return None if new is change.new else _from_nothing(change, new)
    is_even = before is change.old and _has_same_sizes(change)
    new = change.new if is_even else fitted(change.new, before, as_ordered=_sleeps_or_wakes(change))
    in_one_piece = before is change.old and new is change.new
    made = with_rights_kept(change if in_one_piece else _in_pieces(change, new, before))
    if not is_even:
        require_sure(made)
    for place in () if in_one_piece else _recut(made, change):
        raise MachineError(no_way(place, made))
    return None if made is change else made


def require_way_back(asleep: Lowering, names: tuple[str, ...]) -> None:
    """Raises MachineError (HP309): these fall asleep in a change, and could not be woken again. If the mappings of each
    range that the change touches have one size, the release takes the rights of the wake, too, which is not planned."""
    if concerned(asleep.planned.new.measured) and not _stays_even(asleep.planned, asleep.lowered.old):
        from hipplan.program.sleeping import wakes_up  # a preview need not wait for it

        lower(wakes_up(asleep.planned.new, names), asleep.lowered.new)


def require_sure(change: Change) -> None:
    """Raises MachineError (HP309): this release may refuse a step or its undo."""
    for place in unsure(change):
        raise MachineError(no_way(place, change))


def _stays_even(change: Difference, before: Program) -> bool:
    """Whether the release takes all rights of a change: nothing is in pieces, the mappings of each range that it
    touches had one size and have the same one then, and it makes no link."""
    if before is not change.old or not before.steps:
        return False
    asleep = [step for step, _ in alike(change.old.sleeping)]
    sizes, makers = range_sizes_of(asleep, change.old.range_sizes), change.new.makers
    parts = filter(len, (change.additions, change.changes, change.gone, change.seals))
    for step, _ in chain.from_iterable(map(alike, parts)):
        mapping = makers[step.name] if isinstance(step, ChangeAccess) else step
        if isinstance(mapping, Map) and sizes.get(mapping.reservation) != mapping.size:
            return False
        if isinstance(step, EnablePeer):
            return False
    return True


def _sleeps_or_wakes(change: Difference) -> bool:
    """Whether the mappings that a change adds or drops only sleep meanwhile."""
    return change.old.sleeping != change.new.sleeping


def _has_same_sizes(change: Difference) -> bool:
    """Whether the mappings of each range have one size, which is the old one's where there was a range."""
    sizes = change.old.range_sizes
    return not change.new.sleeping and all(
        size and sizes.get(name, size) == size for name, size in change.new.range_sizes.items()
    )


def _from_nothing(change: Difference, new: Program) -> Difference:
    """The change of an apply. new: its program, lowered."""
    return from_nothing(new, _opened(change, new))


def _in_pieces(change: Difference, new: Program, before: Program) -> Difference:
    """The same change between lowered programs."""
    opened = _opened(change, new)
    again = _recreated(change)
    made = difference(before, opened, named(before, again) | named(new, again), unmaps=change.unmaps)
    made = replace(
        made, contents=change.contents, saves=change.saves, retain=change.retain, keeps_views=change.keeps_views
    )
    if change.carried:
        made = replace(made, carries=carries_one_by_one(made, named(before, change.carried)))
    return made if opened is new else sealed_after(made, _with_rights_of(made.new, change.new))


def _opened(change: Difference, new: Program) -> Program:
    """The lowered program during the contents. What they write is unsealed; of ranges whose mappings get their rights
    in one call all of it is. new: the lowered program after the change."""
    opened = sealing.opened(change.new, change.contents, _uneven_ranges(new))
    return new if opened is change.new else _with_rights_of(new, opened)


def _uneven_ranges(program: Program) -> set[str]:
    """The reservations with mappings of several sizes."""
    sizes: dict[str, set[int]] = {}
    for step in (*program.steps, *program.sleeping):
        if isinstance(step, Map):
            sizes.setdefault(step.reservation, set()).add(step.size)
    return {name for name, various in sizes.items() if len(various) > 1}


def _with_rights_of(program: Program, planned: Program) -> Program:
    """A lowered program with the rights of a planned one, which has the same mappings."""

    def given(step: Step) -> Step:
        if not isinstance(step, SetAccess):
            return step
        rights = planned.rights[whole_name(step.name)].rights
        return step if step.rights == rights else replace(step, rights=rights)

    return replace(program, steps=tuple(map(given, program.steps)))


def _recreated(change: Difference) -> set[str]:
    """The memory that both programs have, but that is made again, with all of its pieces."""
    there = {step.name for step in change.old.steps if _is_memory(step)}
    now = (step for step in change.new.steps if _is_memory(step) and step.name in there)
    return {step.name for step in now if step.key not in change.kept}


def _is_memory(step: Step) -> bool:
    return step.makes not in ("", "reservation", "mapping", "peer")


def _recut(made: Difference, planned: Difference) -> Iterator[Step]:
    """Steps for memory that should stay, but would be cut in other pieces and lose its bytes."""
    for step in made.old.steps:
        if isinstance(step, CreateAllocation):
            stays = ("allocation", whole_name(step.name)) in planned.kept
            if stays and ("allocation", step.name) not in made.kept:
                yield step
