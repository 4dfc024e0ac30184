"""A plugin that counts the faults that this run of the tests injects, also over several processes of pytest-xdist."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import WHOLE

points: Counter[str] = Counter()
"""Faults injected, by phase."""
cut: Counter[str] = Counter()
"""How many more a sweep would inject if it were not cut, by phase."""


def each(phase: str, places: range, step: int = 1) -> Iterator[int]:
    """The places of a sweep: all of them if sweeps are whole, else every step-th. What is left out is counted."""
    taken = places[:: 1 if WHOLE else step]
    cut[phase] += len(places) - len(taken)
    yield from taken


def pytest_sessionfinish(session: pytest.Session) -> None:
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["faults"], output["cut"] = dict(points), dict(cut)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    output = getattr(node, "workeroutput", {})
    points.update(output.get("faults", {}))
    cut.update(output.get("cut", {}))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if points:
        terminalreporter.write_line(f"faults injected: {sum(points.values()):,} ({_by_phase(points)})")
    if +cut:
        terminalreporter.write_line(f"faults cut: {sum(cut.values()):,} ({_by_phase(+cut)})")


def _by_phase(counts: Counter[str]) -> str:
    return ", ".join(f"{phase} {count:,}" for phase, count in sorted(counts.items()))
