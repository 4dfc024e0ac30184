"""Error messages for views of a layout's memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hipplan import _core
from hipplan.errors import Diagnostic
from hipplan.program.contents import STAGING


def in_use(holders: list[_core.Leased], hint: str) -> Diagnostic:
    """HP409, with the names of the objects in use."""
    names = [holder.name for holder in holders]
    if any(name.startswith(STAGING) for name in names):  # the leases are a move's, not a view's
        return being_copied(name for name in names if not name.startswith(STAGING))
    counted = Counter(names)
    who = ", ".join(f"'{name}' ({count})" for name, count in counted.most_common(5))
    more = f" and {len(counted) - 5} more" if len(counted) > 5 else ""
    return Diagnostic(
        "HP409",
        f"the layout is in use: {len(holders)} view{' of it exists' if len(holders) == 1 else 's of it exist'}",
        why=f"of {who}{more}",
        hint=hint,
    )


def being_copied(names: Iterable[str]) -> Diagnostic:
    """HP409: the layout is in use because a move of bytes has these names."""
    moved = ", ".join(sorted({f"'{name}'" for name in names})[:5])
    return Diagnostic(
        "HP409",
        f"the layout is in use: bytes of {moved or 'it'} are being copied",
        hint="wait until fill, load, copy or save returns",
    )
