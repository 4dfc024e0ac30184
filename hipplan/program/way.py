"""The change from one program to another: what stays, and the steps for the rest. Plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from functools import cached_property
from typing import TypeAlias

from hipplan.program import steps
from hipplan.program.alterations import ChangeAccess
from hipplan.program.content_steps import ContentStep
from hipplan.program.program import Program

Key: TypeAlias = tuple[object, ...]


def key_of(step: steps.Step) -> Key | None:
    """What makes a thing the same in two programs; None for a step that makes none."""
    if isinstance(step, steps.Map):
        return "mapping", step.reservation, step.offset
    if isinstance(step, steps.EnablePeer):
        return "peer", step.device, step.peer
    return (step.makes, step.name) if step.makes else None


class KeysOf(Set[Key]):
    """The keys of a program, made on demand."""

    def __init__(self, program: Program) -> None:
        self._program = program

    @cached_property
    def _all(self) -> frozenset[Key]:
        return frozenset(key for step in self._program.steps if (key := key_of(step)) is not None)

    def __contains__(self, key: object) -> bool:
        return key in self._all

    def __iter__(self) -> Iterator[Key]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)


@steps.step_data
class Way:
    """From `old` to `new`, in the order it is gone."""

    old: Program
    new: Program
    """As it will be: of a reservation that stays, the size is the old one's."""
    additions: tuple[steps.Step, ...]
    """Steps of `new` that only make objects: an undo leaves everything unchanged."""
    changes: tuple[steps.Step, ...]
    """Steps that change what is there, and what needs them to have been."""
    gone: tuple[steps.Step, ...]
    """Steps of `old` that made what does not stay."""
    released: tuple[steps.Step, ...]
    """Those of them that are released at the end: all but mappings that were taken out."""
    renamed: Mapping[str, str]
    """Name in `new` -> name in `old`, where what stays is called otherwise."""
    kept: Set[Key]
    changed: frozenset[str]
    """Names in `new` of what stays, but with other access or advice."""
    carries: tuple[steps.Step, ...] = ()
    """Steps between additions and changes that bring bytes over; what they make goes at the end."""
    contents: tuple[ContentStep, ...] = ()
    """Steps that fill what is new, when everything else is there and read back: nothing takes bytes back."""
    opened: Program | None = None
    """`new` while contents come in, where that is not the same: what they write is not sealed yet."""
    seals: tuple[ChangeAccess, ...] = ()
    """Steps that seal it, last of all."""

    saves: bool = False
    """Contents copy what goes: they come before the changes, and when the devices are idle, which may be writing it."""

    @property
    def filling(self) -> Program:
        """What is there while contents come in."""
        return self.opened or self.new

    @property
    def all_steps(self) -> tuple[steps.Step, ...]:
        """In order."""
        if self.saves:
            return (*self.additions, *self.contents, *self.carries, *self.changes, *self.seals)
        return (*self.additions, *self.carries, *self.changes, *self.contents, *self.seals)

    @property
    def devices_of_both(self) -> dict[str, int]:
        """Devices to wait for: those of the old program that the new one does not name come along."""
        out = dict(self.new.devices)
        for name, ordinal in self.old.devices.items():
            if ordinal not in out.values():
                out[name if name not in out else f"{name} (before)"] = ordinal
        return out

    @property
    def takes_out(self) -> bool:
        """Whether something is unmapped before the end."""
        return len(self.gone) > len(self.released)

    @property
    def empty(self) -> bool:
        """Nothing for the driver to do."""
        return not (self.additions or self.changes or self.contents or self.released)

    def kept_slots(self) -> tuple[int, list[tuple[int, int]]]:
        """How many objects stay in their slots from the first on; (new slot, old slot) of what else stays."""
        if isinstance(self.kept, KeysOf):
            return len(self.old.slots), []
        old, new = self.old.slots, self.new.slots
        stays = (step.name for step in self.new.steps if key_of(step) in self.kept) if self.kept else ()
        return 0, [(new[name], old[self.renamed.get(name, name)]) for name in stays]

    def to_read_back(self, program: Program) -> tuple[steps.Step, ...]:
        """Steps that say how everything touched should be now. program: `filling`, and at the end `new`."""
        made = {id(step) for step in (*self.additions, *self.changes)}
        touched = self.changed.union(step.name for step in self.seals)
        found = [s for s in program.steps if id(s) in made or s.name in touched]
        silent = [s.name for s in self.changes if isinstance(s, ChangeAccess)]
        heard = {step.name for step in found if isinstance(step, steps.SetAccess)}
        return (*found, *(steps.SetAccess(name, None, rights=()) for name in silent if name not in heard))
