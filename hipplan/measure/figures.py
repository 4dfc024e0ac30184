"""One measured number, and how its samples are taken."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

WARMUPS = 2
GBS, US = "GB/s", "us"
Progress = Callable[[str], None]
"""Called with what is measured next. Its exception ends the measurement."""


@dataclass(frozen=True, slots=True)
class Figure:
    """The median of some samples, and the same of ordinary buffers."""

    what: str
    """copy, latency, prefetch, first_touch, map or unmap."""
    name: str
    """The objects: "a > b" for a copy from a to b."""
    unit: str
    """GB/s: 10^9 bytes a second, where each byte that is moved counts once. us: microseconds."""
    value: float
    lowest: float
    highest: float
    plain: float | None = None
    """The median of hipMalloc's, hipHostMalloc's memory on the same devices; None if it could not be had."""
    bytes: int = 0
    """Bytes of one sample."""
    ends: tuple[int, int] | None = None
    """The ordinals of target and source, -1 for the host: where an ordinary copy beside it runs."""

    @property
    def key(self) -> str:
        """Its name among metrics."""
        return f"{self.what} {self.name}".rstrip()


def seconds_of(call: Callable[[], object], prepare: Callable[[], object] = lambda: None) -> float:
    """The seconds of one call. prepare: what comes before it and does not count."""
    prepare()
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def samples(calls: Sequence[Callable[[], float]], repeats: int) -> list[list[float]]:
    """The seconds of each sample of each call. The calls take turns, in both orders, after some that do not count."""
    taken: list[list[float]] = [[] for _ in calls]
    for number in range(repeats + WARMUPS):
        order = range(len(calls)) if number % 2 else reversed(range(len(calls)))
        for index in order:
            seconds = calls[index]()
            if number >= WARMUPS:
                taken[index].append(max(seconds, 1e-9))
    return taken


def figure(
    what: str, name: str, unit: str, size: int, taken: Sequence[Sequence[float]], ends: tuple[int, int] | None = None
) -> Figure:
    """taken: seconds; the second list is that of ordinary buffers."""
    values, *plain = [[size / s / 1e9 if unit == GBS else s * 1e6 for s in seconds] for seconds in taken if seconds]
    return Figure(
        what, name, unit, statistics.median(values), min(values), max(values),
        statistics.median(plain[0]) if plain else None, size, ends,
    )  # fmt: skip
