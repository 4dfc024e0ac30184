"""Progress bars on stderr."""

from __future__ import annotations

import sys
from typing import Any

from typing_extensions import Self

STEPS_MIN = 200
BYTES_MIN = 64 * 2**20
"""Fewer bytes have no bar."""


class Bars:
    """Progress bars for steps and bytes on a terminal; drawn when there is something to show."""

    def __init__(self) -> None:
        self._bars: Any = None
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def steps(self, done: int, total: int) -> None:
        if total >= STEPS_MIN:
            self.show("applying", done, total, f"{done} of {total}")

    def bytes(self, what: str, done: int, total: int) -> None:
        if total >= BYTES_MIN:
            self.show(what, done, total, f"{done / 1e9:.1f} of {total / 1e9:.1f} GB")

    def show(self, what: str, done: int, total: int, shown: str) -> None:
        """Update the bar of this name. shown: the figures beside it."""
        if not sys.stderr.isatty():
            return
        if self._bars is None:
            self._bars = _drawn()
        if what not in self._tasks:
            self._tasks[what] = self._bars.add_task(what, shown=shown)
        self._bars.update(self._tasks[what], completed=done, total=total, shown=shown)


def _drawn() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[shown]}"))
    bars = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
    bars.start()
    return bars
