"""The process of one repetition: it makes the plan's memory, measures, and reports to the process that started it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from typing import Any

from hipplan.errors import Diagnostic, HipplanError, Problem
from hipplan.experiment import descendants
from hipplan.experiment.job import Job, Report
from hipplan.experiment.provenance import note_failure
from hipplan.files import strict_json
from hipplan.start import without_plugins


def main() -> None:
    """Does the job on standard input, reports to the descriptor that is the argument, and ends the process."""
    job = Job(**strict_json.loads(_taken_over_stdin()))
    report, code = Report(int(sys.argv[1])), 1
    try:
        code = _work(job, report)
    except Problem as problem:
        _fail(report, problem.diagnostic())
    except HipplanError as error:
        code = int(error.exit_code)
        _fail(report, error.diagnostics[0])
    except BaseException as error:
        traceback.print_exc()
        what = f"{type(error).__name__}: {error}"[:1000]
        _fail(report, Diagnostic("HP462", "the repetition raised an exception", why=what))
    if report.error is not None:
        note_failure(report, job)
    report.complete = True
    report.save()
    sys.exit(code)


def _work(job: Job, report: Report) -> int:
    """Imports what this job needs, since each repetition waits for it."""
    if not job.inside:  # a function of the user may come with models and plugins of its own
        without_plugins()
    if job.run:
        from hipplan.experiment import command

        return command.run(job, report)
    from hipplan.experiment import inside

    return inside.run(job, report)


def _fail(report: Report, diagnostic: Diagnostic) -> None:
    report.error = {**diagnostic.to_json(), "text": str(diagnostic)}


def _taken_over_stdin() -> bytes:
    """The first line of standard input, which others then read as empty. When its other end is closed, the process that
    started this one is gone: a thread kills all that this one has started, and itself."""
    lifetime = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    line = b""
    while not line.endswith(b"\n"):
        if not (piece := os.read(lifetime, 65536)):
            os._exit(1)
        line += piece
    threading.Thread(target=_end_with, args=(lifetime,), daemon=True).start()
    return line


def _end_with(lifetime: int) -> Any:
    while os.read(lifetime, 4096):
        pass
    descendants.kill_all(os.environ[descendants.VARIABLE])
    os.killpg(0, signal.SIGKILL)
