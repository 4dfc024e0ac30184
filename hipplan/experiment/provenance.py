"""Where the numbers of a repetition come from."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from hipplan import _core
from hipplan.experiment.job import Job, Report
from hipplan.machines.provenance import collect
from hipplan.machines.runtimes import described
from hipplan.program import written
from hipplan.program.program import Program


def note(report: Report, job: Job, digest: str, program: Program, runtime: _core.Runtime, checks: int | None) -> None:
    """Notes the plan's digests, and all of the machine that could explain the numbers, once the memory is made and read
    back. checks: None: a holder did that."""
    report.plan = {
        "digest": digest,
        "program": written.digest(program),
        "lock": None if job.locked is None else hashlib.sha256(Path(job.locked).read_bytes()).hexdigest(),
        "verified": True,
        "checks": checks,
    }
    report.provenance = _collected(job, described(runtime), program)
    report.save()


def note_failure(report: Report, job: Job) -> None:
    """Notes what is known of the machine without the memory."""
    if not report.provenance:
        report.provenance = _collected(job, None, None)


def _collected(job: Job, runtime: dict[str, str] | None, program: Program | None) -> dict[str, Any]:
    return collect(runtime, None if program is None else program.measured, anonymous=job.anonymous)
