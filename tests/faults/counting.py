"""A plugin that counts the faults that this run of the tests injects, also over several processes of pytest-xdist."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

points: Counter[str] = Counter()
"""Faults injected, by phase."""


def pytest_sessionfinish(session: pytest.Session) -> None:
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["faults"] = dict(points)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    points.update(getattr(node, "workeroutput", {}).get("faults", {}))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if points:
        each = ", ".join(f"{phase} {count:,}" for phase, count in sorted(points.items()))
        terminalreporter.write_line(f"faults injected: {sum(points.values()):,} ({each})")
