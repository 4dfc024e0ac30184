"""Consent: a change that would lose something is refused, unless the caller names what it may lose. Pure: no driver."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

from hipplan.errors import ApplyError, Diagnostic
from hipplan.program import listing
from hipplan.program.difference import Difference
from hipplan.program.losses import losses, total_text
from hipplan.program.patterns import matches
from hipplan.program.resources import Resource

_SHOWN_MAX = 20
"""At most so many objects are listed in a message."""
_PATTERNS_MAX = 40
"""If more patterns would be needed to name what is lost, the message suggests "*"."""


def require(change: Difference, lose: Sequence[str], is_reviewed: bool = False) -> None:
    """Raises ApplyError (HP423), with nothing changed: the change loses something that no pattern names.

    lose: names of objects, in which * stands for any text; the name of a region or reservation also means what is in
    it. is_reviewed: they come from the file of a reviewed change.
    """
    refused = [loss for loss in losses(change).values() if not is_allowed(loss, lose)]
    if refused:
        keys = {(loss.kind, loss.name) for loss in refused}
        lines = (line for line in listing.lines(change) if line.loss and (line.loss.kind, line.loss.name) in keys)
        patterns = [*lose, *patterns_for(refused, change.old.resources)]
        names = ", ".join(f'"{pattern}"' for pattern in patterns)
        options = " ".join(f"--lose {shlex.quote(pattern)}" for pattern in patterns)
        consent = f"preview the change again with {options}" if is_reviewed else f"add lose=[{names}]"
        hint = f"nothing was changed; if this is meant, {consent}"
        raise refusal(f"the update would lose {total_text(refused)}", map(str, lines), hint)


class Named(Protocol):
    """What an object loses."""

    @property
    def name(self) -> str: ...

    @property
    def inside(self) -> str:
        """The region or reservation that it is in; empty if it is in none."""


def refusal(summary: str, lines: Iterable[str], hint: str) -> ApplyError:
    """HP423. lines: one for each object."""
    shown = [*lines]
    notes = shown[:_SHOWN_MAX] + [f"and {len(shown) - _SHOWN_MAX} more"] * (len(shown) > _SHOWN_MAX)
    return ApplyError(Diagnostic("HP423", summary, hint=hint, notes=tuple(notes)))


def is_allowed(loss: Named, patterns: Iterable[str]) -> bool:
    """Whether one of the patterns names an object, or the region or reservation that it is in."""
    return any(matches(pattern, name) for pattern in patterns for name in (loss.name, loss.inside) if name)


def patterns_for(refused: Sequence[Named], resources: Iterable[Resource]) -> list[str]:
    """The patterns that name these objects and no others. resources: of the old program."""
    names = {loss.name for loss in refused}
    needed = dict.fromkeys(loss.name for loss in refused if loss.inside not in names)
    others = [
        resource.name
        for resource in resources
        if "#" not in resource.name and names.isdisjoint((resource.name, resource.inside))
    ]
    families = Counter(family for name in needed if (family := _family(name)))
    whole = {
        family
        for family, count in families.items()
        if count > 1 and not any(other.startswith(f"{family}.") for other in others)
    }
    patterns = dict.fromkeys(f"{_family(name)}.*" if _family(name) in whole else name for name in needed)
    return [*patterns] if len(patterns) <= _PATTERNS_MAX else ["*"]


def _family(name: str) -> str:
    """The name of the repeated object that this is a member of; empty if it is none: part of part.0."""
    family, _, number = name.rpartition(".")
    return family if number.isdigit() else ""
