"""Each driver call of each act made to fail in turn: the error, the calls of the roll back, and what is left.

A layout whose change was rolled back completely serves for the next call too; else it is made again.
"""

from __future__ import annotations

import gc
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import groupby
from typing import Any

from hipplan.layout.layout import Layout
from tests.frozen import product
from tests.frozen.moving import is_of_threads, summed
from tests.frozen.stage import CODE, Stage

_CALL = re.compile(r'"call": "(\w+)".*"result": "(\w+)".*"injected": (\w+)')


class Failing:
    """An act whose calls fail."""

    def __init__(
        self,
        stage: Stage,
        title: str,
        begin: Callable[[], Layout | None],
        act: Callable[[Any], Any],
        anew: bool = False,
    ) -> None:
        """begin: makes the layout that the act changes; None for an act that makes one itself. anew: for each call."""
        self.stage, self.title, self.begin, self.act, self.anew = stage, title, begin, act, anew
        self._runtime = stage.sim.runtime
        self._layout: Layout | None = None
        self._begun = False

    def sweep(self, everything: bool = True) -> None:
        """everything: else of many calls alike that follow one another the first and the last."""
        self.stage.texts["failures"].append(f"=== {self.title}")
        others = self.stage.sim.alive()
        gc.collect()
        calls = self._undisturbed()
        for n, call in enumerate(calls):
            if is_of_threads(calls, n):
                continue
            alike = calls[max(0, n - 2) : n + 3] == [call] * 5
            if everything or not alike:
                self._fail(call, 1 + calls[:n].count(call))
                if not self._begun:
                    self.stage.sim.free_everything(but=others)
        self._end()
        self.stage.sim.free_everything(but=others)

    def _undisturbed(self) -> list[str]:
        """The names of the calls of the act, after which the layout is unchanged or recreated."""
        self._layout, self._begun = self.begin(), True
        with self.stage.traced(), suppress(Exception):
            made = self.act(self._layout)
            if self._layout is None and isinstance(made, Layout):
                self._layout = made
            product.settle()
        self._end()
        return [match[1] for line in self.stage.lines() if (match := _CALL.search(line))]

    def _fail(self, call: str, n: int) -> None:
        """Fails the n-th of these calls."""
        runtime = self._runtime
        if not self._begun:
            self._layout, self._begun = self.begin(), True
        before, alive = runtime.ledger(), self.stage.sim.alive()
        error, made = None, None
        with self.stage.traced():
            runtime.arm_faults(f"{call}@{n}={CODE}")
            try:
                made = self.act(self._layout)
            except Exception as caught:  # of another kind it is a bug, which the text shows
                error = caught
            product.settle()
            fired = runtime.faults_fired()
            runtime.arm_faults("")
        is_as_before = runtime.ledger() == before
        assert fired, f"{self.title}: {call} {n} was not made"
        left = "as before" if is_as_before else self._left(alive)
        self.stage.write("failures", self._described(call, n, error, left))
        if made is not None and self._layout is None and isinstance(made, Layout):
            self._layout = made
        if self.anew or not is_as_before or error is None:
            self._end()
        del error  # else a circle, through its traceback, keeps the change until the next collection

    def _described(self, call: str, n: int, error: BaseException | None, left: str) -> Iterator[str]:
        made = [match.groups() for line in self.stage.lines() if (match := _CALL.search(line))]
        yield f"--- {call} {n}"
        failed = next(number for number, (_, _, injected) in enumerate(made) if injected == "true")
        after = [call if result == "hipSuccess" else f"{call}->{result}" for call, result, _ in made[failed + 1 :]]
        runs = [(call, len([*alike])) for call, alike in groupby(summed(after))]
        yield "then: " + (", ".join(call if times == 1 else f"{call} x{times}" for call, times in runs) or "nothing")
        yield from ["done"] if error is None else product.report_of_error(error)
        yield f"left: {left}"

    def _left(self, before: set[Any]) -> str:
        now = self.stage.sim.alive()
        words = []
        for sign, keys in (("+", now - before), ("-", before - now)):
            counted = Counter(noun for noun, _ in keys)
            words += [f"{sign}{counted[noun]} {noun}" for noun in sorted(counted)]
        return ", ".join(words) or "the same objects, otherwise"

    def _end(self) -> None:
        layout, self._layout, self._begun = self._layout, None, False
        if layout is not None:
            with suppress(Exception):
                layout.close()
