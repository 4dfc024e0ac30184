"""What the doctor found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")
"""error: plans cannot be applied, or not on a device that is there. warning: something does less, or other, than one
would think. note: good to know."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know."""

    level: Level
    topic: str
    """A stable name, such as limits.open_files."""
    summary: str
    do: str
    """What to do about it."""
    why: str = ""


@dataclass(frozen=True)
class Report:
    """All of it. facts: by topic, plain data."""

    facts: dict[str, Any] = field(default_factory=dict)
    findings: Sequence[Finding] = ()

    def of(self, level: Level) -> list[Finding]:
        return [finding for finding in self.findings if finding.level == level]
