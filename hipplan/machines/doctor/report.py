"""The doctor's report: findings and facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")
"""error: plans cannot be applied, or not on all devices. warning: something does less than expected, or something else.
note: good to know."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding."""

    level: Level
    topic: str
    """A stable name, such as limits.open_files."""
    summary: str
    do: str
    """What to do about it."""
    why: str = ""


@dataclass(frozen=True)
class DoctorReport:
    """The whole report. facts: plain data by topic."""

    facts: dict[str, Any] = field(default_factory=dict)
    findings: Sequence[Finding] = ()

    def of(self, level: Level) -> list[Finding]:
        return [finding for finding in self.findings if finding.level == level]
