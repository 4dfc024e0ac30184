"""Tells how many faults were injected."""

from __future__ import annotations

from typing import Any

from tests.faults.harness import points


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if points:
        each = ", ".join(f"{phase} {count:,}" for phase, count in sorted(points.items()))
        terminalreporter.write_line(f"faults injected: {sum(points.values()):,} ({each})")
