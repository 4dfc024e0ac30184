"""A wall clock that jumps by days at each look: what waits, and what came first, is not for it to say."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator

DAY_S = 86400.0


@contextlib.contextmanager
def jumping_clock() -> Iterator[None]:
    """While entered, in this process and in those that it forks: forward twice, then further back."""
    real, days = time.time, itertools.accumulate(itertools.cycle((1, 1, -5)))
    time.time = lambda: real() + DAY_S * next(days)
    try:
        yield
    finally:
        time.time = real
