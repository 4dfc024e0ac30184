"""How much one document may become: counted before it is made.

A plan says in a few characters what is made thousands of times (`each`, `count`, `gpu.*`, `peers: all`, chunks,
aliases), and such factors multiply. So everything that repeats or spreads asks the document's one Budget first; past a
limit there is one error, HP023, that says what asked for how many. What is written out one by one costs values, and
steps where a driver call makes it: a checkpoint may have 100,000 tensors, and its plan names them all. What a program
needs on top of its plan, the compiler asks of a copy: one plan is compiled for many machines.
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
"""What is counted -> how many of it one document has at most."""


class Budget:
    """What is left of the limits."""

    def __init__(self) -> None:
        self.left = dict(LIMITS)

    def copy(self) -> Budget:
        """As much again, for one of several things that become of the same plan."""
        budget = Budget()
        budget.left = dict(self.left)
        return budget

    def take(self, kind: str, count: int, who: str, span: Callable[[], Span | None] = lambda: None) -> None:
        """`who` is about to make so many. Raises PlanError (HP023) where they are too many."""
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
    """What is made while loading and compiling stays, so looking through it for garbage again and again is
    wasted: 3 x the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
