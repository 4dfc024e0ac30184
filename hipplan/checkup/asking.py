"""Runs a part's process, and another one behind a question that ended it or took too long."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hipplan.checkup.question import Question, Release, is_within
from hipplan.files import strict_json
from hipplan.processes.command import main_of

ANSWERING = "hipplan.checkup.answering"
"""What runs in the other process; tests replace it."""
START_S = 60.0
"""How long a driver may take to start."""
_LINE_MAX = 2**20
_KILLED_S = 2.0
AS_DECLARED, DIFFERS, SEEN, SKIPPED = "as declared", "differs", "seen", "skipped"
FAILED, DIED, LATE, NOT_ASKED = "failed", "died", "late", "not asked"
WRONG = (DIFFERS, FAILED, DIED, LATE)


@dataclass(frozen=True)
class Answer:
    """One line of a report."""

    part: str
    question: str
    outcome: str
    seen: dict[str, Any] = field(default_factory=dict)
    declared: dict[str, Any] = field(default_factory=dict)
    """What the documentation says of this release, where it says something."""
    why: str = ""


@dataclass(frozen=True)
class Asking:
    """What all parts have in common."""

    runtime: str
    """Its name or path, as choose() takes it; empty: the default one."""
    memory: int
    ends: float
    """When nothing more is asked, by time.monotonic()."""
    release: Release | None = None
    """None: not known yet."""

    def declared(self, question: Question) -> dict[str, Any]:
        return dict(question.declared(self.release)) if self.release else {}


class NoRuntime(Exception):
    """There is no runtime to ask; the text says why."""


def answers(asking: Asking, part: str, questions: Sequence[Question]) -> Iterator[Answer]:
    """Raises NoRuntime."""
    first = 0
    while first < len(questions):
        if time.monotonic() >= asking.ends:
            for question in questions[first:]:
                yield Answer(part, question.name, NOT_ASKED, why="the time was up")
            return
        for answer in _answers_of_one_process(asking, part, questions, first):
            first += 1
            yield answer


def _answers_of_one_process(asking: Asking, part: str, questions: Sequence[Question], first: int) -> Iterator[Answer]:
    """At least one answer; all of the rest if the process lives."""
    reading, writing = os.pipe()
    with open(reading, "rb", buffering=0) as lines:  # noqa: PTH123
        arguments = [str(writing), asking.runtime, str(asking.memory), part, str(first)]
        try:
            process = subprocess.Popen(
                main_of(ANSWERING, arguments),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=(writing,),
                cwd="/", start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(writing)
        try:
            received = _Lines(lines.fileno())
            for question in questions[first:]:
                answer = _answer(asking, part, question, received, process)
                yield answer
                if process.returncode is not None or answer.outcome == LATE:
                    return
        finally:
            _end(process)


def _answer(asking: Asking, part: str, question: Question, lines: _Lines, process: subprocess.Popen[bytes]) -> Answer:
    try:
        begins = lines.next(min(START_S, asking.ends - time.monotonic()))
        if begins is not None and "refused" in begins:
            raise NoRuntime(begins["refused"])
        limit_s = min(question.limit_s, asking.ends - time.monotonic())
        line = None if begins is None else lines.next(limit_s)
    except TimeoutError:
        return Answer(part, question.name, LATE, why="it did not answer in time, and was killed")
    if line is None:
        return _died(asking, part, question, process)
    seen, declared = line.get("seen", {}), asking.declared(question)
    for outcome in (SKIPPED, FAILED):
        if outcome in line:
            return Answer(part, question.name, outcome, why=line[outcome])
    return Answer(part, question.name, judged(seen, declared), seen, declared)


def judged(seen: dict[str, Any], declared: dict[str, Any]) -> str:
    both = seen.keys() & declared.keys()
    if not both:
        return SEEN
    return AS_DECLARED if all(is_within(seen[key], declared[key]) for key in both) else DIFFERS


def _died(asking: Asking, part: str, question: Question, process: subprocess.Popen[bytes]) -> Answer:
    _wait(process)  # its pipe is closed: if it were killed now, the signal would be ours
    _end(process)
    code = process.returncode
    how = f"ended by {signal.Signals(-code).name}" if code is not None and code < 0 else f"ended with {code}"
    declared = asking.declared(question)
    seen = {"code": how} if "code" in declared else {}
    outcome = AS_DECLARED if judged(seen, declared) == AS_DECLARED else DIED
    return Answer(part, question.name, outcome, seen, declared, f"the process {how}")


def _wait(process: subprocess.Popen[bytes]) -> None:
    """Waits a little for its end, and leaves it unreaped: its group's number stays taken."""
    ends = time.monotonic() + _KILLED_S
    while time.monotonic() < ends:
        if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
            return
        time.sleep(0.01)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kills what is left of it and of the processes it started. One that hangs inside a driver is left alone."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_KILLED_S)


class _Lines:
    """Lines of JSON from a pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._rest = descriptor, b""

    def next(self, seconds: float) -> dict[str, Any] | None:
        """None at the end. Raises TimeoutError."""
        ends = time.monotonic() + seconds
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._descriptor], [], [], max(ends - time.monotonic(), 0))
            if not ready:
                raise TimeoutError
            more = os.read(self._descriptor, 2**16)
            if not more or len(self._rest) > _LINE_MAX:
                return None
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        data: dict[str, Any] = strict_json.loads(line)
        return data
