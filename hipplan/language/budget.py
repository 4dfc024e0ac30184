"""Limits on how much one document may expand to, checked before it is expanded.

A few characters of a plan can make thousands of objects (`each`, `count`, `gpu.*`, `peers: all`, chunks, aliases),
and such factors multiply. So all code that repeats or spreads asks the document's one Budget first; past a limit
there is one error, HP023, that names the object and its count. Objects that are written one by one cost values, and
steps if a driver call makes them: a checkpoint may have 100,000 tensors, all named in its plan. The compiler takes what
a program needs in addition from a copy, because one plan is compiled for many machines.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hipplan.errors import Diagnostic, PlanError, Span
from hipplan.plain import shown_number

_EQUAL_THINGS = "use count: for equal objects, or fewer of them"
_COUNTED = {
    "values": (750_000, _EQUAL_THINGS),
    "repeated values": (100_000, _EQUAL_THINGS),
    "repetitions": (15_000, _EQUAL_THINGS),
    "characters": (8_000_000, "use shorter texts, or fewer of them"),
    "characters of expressions": (1_000_000, "calculate it once, under vars:"),
    "objects": (25_000, "use fewer, larger ones"),
    "links": (100_000, "name the devices that need it"),
    "characters of access": (12_000_000, "name the devices that need it, or use fewer tensors"),
    "steps": (40_000, "use fewer, larger pieces"),
    "pieces": (20_000, "use larger chunks"),
    "errors": (100_000, ""),
}
LIMITS = {kind: most for kind, (most, _) in _COUNTED.items()}
"""What is counted -> the maximum for one document."""


class Budget:
    """How much is left of the limits."""

    def __init__(self) -> None:
        self.left = dict(LIMITS)

    def copy(self) -> Budget:
        """A copy with the same amounts, for one of several uses of the same plan."""
        budget = Budget()
        budget.left = dict(self.left)
        return budget

    def take(self, kind: str, count: int, who: str, span: Callable[[], Span | None] = lambda: None) -> None:
        """Count objects that `who` is about to make. Raises PlanError (HP023) if there are too many."""
        left = self.left[kind]
        if count <= left:
            self.left[kind] = left - count
            return
        limit, hint = _COUNTED[kind]
        before = f", {limit - left:,} of them used" if left < limit else ""
        why = f"the limit of one document is {limit:,} {kind}{before}"
        summary = f"{who} asks for {shown_number(count)} {kind}"
        raise PlanError(Diagnostic("HP023", summary, span(), why=why, hint=hint))


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Disable garbage collection while loading and compiling: the objects made there stay alive, and searching them
    for garbage again and again would triple the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
