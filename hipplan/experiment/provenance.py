"""Where numbers come from: the plan, its program and lock."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from hipplan.program import written
from hipplan.program.program import Program


def of_plan(digest: str, program: Program | str, locked: str | None, checks: int | None) -> dict[str, Any]:
    """The digests of a plan that was applied and read back. program: or its text. checks: None: a holder did it."""
    text = written.write(program) if isinstance(program, Program) else program
    return {
        "digest": digest,
        "program": hashlib.sha256(text.encode()).hexdigest(),
        "lock": None if locked is None else hashlib.sha256(Path(locked).read_bytes()).hexdigest(),
        "verified": True,
        "checks": checks,
    }
