"""What a repetition's process is told, and what it reports."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from hipplan.files import strict_json


@dataclass(frozen=True)
class Job:
    """One repetition. Paths are absolute."""

    plan: str
    variables: dict[str, Any]
    locked: str | None
    runtime: str | None
    machine: str | None
    folder: str
    """Where the experiment's file is."""
    warmup: int
    inside: str | None = None
    measure: list[str] | None = None
    objects: list[str] = field(default_factory=list)
    """For `measure`: patterns of the objects of copies."""
    run: list[str] | None = None
    metrics: dict[str, str | None] = field(default_factory=dict)
    """The metrics that it must give, by name -> the pattern of each, if it has one."""
    holder: str = ""
    """The name of the holder, for `run`."""
    anonymous: bool = False
    began: float = 0.0
    """When the process was started, by the clock that all processes share (time.monotonic)."""


@dataclass
class Report:
    """What a repetition's process knows of it, as far as it came."""

    descriptor: int
    """The file that it is saved to."""
    metrics: dict[str, float] = field(default_factory=dict)
    """All numbers of the repetition."""
    units: dict[str, str] = field(default_factory=dict)
    times: dict[str, float] = field(default_factory=dict)
    """Seconds that these took: the process before it made the memory, making it, the measured work."""
    plan: dict[str, Any] = field(default_factory=dict)
    """Name and digest of the plan, digests of its program and lock, and how many checks read it back."""
    provenance: dict[str, Any] = field(default_factory=dict)
    command_code: int | None = None
    """The exit code of the command."""
    error: dict[str, Any] | None = None
    """The diagnostic of a failure."""
    complete: bool = False
    """Whether the process came to its own end."""

    def save(self) -> None:
        """Writes all of it, as JSON, over what was saved before."""
        data = strict_json.dumps(vars(self)).encode()
        at = 0
        while at < len(data):
            at += os.pwrite(self.descriptor, data[at:], at)
        os.ftruncate(self.descriptor, len(data))
