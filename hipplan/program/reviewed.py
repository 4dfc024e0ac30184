"""A change that somebody has reviewed, as a file: `hipplan preview NEW --from OLD -o change.json`.

It has what the change starts from, the plan that it leads to with the values of its variables, each line that preview
showed, and the consent to losses. A layout is changed only if all of that is still so. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hipplan.errors import ApplyError, Diagnostic, PlanError
from hipplan.files import strict_json
from hipplan.language.loader import LoadedPlan, load
from hipplan.machines.machine import Machine
from hipplan.program import listing, written
from hipplan.program.difference import Difference, difference
from hipplan.program.program import Program

_KEY = "hipplan_change"
VERSION = 1
_SHOWN_MAX = 20
"""At most so many lines are listed in a message."""
_SUMMARY = "this is not the change that was reviewed"


@dataclass(frozen=True, slots=True)
class Reviewed:
    """A reviewed change."""

    plan: str
    """The path of the new plan, from the folder of the file."""
    variables: dict[str, Any]
    digest: str
    """The digest of the new plan with these variables."""
    lose: tuple[str, ...]
    """What it may lose, as lose= of layout.update."""
    lines: tuple[str, ...]
    """What preview showed, a line for each object."""
    old: Program
    """What it starts from."""

    def load(self, folder: Path) -> LoadedPlan:
        """The new plan. Raises PlanError, ApplyError (HP425): it was changed since the review."""
        plan = load(folder / self.plan, self.variables)
        if plan.digest != self.digest:
            raise _refused(f"{self.plan} has changed since", ())
        return plan

    def require_start(self, now: Program) -> None:
        """Raises ApplyError (HP425): the layout is no longer what the change starts from."""
        moved = listing.lines(difference(self.old, now))
        if moved:
            raise _refused("the layout is no longer what it starts from", [str(line) for line in moved])

    def require_end(self, change: Difference) -> None:
        """Raises ApplyError (HP425): here the plan leads to another change."""
        now = Counter(lines_of(change))
        then = Counter(self.lines)
        differ = [f"reviewed, not here: {line}" for line in (then - now).elements()]
        differ += [f"here, not reviewed: {line}" for line in (now - then).elements()]
        if differ:
            raise _refused("on this machine the plan leads to another change", differ)

    def text(self) -> str:
        """The file: the same for the same change."""
        data = {"plan": self.plan, "variables": self.variables, "digest": self.digest, "lose": [*self.lose]}
        old = strict_json.loads(written.write(self.old))
        return strict_json.dumps({_KEY: VERSION, **data, "changes": [*self.lines], "from": old}, indent=2) + "\n"


def reviewed(change: Difference, plan: str, loaded: LoadedPlan, lose: Sequence[str]) -> Reviewed:
    """plan: the path of the new plan, from the folder of the file."""
    old = replace(change.old, measured=_at_rest(change.old.measured))
    return Reviewed(plan, dict(loaded.plan.vars), loaded.digest, tuple(lose), tuple(lines_of(change)), old)


def _at_rest(machine: Machine | None) -> Machine | None:
    """The machine without what changes from one moment to the next: equal changes give equal files."""
    return None if machine is None else machine.with_in_use(dict.fromkeys(range(len(machine.devices)), 0))


def lines_of(change: Difference) -> list[str]:
    return [str(line) for line in listing.lines(change)]


def is_reviewed(text: bytes) -> bool:
    """Whether a file is such a change, from its beginning."""
    return text[:200].lstrip().removeprefix(b"{").lstrip().startswith(f'"{_KEY}"'.encode())


def read(path: Path) -> Reviewed:
    """Raises PlanError: HP001 it cannot be read; HP028 it is no change, or of another version."""
    try:
        data = strict_json.loads(path.read_bytes())
        if data.pop(_KEY) != VERSION:
            raise ValueError(f"only version {VERSION} can be read")
        old = written.read(strict_json.dumps(data.pop("from")))
        lines, lose = tuple(map(_text, data.pop("changes"))), tuple(map(_text, data.pop("lose")))
        made = Reviewed(
            _text(data.pop("plan")), dict(data.pop("variables")), _text(data.pop("digest")), lose, lines, old
        )
        if data:
            raise ValueError(f"there is no key {min(data)}")
        listing.lines(difference(old, old.nothing))  # raises for objects, devices and rights that do not fit together
    except OSError as error:
        raise PlanError(Diagnostic("HP001", f"cannot read {path}: {error.strerror}")) from None
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        why = f"it lacks {error}" if isinstance(error, LookupError) else str(error)[:200]
        raise PlanError(Diagnostic("HP028", f"{path} is not a reviewed change", why=why)) from None
    return made


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a text is missing")
    return value


def _refused(why: str, lines: Sequence[str]) -> ApplyError:
    more = [f"and {len(lines) - _SHOWN_MAX} more"] if len(lines) > _SHOWN_MAX else []
    hint = "nothing was changed; preview the change again, and review that"
    notes = (*lines[:_SHOWN_MAX], *more)
    return ApplyError(Diagnostic("HP425", _SUMMARY, why=why, hint=hint, notes=notes))
